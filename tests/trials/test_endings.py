"""However processes end, and whoever works in them."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from support.otlp_receiver import OtlpReceiver

from .common import (
    Driven,
    events_in,
    eventually,
    ids_at,
    ids_by_run,
    ids_of_log,
    outcomes_at,
    program,
    run,
    side_cars,
)

pytestmark = [
    pytest.mark.trial,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.name != "posix", reason="forks, and sends signals"),
]

_AT_ONCE: Final = 3

_ENDINGS: Final = {
    "close": 0,
    "return while threads record": 0,
    "exception": 1,
    "sys.exit": 4,
    "os._exit": 5,
    "SIGTERM": -15,
    "SIGKILL": -9,
}


def _end(export: str, way: str, log: Path) -> dict[str, Any]:
    with OtlpReceiver() as receiver:
        endpoint = receiver.endpoint("grpc")
        run(program("ending", log, endpoint, export, way), status=_ENDINGS[way])
        found: dict[str, Any] = {"events": Counter(event["event"] for event in events_in(log))}
        found["live"], found["log"] = ids_at(receiver), ids_of_log(log)
        if export == "process":
            # Opened again; what another process sends for it is awaited.
            run(program("ending", log, endpoint, export, "nothing"))
            found["log"] = ids_of_log(log)
        eventually(lambda: not side_cars(log.parent), "the end of its followers")
        found["after"] = ids_at(receiver)
        return found


def test_however_a_process_ends_the_file_has_all_and_the_backend_gets_it(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """Each span once: live, or when the log is opened again."""
    # How a side-car does is in `tests/test_sidecar.py`, but for these two.
    cases = [
        *product(("file", "process"), _ENDINGS),
        ("sidecar", "sys.exit"),
        ("sidecar", "return while threads record"),
    ]
    places = [folder / str(number) for number in range(len(cases))]
    for place in places:
        place.mkdir()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(
            pool.map(lambda case, place: _end(case[0], case[1], place / "log.jsonl"), cases, places)
        )
    later = 0
    for case, each in zip(cases, found, strict=True):
        assert each["events"] == {
            "trace_opened": 1,
            "group_reserved": 900,
            "attempt_dispatched": 900,
            "attempt_sealed": 675,
            "group_discarded": 675,
        }, case
        if case[0] != "file":
            # What a receipt cut off by the end is about is sent again, and is the same.
            again = each["after"] - each["log"]
            assert each["after"] - again == each["log"], case
            assert again.total() <= (512 if _ENDINGS[case[1]] not in (0, 1) else 0), case
            later += (each["after"] - each["live"]).total()
            if _ENDINGS[case[1]] in (0, 1, 4):
                assert each["live"].total() == 1_801, case
    figure("endings, spans sent when the log was opened again", f"{len(cases)}, {later:,}")


_WAYS: Final = (
    "fork",
    "fork and exec",
    "multiprocessing spawn",
    "multiprocessing fork",
    "threads",
    "asyncio",
)


def _work(export: str, way: str, log: Path) -> dict[str, Any]:
    with OtlpReceiver() as receiver:
        endpoint = receiver.endpoint("grpc")
        out, err = run(program("working", log, endpoint, export, way))
        eventually(lambda: not side_cars(log.parent), "the end of its followers")
        return {
            "expected": json.loads(out),
            "said": err,
            "events": events_in(log),
            "log": ids_of_log(log),
            "arrived": ids_at(receiver),
        }


def test_whoever_works_in_a_process_everything_is_in_the_file_and_at_the_backend(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """Each event and each span once, a run for each process, and no word of alarm."""
    cases = list(product(("file", "process", "sidecar"), _WAYS))
    places = [folder / str(number) for number in range(len(cases))]
    for place in places:
        place.mkdir()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(
            pool.map(
                lambda case, place: _work(case[0], case[1], place / "log.jsonl"), cases, places
            )
        )
    spans = 0
    for case, each in zip(cases, found, strict=True):
        tags = Counter(event["tag"] for event in each["events"] if "tag" in event)
        assert tags == each["expected"], case
        runs = {event["run"] for event in each["events"]}
        assert len(runs) == (1 if case[1] in ("threads", "asyncio") else 4), case
        for own in runs:
            (first, *_) = [event["event"] for event in each["events"] if event["run"] == own]
            assert first == "trace_opened", case
        if case[0] != "file":
            assert each["arrived"] == each["log"], case
            spans += each["arrived"].total()
        assert each["said"] == "", case
    figure("ways to work, spans, each once", f"{len(cases)}, {spans:,}")


def test_forks_while_spans_are_sent_lock_nothing(
    log: Path, receiver: OtlpReceiver, figure: Callable[[str, object], None]
) -> None:
    """Children record, flush and close while the parent's threads number and settle spans."""
    out, err = run(program("forking", log, receiver.endpoint("http/protobuf"), 40))
    assert err == ""
    closes = json.loads(out)
    eventually(lambda: not side_cars(log.parent), "the end of its followers")
    assert ids_at(receiver) == ids_of_log(log)
    lines = Counter(event["run"] for event in events_in(log) if event["event"] == "x")
    assert sorted(lines.values()) == [100] * 40
    figure("forks, slowest close of a child", f"{len(closes)}, {max(closes):.1f} s")


def test_events_that_race_close_are_written_or_counted(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """In the file and `dropped` are together what was emitted, to the event."""
    out, _ = run(program("closing_early", folder, 60))
    rounds = json.loads(out)
    figure(
        "rounds, events, of them too late",
        f"{len(rounds)}, {sum(r[0] for r in rounds):,}, {sum(r[2] for r in rounds):,}",
    )
    assert [each for each in rounds if each[0] != each[1] + each[2]] == []
    assert sum(each[2] for each in rounds)


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray has no wheel for this machine"
)
def test_actors_of_ray_record_and_are_killed(
    folder: Path, receiver: OtlpReceiver, figure: Callable[[str, object], None]
) -> None:
    """A disabled trace goes to an actor as any argument; one of its own is there after a kill."""
    environment = {"PYTHONWARNINGS": "ignore", "RAY_USAGE_STATS_ENABLED": "0"}
    arguments = program("acting", folder, receiver.endpoint("grpc"))
    out, _ = run(arguments, environment, timeout=150)
    found = json.loads(out.splitlines()[-1])
    assert found["disabled"] == [False, False]
    for export in ("file", "process", "sidecar"):
        log, said = folder / f"{export}.jsonl", found[export]
        (closed_enabled, closed), (killed_enabled, killed) = said["runs"]
        assert (closed_enabled, killed_enabled) == (True, True)
        assert (said["flushed"], said["dropped"]) == (True, 0)
        tags = Counter(event["tag"] for event in events_in(log) if "tag" in event)
        assert tags == {"driver": 1, "closes": 299, "killed": 299}
        if export == "file":
            continue
        if export == "process":
            # What the killed one did not send is sent when the log is opened again.
            with Driven(log, export, receiver.endpoint("grpc")) as driven:
                driven.do("open")
                driven.do("close")
                driven.end()
        eventually(lambda: not side_cars(folder), "the end of the followers")
        expected, arrived = ids_of_log(log), ids_by_run(receiver)
        assert arrived[closed] + arrived[killed] == ids_of_log(log, closed) + ids_of_log(
            log, killed
        )
        assert (
            sum((arrived[each] for each in {event["run"] for event in events_in(log)}), Counter())
            == expected
        )
        ends = Counter(outcomes_at(receiver)[killed].values())
        assert ends == {"sealed": 99, "interrupted": 1}
    figure("actors", "2 disabled, 3 closed, 3 killed")
