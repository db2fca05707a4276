"""Training goes on while the collector is away, and nothing is lost for good."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from support import reading
from support.otlp_receiver import PROTOCOLS, Behaviour, OtlpReceiver, nobody, resetting
from support.programs import Finished, run_program, wait_for

EMIT_ROUNDS = Path(__file__).parent / "programs" / "emit_rounds.py"

WAYS: Final = ("refuses", "resets", "hangs", "unavailable")

#: How a run goes: rounds, pause between them in seconds, and settings.
RUNS: Final[dict[str, tuple[int, float, dict[str, str]]]] = {
    # Over before the first export has failed.
    "short": (1, 0, {}),
    # Long enough for a dozen of exports to fail, one after the other.
    "long": (
        5,
        1,
        {
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
        },
    ),
}


class Outage(NamedTuple):
    """A run without a collector that is over.

    Attributes:
        log: its log.
        said: what its process left.
        figures: what its program printed.
        exit_s: from its last line of code until its process was gone.
    """

    log: Path
    said: Finished
    figures: dict[str, Any]
    exit_s: float

    @property
    def spans(self) -> int:
        """How many spans it made, with the one of its only segment."""
        return int(self.figures["group_and_attempt_spans"]) + 1

    @property
    def lines(self) -> list[str]:
        """What was logged, line by line."""
        return self.said.errors.splitlines()

    @property
    def how_to_replay(self) -> list[str]:
        """The lines that name the command."""
        return [line for line in self.lines if "otel-rollout-trace replay" in line]


@contextmanager
def misbehaving(behaviour: Behaviour, protocol: str) -> Iterator[str]:
    with OtlpReceiver(behaviour) as receiver:
        yield receiver.endpoint(protocol)


def collector(way: str, protocol: str) -> AbstractContextManager[str]:
    """The address of a collector that is of no use, in one way or another."""
    if way == "refuses":
        return nobody()
    if way == "resets":
        return resetting()
    return misbehaving("hang" if way == "hangs" else "unavailable", protocol)


def go_through(run: str, way: str, protocol: str, folder: Path) -> Outage:
    rounds, pause, settings = RUNS[run]
    log = folder / "rollout_trace.jsonl"
    with collector(way, protocol) as endpoint:
        said = run_program(
            [EMIT_ROUNDS, log, str(rounds), str(pause)],
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                **settings,
            },
        )
        gone_at = time.time()
    assert said.status == 0, said.errors
    figures = json.loads(said.output)
    return Outage(log, said, figures, gone_at - figures["ended_at"])


CASES: Final = [
    *itertools.product(("short",), WAYS, PROTOCOLS),
    *itertools.product(("long",), ("hangs", "unavailable"), PROTOCOLS),
]


@pytest.fixture(scope="module")
def outages(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str, str], Future[Outage]]]:
    """Every run at once, four at a time: they wait more than they work."""
    with ThreadPoolExecutor(4) as pool:
        yield {
            case: pool.submit(go_through, *case, tmp_path_factory.mktemp("outage"))
            for case in CASES
        }


@pytest.fixture(params=CASES, ids="-".join)
def outage(
    request: pytest.FixtureRequest, outages: dict[tuple[str, str, str], Future[Outage]]
) -> Outage:
    return outages[request.param].result(timeout=100)


def test_the_file_is_complete(outage: Outage) -> None:
    lines = reading.lines_of(outage.log)
    assert len(lines) == 1 + outage.figures["emitted"]
    assert outage.figures["dropped"] == 0
    assert "trace_gap" not in {line["event"] for line in lines}


def test_emitting_does_not_wait_for_the_collector(outage: Outage) -> None:
    assert outage.figures["emit_s"] < 2


def test_closing_is_bounded(outage: Outage) -> None:
    """Five seconds by default; the rest is for a busy machine."""
    assert outage.figures["close_s"] < 7


def test_the_interpreter_exits_soon_after(outage: Outage) -> None:
    assert outage.exit_s < 8


def test_how_to_replay_is_said_once_with_the_number_of_spans_lost(outage: Outage) -> None:
    (line,) = outage.how_to_replay
    assert re.findall(r"\d+(?= span)", line) == [str(outage.spans)]
    assert str(outage.log) in line
    assert outage.figures["run"] in line


def test_what_the_exporters_complain_of_is_not_repeated_for_every_batch(outage: Outage) -> None:
    complaints = Counter(
        # Logger, level and the words that do not change.
        " ".join(line.split()[:6])
        for line in outage.lines
        if line.startswith("opentelemetry.")
    )
    assert [complaint for complaint, times in complaints.items() if times > 1] == []


def test_stopping_is_nothing_that_the_exporters_complain_of(outage: Outage) -> None:
    assert [line for line in outage.lines if "already shutdown" in line] == []


def test_nothing_else_is_said_more_than_once(outage: Outage) -> None:
    own = [line for line in outage.lines if line.startswith("otel_rollout_trace")]
    assert len(own) == len(set(own))
    assert len(own) <= 3
    assert "Traceback" not in outage.said.errors


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_an_outage_lost_is_counted_and_the_command_it_names_sends_it(
    protocol: str, tmp_path: Path
) -> None:
    """The collector is away when a run begins, and back before it ends."""
    log = tmp_path / "rollout_trace.jsonl"
    with OtlpReceiver("unavailable") as receiver, ThreadPoolExecutor(1) as pool:
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint(protocol),
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRICS_EXPORTER": "none",
        }
        running = pool.submit(run_program, [EMIT_ROUNDS, log, "6", "1"], settings)
        # A batch is tried twice within its second, so the first one is given up by then.
        wait_for(lambda: receiver.refused > 2, "third request", timeout=30)
        receiver.behaviour = "answer"
        said = running.result(timeout=60)
        figures = json.loads(said.output)
        spans = figures["group_and_attempt_spans"] + 1
        arrived = {span.span_id for span in receiver.spans}
        assert 0 < len(arrived) < spans
        (line,) = [line for line in said.errors.splitlines() if "otel-rollout-trace replay" in line]
        (told,) = re.findall(r"\d+(?= span)", line)
        # A request that timed out may have been taken all the same.
        assert spans - len(arrived) <= int(told) <= spans

        command = line[line.index("otel-rollout-trace replay") :]
        arguments = shlex.split(command.removesuffix(" sends them"))[1:]
        replayed = run_program(["-m", "otel_rollout_trace", *arguments], settings)
        assert (replayed.status, replayed.errors) == (0, "")
        assert len({span.span_id for span in receiver.spans}) == spans
