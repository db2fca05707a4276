"""Following a log: the replay's spans, each of them once, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from support.commands import Command
from support.following import Steps
from support.logs import any_logs, write_log
from support.metrics import Figures
from support.spans import PlainSpan, plain, replayed_spans

from otel_rollout_trace import read_events
from otel_rollout_trace.events import Event
from otel_rollout_trace.following import AlreadyFollowedError, Followed, Follower, Until
from otel_rollout_trace.journal.lines import encode_line
from otel_rollout_trace.receipts import Process, Receipt, Receipts, note_closed
from otel_rollout_trace.setup.configuring import resource_of_run

DATA = Path(__file__).parent / "data"
SAMPLES = sorted(DATA.glob("*.jsonl"))


class Receiver(SpanExporter):
    """Keeps what it takes; may be told to be away, or to refuse some spans."""

    def __init__(self) -> None:
        self.taken: list[ReadableSpan] = []
        self.away = False
        self.refuses: Callable[[ReadableSpan], bool] = lambda _: False
        self.tries = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.tries += 1
        if self.away or any(map(self.refuses, spans)):
            return SpanExportResult.FAILURE
        self.taken.extend(spans)
        return SpanExportResult.SUCCESS

    @property
    def spans(self) -> list[PlainSpan]:
        return [plain(span) for span in self.taken]


def _follower(log: Path, receiver: Receiver, **settings: Any) -> Follower:
    settings.setdefault("until", Until.CAUGHT_UP)
    settings.setdefault("wait", lambda _: False)
    return Follower(
        log,
        exporter=receiver,
        target="the receiver",
        resource=lambda run, opened: resource_of_run(run, opened or {}),
        **settings,
    )


def _once(log: Path, receiver: Receiver, **settings: Any) -> Followed:
    return _follower(log, receiver, **settings).run()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rollout_trace.jsonl"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_it_sends_the_spans_of_a_replay(sample: Path, log: Path) -> None:
    shutil.copy(sample, log)
    receiver = Receiver()
    _once(log, receiver)
    assert Counter(receiver.spans) == Counter(replayed_spans(sample))


@given(events=any_logs().filter(bool), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_however_often_it_is_stopped_every_span_is_sent_once(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], cuts: list[int]
) -> None:
    """Also where it stops in the middle of a line, and while runs go on."""
    log = tmp_path_factory.mktemp("follow") / "log.jsonl"
    whole = b"".join(encode_line(event) + b"\n" for event in events)
    receiver = Receiver()
    here = {event["run"]: Process(os.getpid(), socket.gethostname()) for event in events}
    for cut in sorted(cuts):
        log.write_bytes(whole[: cut * len(whole) // 400])
        if b"\n" not in log.read_bytes():
            continue  # nothing to be caught up with
        _once(log, receiver, processes=here)  # all of its runs go on
    log.write_bytes(whole)
    _once(log, receiver)
    assert Counter(receiver.spans) == Counter(replayed_spans(log))


def test_a_second_time_sends_nothing(log: Path) -> None:
    shutil.copy(DATA / "killed_and_restored.jsonl", log)
    receiver = Receiver()
    first = _once(log, receiver)
    taken = len(receiver.taken)
    second = _once(log, receiver)
    assert first.sent == taken > 0
    assert (second.sent, len(receiver.taken)) == (0, taken)


def test_what_a_run_left_open_waits_until_its_process_is_gone(log: Path) -> None:
    events = [
        {"t": 1.0, "run": "r", "event": "trace_opened", "pid": os.getpid()},
        {"t": 2.0, "run": "r", "event": "attempt_dispatched", "group_id": "g", "attempt_id": "a"},
    ]
    write_log(log, events)
    receiver = Receiver()
    there = {"r": Process(os.getpid(), socket.gethostname())}
    assert _once(log, receiver, processes=there).going_on == 1
    assert not receiver.taken
    gone = {"r": Process(2**22 + 1, socket.gethostname())}
    assert _once(log, receiver, processes=gone).over == ["r"]
    outcomes = {(span.attributes or {}).get("rl.outcome") for span in receiver.taken}
    assert outcomes == {None, "interrupted"}


class Figured(MetricExporter):
    """Keeps the last figures."""

    last = Figures(None)

    def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
        self.last = Figures(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        pass


@pytest.mark.parametrize(("closed", "left_open"), [(True, 0), (False, 1)], ids=["closed", "lost"])
def test_the_last_figures_tell_whether_a_run_was_closed(
    log: Path, closed: bool, left_open: int
) -> None:
    """What was open when it was lost stays open in them, as where a process was killed."""
    group = {"t": 2.0, "run": "r", "event": "group_reserved", "group_id": "g"}
    attempt = {**group, "event": "attempt_dispatched", "attempt_id": "a"}
    write_log(log, [group, attempt])
    exporter = Figured()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as writer:

        def end(_: float) -> bool:
            if closed:
                note_closed(Receipts(log).directory, "r")
            writer.kill()
            writer.wait()
            return False

        found = _once(
            log,
            Receiver(),
            until=Until.WRITERS_GONE,
            processes={"r": Process(writer.pid, socket.gethostname())},
            wait=end,
            meter_provider=lambda of: MeterProvider(
                [PeriodicExportingMetricReader(exporter, 1e9)], resource=of
            ),
        )
    assert found.over == ["r"]
    assert exporter.last.value("rl.open_groups") == left_open
    assert exporter.last.value("rl.active_attempts") == left_open
    assert exporter.last.by("rl.attempts", "rl.outcome") == {"interrupted": 1}


def test_a_torn_line_counts_once_it_is_finished(log: Path) -> None:
    lines = (DATA / "example.jsonl").read_bytes()
    receiver = Receiver()
    log.write_bytes(lines[:-40])
    found = _once(log, receiver, silence=1e12)
    assert found.bad_lines == 0
    with log.open("ab") as file:
        file.write(lines[-40:])
    _once(log, receiver)
    assert Counter(receiver.spans) == Counter(replayed_spans(DATA / "example.jsonl"))


def test_it_waits_for_a_file_that_does_not_exist_yet(log: Path) -> None:
    receiver = Receiver()
    steps = Steps(lambda: None, lambda: shutil.copy(DATA / "example.jsonl", log), lambda: None)
    _once(log, receiver, until=Until.STOPPED, wait=steps)
    _once(log, receiver)
    assert Counter(receiver.spans) == Counter(replayed_spans(DATA / "example.jsonl"))


def test_it_goes_on_in_the_file_that_takes_the_place_of_a_rotated_one(log: Path) -> None:
    """Without a restart, and with one after the rotation."""
    lines = (DATA / "killed_and_restored.jsonl").read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    receiver = Receiver()

    def rotate() -> None:
        log.rename(log.with_suffix(".jsonl.1"))
        log.write_bytes(b"".join(lines[middle : middle + 300]))

    def grow() -> None:
        with log.open("ab") as file:
            file.write(b"".join(lines[middle + 300 :]))

    log.write_bytes(b"".join(lines[:middle]))
    here = {
        event["run"]: Process(os.getpid(), socket.gethostname())
        for event in read_events(DATA / "killed_and_restored.jsonl")
    }
    _once(
        log,
        receiver,
        until=Until.STOPPED,
        processes=here,
        wait=Steps(rotate, lambda: None, lambda: None),
    )
    grow()
    _once(log, receiver)
    assert Counter(receiver.spans) == Counter(replayed_spans(DATA / "killed_and_restored.jsonl"))


def test_it_begins_anew_in_a_file_that_was_cut(log: Path) -> None:
    receiver = Receiver()
    shutil.copy(DATA / "steady.jsonl", log)
    example = (DATA / "example.jsonl").read_bytes()
    # Writers are looked for less often than lines.
    steps = Steps(lambda: log.write_bytes(example), lambda: time.sleep(0.6), lambda: None)
    _once(log, receiver, until=Until.STOPPED, wait=steps, silence=1)
    expected = Counter(replayed_spans(DATA / "steady.jsonl")) + Counter(
        replayed_spans(DATA / "example.jsonl")
    )
    assert Counter(receiver.spans) == expected


def test_it_falls_behind_while_the_receiver_is_away_and_catches_up(log: Path) -> None:
    shutil.copy(DATA / "killed_and_restored.jsonl", log)
    receiver = Receiver()
    receiver.away = True
    seen: list[Followed] = []

    def come_back() -> None:
        receiver.away = False

    def progress(found: Followed) -> None:
        if found.outage and found.waiting:
            seen.append(found)

    steps = Steps(*[lambda: None] * 5, come_back)
    found = _once(log, receiver, wait=steps, progress=progress)
    assert seen
    assert found.waiting == 0
    assert Counter(receiver.spans) == Counter(replayed_spans(log))


def test_stopped_while_the_receiver_is_away_it_says_what_waits(log: Path) -> None:
    shutil.copy(DATA / "example.jsonl", log)
    receiver = Receiver()
    receiver.away = True
    found = _once(log, receiver, wait=Steps(lambda: None))
    assert found.waiting > 0
    assert found.sent == 0
    receiver.away = False
    assert _once(log, receiver).waiting == 0
    assert Counter(receiver.spans) == Counter(replayed_spans(log))


def test_a_span_that_the_receiver_refuses_does_not_hold_up_the_others(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(DATA / "killed_and_restored.jsonl", log)
    receiver = Receiver()
    bad = replayed_spans(log)[100]
    receiver.refuses = lambda span: plain(span) == bad
    found = _once(log, receiver)
    assert found.refused == 1
    assert "refuses span" in caplog.text
    assert Counter(receiver.spans) == Counter(replayed_spans(log)) - Counter([bad])


def test_one_follower_for_each_log(log: Path) -> None:
    shutil.copy(DATA / "example.jsonl", log)
    inside = threading.Event()
    leave = threading.Event()

    def wait(seconds: float) -> bool:
        inside.set()
        return leave.wait(10)

    first = _follower(log, Receiver(), until=Until.STOPPED, wait=wait)
    thread = threading.Thread(target=first.run)
    thread.start()
    try:
        assert inside.wait(10)
        with pytest.raises(AlreadyFollowedError, match=str(os.getpid())):
            _once(log, Receiver())
    finally:
        leave.set()
        thread.join()


def test_a_run_that_its_own_process_sends_is_left_to_it(log: Path) -> None:
    """Until that process is gone; then what it did not send is sent."""
    shutil.copy(DATA / "example.jsonl", log)
    run = next(iter(read_events(log)))["run"]
    total = len(replayed_spans(log))
    receipts = Receipts(log)
    # Process 1 is always there.
    receipts.save(Receipt(run, sent=3, missing=[(2, 2)], sender=Process(1, socket.gethostname())))
    receiver = Receiver()
    _once(log, receiver)
    assert not receiver.taken
    receipts.save(Receipt(run, sent=3, missing=[(2, 2)], sender=None))
    _once(log, receiver)
    assert len(receiver.taken) == total - 2
    assert Receipts(log).of(run).done


def test_a_run_that_was_taken_to_be_over_too_early_goes_on(log: Path) -> None:
    """Nothing is sent under an id twice."""
    lines = (DATA / "steady.jsonl").read_bytes().splitlines(keepends=True)
    receiver = Receiver()
    for end in (len(lines) // 3, 2 * len(lines) // 3, len(lines)):
        log.write_bytes(b"".join(lines[:end]))
        _once(log, receiver, silence=1)
    ids = [(span.trace_id, span.span_id) for span in receiver.spans]
    assert len(ids) == len(set(ids))
    everything = {span.name for span in receiver.spans}
    assert everything == {"rl.run", "rl.rollout.group", "rl.rollout.attempt"}
    _once(log, receiver)
    assert len(receiver.taken) == len(ids)


def test_an_event_is_with_the_exporter_within_a_second(log: Path) -> None:
    """No measure of speed: it looks several times a second, however long it has waited."""
    receiver = Receiver()
    stop = threading.Event()
    follower = _follower(log, receiver, until=Until.STOPPED, wait=stop.wait, silence=1e12)
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        time.sleep(1.0)
        write_log(log, list(read_events(DATA / "example.jsonl")))
        deadline = time.monotonic() + 30
        while not receiver.taken and time.monotonic() < deadline:
            time.sleep(0.01)
        assert receiver.taken
    finally:
        stop.set()
        thread.join()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=40))
def test_a_receipt_wants_just_what_did_not_arrive(steps: list[tuple[bool, int]]) -> None:
    """In whatever order spans arrive and are lost."""
    receipt = Receipt("r")
    arrived: set[int] = set()
    for came, number in steps:
        if came:
            receipt.arrived(number)
            arrived.add(number)
        else:
            receipt.lose(number)
    assert {number for number in range(1, 13) if receipt.wants(number)} == set(
        range(1, 13)
    ) - arrived


@pytest.mark.parametrize("old", ["is kept", "is deleted", "is copied and cut"])
def test_rotated_while_nobody_follows_nothing_that_is_left_is_missing(log: Path, old: str) -> None:
    """And no two different spans have one id, also after one more restart."""
    lines = (DATA / "steady.jsonl").read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    run = next(iter(read_events(DATA / "steady.jsonl")))["run"]
    there = {run: Process(os.getpid(), socket.gethostname())}
    receiver = Receiver()
    log.write_bytes(b"".join(lines[:middle]))
    _once(log, receiver, processes=there)
    before = len(receiver.taken)
    if old == "is copied and cut":
        shutil.copy(log, log.with_suffix(".jsonl.1"))
        log.write_bytes(b"".join(lines[middle : middle + 200]))
    else:
        log.rename(log.with_suffix(".jsonl.1"))
        log.write_bytes(b"".join(lines[middle : middle + 200]))
        if old == "is deleted":
            # Its number must not be the new file's.
            log.with_suffix(".jsonl.1").unlink()
    _once(log, receiver, processes=there)
    with log.open("ab") as file:
        file.write(b"".join(lines[middle + 200 :]))
    _once(log, receiver)
    if old != "is deleted":
        assert Counter(receiver.spans) == Counter(replayed_spans(DATA / "steady.jsonl"))
        return
    segments = [span for span in receiver.spans if span.name == "rl.run"]
    assert len({span.span_id for span in segments}) == len(segments)
    # Groups and attempts that began and ended in what is left.
    left = Counter(span for span in replayed_spans(log) if span.name != "rl.run")
    assert not left - Counter(receiver.spans)
    assert len(receiver.taken) > before


def test_what_is_written_while_the_last_spans_are_sent_is_read_before_the_run_ends(
    log: Path,
) -> None:
    """The writer closes in the middle of an export."""
    lines = (DATA / "example.jsonl").read_bytes().splitlines(keepends=True)
    run = next(iter(read_events(DATA / "example.jsonl")))["run"]
    log.write_bytes(b"".join(lines[:-3]))

    class Writing(Receiver):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if not self.taken:
                with log.open("ab") as file:
                    file.write(b"".join(lines[-3:]))
                note_closed(Receipts(log).directory, run)
            return super().export(spans)

    receiver = Writing()
    there = {run: Process(os.getpid(), socket.gethostname())}
    _once(log, receiver, until=Until.WRITERS_GONE, processes=there)
    assert Counter(receiver.spans) == Counter(replayed_spans(DATA / "example.jsonl"))


def test_a_receiver_that_takes_nothing_but_empty_requests_is_waited_for(log: Path) -> None:
    """It is overloaded; no span is given up for that."""
    shutil.copy(DATA / "killed_and_restored.jsonl", log)

    class Overloaded(Receiver):
        overloaded = True

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if spans and self.overloaded:
                self.tries += 1
                self.overloaded = self.tries < 40
                return SpanExportResult.FAILURE
            return super().export(spans)

    receiver = Overloaded()
    found = _once(log, receiver)
    assert found.refused == 0
    assert Counter(receiver.spans) == Counter(replayed_spans(log))


@pytest.mark.parametrize(
    "receipt",
    [
        b"",
        b"[" * 100_000,
        b'{"run": "another", "sent": 2}',
        b'{"run": "RUN", "sent": 1000000}',
        b'{"run": "RUN", "sender": {"pid": 0, "host": "HOST"}}',
        b'{"run": "RUN", "sender": {"pid": 9223372036854775807, "host": "HOST"}}',
        b'{"run": "RUN", "sent": -5, "missing": [[9, 3], [-1, 0]]}',
    ],
    ids=["empty", "deep", "another's", "too many", "no process", "no number", "negative"],
)
def test_a_receipt_that_cannot_be_true_loses_nothing(log: Path, receipt: bytes) -> None:
    shutil.copy(DATA / "example.jsonl", log)
    run = next(iter(read_events(log)))["run"]
    directory = Receipts(log).directory
    directory.mkdir()
    filled = receipt.replace(b"RUN", run.encode()).replace(b"HOST", socket.gethostname().encode())
    (directory / f"{run}.json").write_bytes(filled)
    receiver = Receiver()
    _once(log, receiver)
    assert Counter(receiver.spans) == Counter(replayed_spans(log))


@pytest.mark.parametrize("content", ['{"a": 1}\n', "text\n"], ids=["other JSON", "text"])
def test_once_leaves_nothing_beside_what_is_no_log(tmp_path: Path, content: str) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(content)
    assert "not a rollout log" in Command("follow", "--once", other).refused()
    assert [*tmp_path.iterdir()] == [other]
