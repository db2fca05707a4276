"""Receivers that are away, hang, are overloaded, or want less at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from support.logs import simulate, write_log
from support.otlp_receiver import MOST_BYTES, PROTOCOLS, OtlpReceiver, nobody

from .common import (
    FOLLOW,
    Driven,
    events_in,
    eventually,
    follow_once,
    ids_at,
    ids_of_log,
    one_span_each,
    run,
    running,
)

pytestmark = [pytest.mark.trial, pytest.mark.timeout(240)]

_MB: Final = 1_000_000

# Few spans wait in memory here, so that not all of them fit.
_SMALL: Final = {
    "OTEL_BSP_MAX_QUEUE_SIZE": "1024",
    "OTEL_BSP_SCHEDULE_DELAY": "100",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
}
_GROUPS: Final = 400


class Outage(NamedTuple):
    """A receiver that is of no use for a while.

    Attributes:
        name: what it is called.
        protocol: of OTLP.
        refusal: what it answers; None where it answers nothing.
        later: whether it takes spans first.
        alone: whether nobody listens at all.
    """

    name: str
    protocol: str
    refusal: HTTPStatus | None = HTTPStatus.SERVICE_UNAVAILABLE
    later: bool = False
    alone: bool = False


_OUTAGES: Final = [
    Outage("nobody listens", "grpc", alone=True),
    Outage("503 from the start", "http/protobuf"),
    Outage("gone in the middle", "grpc", later=True),
    Outage("hangs", "http/protobuf", None),
    Outage("hangs in the middle", "grpc", None, later=True),
    Outage("429 in the middle", "http/protobuf", HTTPStatus.TOO_MANY_REQUESTS, later=True),
    Outage("RESOURCE_EXHAUSTED", "grpc", HTTPStatus.TOO_MANY_REQUESTS),
    Outage("413", "http/protobuf", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, later=True),
]


def _go_through(outage: Outage, log: Path) -> dict[str, Any]:
    """A run without a receiver; then what it lacks is sent. What was found."""
    with ExitStack() as stack:
        receiver = stack.enter_context(OtlpReceiver("answer" if outage.later else "unavailable"))
        receiver.refusal = outage.refusal or receiver.refusal
        endpoint = (
            stack.enter_context(nobody()) if outage.alone else receiver.endpoint(outage.protocol)
        )
        driven = stack.enter_context(Driven(log, "process", endpoint, outage.protocol, _SMALL))
        begun = driven.do("open")
        driven.do("groups", 200)
        if outage.later:
            eventually(lambda: receiver.requests["trace"], "the first spans")
        receiver.behaviour = "unavailable" if outage.refusal else "hang"
        driven.do("groups", _GROUPS)
        driven.do("flush", 60)
        end = driven.do("close")
        said = driven.end()
        arrived = ids_at(receiver)
        receiver.behaviour = "answer"
        expected = ids_of_log(log)
        follow_once(log, receiver.endpoint(outage.protocol), outage.protocol)
        return {
            "lines": len(events_in(log)),
            "emitted": end["emitted"],
            "dropped": end["dropped"],
            "expected": expected,
            "arrived": arrived,
            "told": [int(many) for many in re.findall(r"(\d+) span\(s\) of run", said)],
            "after": ids_at(receiver),
            "close_s": end["close_s"],
            "growth": end["rss"] - begun["rss"],
        }


def test_whatever_the_receiver_does_counts_are_exact_and_following_completes_it(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """The file has all; what did not arrive is counted, then sent, and nothing comes twice."""
    logs = [folder / f"{number}.jsonl" for number in range(len(_OUTAGES))]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(_go_through, _OUTAGES, logs))
    for outage, each in zip(_OUTAGES, found, strict=True):
        figure(
            f"{outage.name} ({outage.protocol}): spans, not sent live",
            f"{each['expected'].total():,}, {(each['expected'] - each['arrived']).total():,}; "
            f"close {each['close_s']:.1f} s, memory {each['growth'] / _MB:+.0f} MB",
        )
    for outage, each in zip(_OUTAGES, found, strict=True):
        assert (each["lines"], each["dropped"]) == (each["emitted"], 0), outage
        assert each["arrived"] <= each["expected"], outage
        assert bool(each["arrived"]) is outage.later, outage
        missing = (each["expected"] - each["arrived"]).total()
        assert each["told"] == [missing], outage
        assert each["after"] == each["expected"], outage
        assert each["close_s"] < 20, outage
        assert each["growth"] < 250 * _MB, outage


def test_memory_is_bounded_while_nothing_arrives(
    log: Path, figure: Callable[[str, object], None]
) -> None:
    """Once the queue of spans is full it does not grow any more; `replay` sends all."""
    with OtlpReceiver("hang") as receiver:
        endpoint = receiver.endpoint("grpc")
        waiting = {"OTEL_BSP_MAX_QUEUE_SIZE": "16384"}
        with Driven(log, "process", endpoint, "grpc", waiting) as driven:
            begun = driven.do("open")["rss"]
            grown = []
            for _ in range(3):
                driven.do("groups", 3_000)
                grown.append(driven.do("flush", 120)["rss"] - begun)
            end = driven.do("close")
            said = driven.end()
        expected = ids_of_log(log)
        figure("spans", f"{expected.total():,}")
        figure("memory with 15, 30, 45 thousand spans", [f"{each / _MB:+.0f} MB" for each in grown])
        figure("close", f"{end['close_s']:.1f} s")
        assert (len(events_in(log)), end["dropped"]) == (end["emitted"], 0)
        assert f"{expected.total()} span(s) of run" in said
        assert grown[2] < 400 * _MB
        assert grown[2] - grown[1] < 60 * _MB
        assert end["close_s"] < 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_replay_completes_what_an_outage_cut_off(protocol: str, log: Path) -> None:
    """The spans of the live run and those of the replay together are those of the log."""
    with OtlpReceiver() as receiver:
        to = ("--endpoint", receiver.endpoint(protocol), "--protocol", protocol)
        with Driven(log, "process", to[1], protocol, _SMALL) as driven:
            driven.do("open")
            driven.do("groups", 100)
            eventually(lambda: receiver.requests["trace"], "the first spans")
            receiver.behaviour = "unavailable"
            driven.do("groups", 400)
            driven.do("close")
            driven.end()
        expected = set(ids_of_log(log))
        assert 0 < len(ids_at(receiver)) < len(expected)
        receiver.behaviour = "answer"
        run(["-m", "otel_rollout_trace", "replay", log, *to])
        assert set(ids_at(receiver)) == expected
        one_span_each(receiver)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("export", ["process", "sidecar"])
def test_a_receiver_that_takes_four_megabytes_at_most_gets_all_of_larger_batches(
    protocol: str, export: str, log: Path, figure: Callable[[str, object], None]
) -> None:
    """In more requests."""
    with OtlpReceiver() as receiver:
        with Driven(log, export, receiver.endpoint(protocol), protocol) as driven:
            begun = driven.do("open")["rss"]
            driven.do("groups", 6, 900_000)
            end = driven.do("close")
            said = driven.end()
        expected = ids_of_log(log)
        eventually(lambda: ids_at(receiver) == expected, "all spans", timeout=30)
        assert receiver.refused == 0
        assert max(request.ByteSize() for request in receiver.requests["trace"]) <= MOST_BYTES
        assert said == ""
        assert end["rss"] - begun < 500 * _MB
        figure(
            "requests, memory",
            f"{len(receiver.requests['trace'])}, {(end['rss'] - begun) / _MB:+.0f} MB",
        )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "refusal", [HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE], ids=["429", "503"]
)
def test_a_follower_waits_for_an_overloaded_receiver(
    protocol: str, refusal: HTTPStatus, log: Path, figure: Callable[[str, object], None]
) -> None:
    """Which answers requests without spans meanwhile: no span is taken for a bad one."""
    write_log(log, simulate(3, runs=2, steps=30))
    expected = ids_of_log(log)
    with OtlpReceiver("unavailable") as receiver:
        receiver.refusal, receiver.takes_empty = refusal, True
        command = [*FOLLOW, log, "--no-metrics", "--silence", "1"]
        to = ["--endpoint", receiver.endpoint(protocol), "--protocol", protocol]
        with running([*command, *to], {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}) as process:
            eventually(lambda: receiver.refused > 15, "tries of the follower")
            refused, started = receiver.refused, time.monotonic()
            assert not ids_at(receiver)
            receiver.behaviour = "answer"
            eventually(lambda: ids_at(receiver).total() >= expected.total(), "all spans")
            caught_up = time.monotonic() - started
            process.terminate()
            process.communicate(timeout=30)
        assert ids_at(receiver) == expected
        figure("requests refused, then caught up within", f"{refused}, {caught_up:.1f} s")
