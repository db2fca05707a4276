"""Followers that are killed, and what happens to logs and receipts meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from support.following import Steps
from support.logs import DATA, simulate, write_log
from support.otlp_receiver import OtlpReceiver
from support.spans import PlainSpan, plain, replayed_spans

from otel_rollout_trace import RolloutTrace, read_events
from otel_rollout_trace.following import Followed, Follower, Until
from otel_rollout_trace.journal.lines import encode_line
from otel_rollout_trace.receipts import Process, Receipts, note_closed
from otel_rollout_trace.setup.configuring import resource_of_run

from .common import FOLLOW, eventually, follow_once, ids_at, ids_of_log, one_span_each, running
from .programs.every_way import Kept

pytestmark = [
    pytest.mark.trial,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.name != "posix", reason="sends signals to processes"),
]

# What a follower sends in one request.
_BATCH: Final = 256

_SAMPLE: Final = DATA / "killed_and_restored.jsonl"


def _follow(log: Path, kept: Kept, **settings: Any) -> Followed:
    settings = {"until": Until.CAUGHT_UP, "wait": lambda _: False, **settings}
    return Follower(
        log,
        exporter=kept,
        target="the receiver",
        resource=lambda run, opened: resource_of_run(run, opened or {}),
        **settings,
    ).run()


def _there(log: Path) -> dict[str, Process]:
    """As if this process wrote all runs of a log."""
    return {event["run"]: Process(os.getpid(), socket.gethostname()) for event in read_events(log)}


def _nothing() -> None:
    pass


def _ids(spans: list[PlainSpan]) -> set[tuple[int, int]]:
    return {(span.trace_id, span.span_id) for span in spans}


def _each_once_or_the_same(kept: Kept) -> int:
    """How many spans came again; none may have come in two forms."""
    seen: dict[tuple[int, int], PlainSpan] = {}
    for span in map(plain, kept.spans):
        key = span.trace_id, span.span_id
        assert seen.setdefault(key, span) == span, "two different spans under one id"
    return len(kept.spans) - len(seen)


def test_a_follower_that_is_killed_goes_on_where_it_was(
    folder: Path, log: Path, receiver: OtlpReceiver, figure: Callable[[str, object], None]
) -> None:
    """Nothing is missing; what comes again is the same, and one batch for each kill at most."""
    kills = 10
    whole = write_log(folder / "whole.jsonl", simulate(8, runs=3, steps=250)).read_bytes()
    chance = random.Random(8)
    log.touch()
    to = ["--endpoint", receiver.endpoint("grpc"), "--protocol", "grpc"]
    written = 0
    for number in range(kills):
        before = len(receiver.requests["trace"])
        # In the middle of a line, as it comes.
        end = len(whole) * (number + 1) // (kills + 1)
        with running([*FOLLOW, log, "--no-metrics", "--silence", "1e9", *to]) as process:
            with log.open("ab") as file:
                file.write(whole[written:end])
            written = end
            eventually(
                lambda before=before, process=process: (
                    len(receiver.requests["trace"]) > before  # type: ignore[misc] # mypy has no types for it
                    or process.poll() is not None
                ),
                "spans",
            )
            time.sleep(chance.uniform(0, 0.25))
            process.kill()
            _, err = process.communicate()
        assert process.returncode == -9, err
    with log.open("ab") as file:
        file.write(whole[written:])
    follow_once(log, receiver.endpoint("grpc"), "grpc", "--silence", "1")
    expected = ids_of_log(log)
    again = one_span_each(receiver)
    figure("kills, spans, of them sent again", f"{kills}, {expected.total():,}, {again}")
    assert set(ids_at(receiver)) == set(expected)
    assert again <= _BATCH * kills


class _Writing(Kept):
    """Has parts of a log written, and then its run closed, while spans are on their way.

    Args:
        log: the log.
        run: its run.
        parts: what is written, one of them at each request.
    """

    def __init__(self, log: Path, run: str, *parts: bytes) -> None:
        super().__init__()
        self._log, self._run, self._parts = log, run, list(parts)
        self.closed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See ``SpanExporter``."""
        if spans and self._parts:
            with self._log.open("ab") as file:
                file.write(self._parts.pop(0))
            if not self._parts:
                self.closed = True
                note_closed(Receipts(self._log).directory, self._run)
        return super().export(spans)


def test_what_is_written_while_a_run_ends_is_not_lost(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """Lines come, and the run is closed, while spans are on their way."""
    lines = _SAMPLE.read_bytes().splitlines(keepends=True)
    run = msgspec.json.decode(lines[0])["run"]
    lines = [line for line in lines if run.encode() in line][:600]
    chance = random.Random(1)
    rounds = 30
    for number in range(rounds):
        log = folder / f"{number}.jsonl"
        begun, middle = chance.randrange(150, 300), chance.randrange(300, 600)
        log.write_bytes(b"".join(lines[:begun]))
        parts = [b"".join(lines[begun:middle]), b"".join(lines[middle:])]
        kept = _Writing(log, run, *(parts if number % 2 else [b"".join(parts)]))
        deadline = time.monotonic() + 20

        def wait(seconds: float, deadline: float = deadline) -> bool:
            time.sleep(seconds / 20)
            return time.monotonic() > deadline

        _follow(log, kept, until=Until.WRITERS_GONE, processes=_there(log), wait=wait)
        assert kept.closed
        assert Counter(map(plain, kept.spans)) == Counter(replayed_spans(log)), number
    figure("runs", rounds)


def _delete(directory: Path) -> None:
    shutil.rmtree(directory)


def _garble(directory: Path) -> None:
    for number, path in enumerate(sorted(directory.glob("*.json"))):
        garbage = (b'{"run":"x","sent":1000000,"done":true}', b"\0\xff{", b"[]", b"", b"{}")
        path.write_bytes(garbage[number % len(garbage)])
    (directory / "files").write_bytes(b"\xff\0")


def _cut(directory: Path) -> None:
    for path in directory.iterdir():
        os.truncate(path, path.stat().st_size // 2)


def _chattr(flag: str, directory: Path) -> None:
    subprocess.run(["chattr", flag, directory], check=True, capture_output=True)


def _freeze(directory: Path) -> None:
    if os.geteuid():
        directory.chmod(0o500)
        return
    try:
        _chattr("+i", directory)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing is read-only to root here")


def _thaw(directory: Path) -> None:
    if os.geteuid():
        directory.chmod(0o700)
    else:
        _chattr("-i", directory)


def _in_the_way(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_text("in the way")


def _leave(directory: Path) -> None:
    pass


_DAMAGES: Final[dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]]] = {
    "deleted": (_delete, _leave),
    "garbled": (_garble, _leave),
    "cut": (_cut, _leave),
    "read-only": (_freeze, _thaw),
    "a file in its place": (_in_the_way, Path.unlink),
}


@pytest.mark.parametrize("rotated", [False, True], ids=["grows", "rotated"])
@pytest.mark.parametrize("while_down", [False, True], ids=["while it follows", "while it is down"])
@pytest.mark.parametrize("damage", _DAMAGES)
def test_receipts_may_be_damaged(
    damage: str, while_down: bool, rotated: bool, log: Path, figure: Callable[[str, object], None]
) -> None:
    """Nothing is missing, and no id has two spans; some may come again, the same."""
    lines = _SAMPLE.read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    log.write_bytes(b"".join(lines[:middle]))
    here, directory, kept = _there(_SAMPLE), Receipts(log).directory, Kept()
    hurt, heal = _DAMAGES[damage]

    def grow() -> None:
        if rotated:
            log.rename(log.with_suffix(".jsonl.1"))
        with log.open("ab") as file:
            file.write(b"".join(lines[middle:]))

    def damaged() -> None:
        hurt(directory)

    steps = [_nothing] if while_down else [damaged, grow, _nothing, _nothing]
    # Where it cannot keep what it sends it says so, and ends.
    with contextlib.suppress(OSError):
        _follow(log, kept, until=Until.STOPPED, processes=here, wait=Steps(*steps))
    if while_down:
        damaged()
    heal(directory)
    if while_down:
        grow()
    elif log.stat().st_size < len(b"".join(lines)) and not log.with_suffix(".jsonl.1").exists():
        grow()  # it had ended before
    _follow(log, kept)
    again = _each_once_or_the_same(kept)
    expected = set(replayed_spans(_SAMPLE))
    # Of a file that was rotated away nobody knows any more where nothing tells of it.
    if not (rotated and damage in ("deleted", "garbled", "cut", "a file in its place")):
        assert set(map(plain, kept.spans)) == expected
    else:
        assert _ids(list(map(plain, kept.spans))) >= _ids(replayed_spans(log))
    figure("sent again", again)


def _rename(log: Path) -> None:
    log.rename(log.with_suffix(".jsonl.1"))


def _rename_twice(log: Path) -> None:
    log.rename(log.with_suffix(".jsonl.2"))
    log.write_bytes(b"")
    log.rename(log.with_suffix(".jsonl.1"))


def _rename_and_delete(log: Path) -> None:
    log.unlink()


def _copy_and_truncate(log: Path) -> None:
    shutil.copy(log, log.with_suffix(".jsonl.1"))
    os.truncate(log, 0)


@pytest.mark.parametrize("caught_up", [True, False], ids=["caught up", "stopped at once"])
@pytest.mark.parametrize(
    "rotate",
    [_rename, _rename_twice, _rename_and_delete, _copy_and_truncate],
    ids=lambda way: way.__name__.strip("_"),
)
def test_a_log_may_be_rotated_while_its_follower_is_down(
    rotate: Callable[[Path], None],
    caught_up: bool,
    log: Path,
    figure: Callable[[str, object], None],
) -> None:
    """What is still in a file of that name, or of a rotated one, arrives; no id has two spans."""
    whole = write_log(log, simulate(7, runs=1, steps=400)).read_bytes()
    reference = log.with_name("whole.json")
    reference.write_bytes(whole)
    here, kept = _there(log), Kept()
    cut = whole.find(b"\n", len(whole) * 3 // 4) + 1
    log.write_bytes(whole[:cut])
    if caught_up:
        _follow(log, kept, processes=here)
    else:
        _follow(log, kept, until=Until.STOPPED, processes=here, wait=lambda _: True)
    rotate(log)
    with log.open("ab") as file:
        file.write(whole[cut:])
    _follow(log, kept)
    again = _each_once_or_the_same(kept)
    spans = list(map(plain, kept.spans))
    figure("spans, sent again", f"{len(set(spans)):,}, {again}")
    assert again == 0
    if rotate is _rename_and_delete:
        # What began in the file that is gone is shown as far as it can be.
        work = [span for span in replayed_spans(log) if span.name != "rl.run"]
        assert _ids(spans) >= _ids(work)
    else:
        assert set(spans) == set(replayed_spans(reference))


def test_clocks_that_go_backwards_change_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    """A run recorded while its clock jumps, and followed in parts, has the spans of its replay."""
    log = folder / "log.jsonl"
    chance = random.Random(5)
    now = 1_790_000_000_000_000_000
    backwards = 0

    def clock() -> int:
        nonlocal now, backwards
        step = chance.choice((1_000, 1_000_000, 10**9, 10**9, -(10**9), -3_600 * 10**9))
        backwards += step < 0
        now += step
        return now

    monkeypatch.setattr("otel_rollout_trace.recorder._now_ns", clock)
    with RolloutTrace(log) as trace:
        for event in simulate(5, runs=1, steps=60):
            fields = {
                key: value for key, value in event.items() if key not in ("t", "run", "event")
            }
            if event["event"] != "trace_opened":
                trace.emit(event["event"], **fields)
    times = [event["t"] for event in read_events(log)]
    assert times != sorted(times)
    whole, kept, part = log.read_bytes(), Kept(), folder / "part.jsonl"
    for third in (1, 2):
        part.write_bytes(whole[: len(whole) * third // 3])
        _follow(part, kept, processes=_there(log))
    part.write_bytes(whole)
    _follow(part, kept, silence=1)
    assert Counter(map(plain, kept.spans)) == Counter(replayed_spans(log))
    figure("steps backwards, spans", f"{backwards}, {len(kept.spans):,}")


def test_hundreds_of_runs_in_a_file_are_each_followed_to_their_end(
    log: Path, figure: Callable[[str, object], None]
) -> None:
    """Some are taken to be over and come back later; none is missing, no id comes twice."""
    runs = 300
    events: list[dict[str, Any]] = []
    for number in range(runs):
        own = {"run": f"{number:032x}"}
        ids = {"group_id": "g", "attempt_id": "a"}
        events.append({"t": 1.0 + number, **own, "event": "trace_opened", "pid": 2**22 + 1})
        events.append({"t": 1.1 + number, **own, "event": "attempt_dispatched", **ids})
    for number in range(0, runs, 7):
        own = {"run": f"{number:032x}"}
        events.append(
            {
                "t": 5_000.0 + number,
                **own,
                "event": "attempt_sealed",
                "group_id": "g",
                "attempt_id": "a",
            }
        )
    lines = [encode_line(event) + b"\n" for event in events]
    kept = Kept()
    started = time.monotonic()
    for end in (len(lines) // 3, len(lines) // 2, len(lines)):
        log.write_bytes(b"".join(lines[:end]))
        found = _follow(log, kept, silence=1)
    took = time.monotonic() - started
    assert found.runs == runs
    assert _each_once_or_the_same(kept) == 0
    # A run that came back has a segment more than one that never seemed to be over.
    spans, expected = list(map(plain, kept.spans)), replayed_spans(log)
    known = _ids(expected)
    assert _ids(spans) >= known
    assert {span.name for span in spans if (span.trace_id, span.span_id) not in known} == {"rl.run"}
    at_once, fresh = Kept(), log.with_name("fresh.jsonl")
    shutil.copy(log, fresh)
    _follow(fresh, at_once, silence=1)
    assert Counter(map(plain, at_once.spans)) == Counter(replayed_spans(log))
    figure("runs, spans, seconds", f"{runs}, {len(kept.spans):,}, {took:.1f}")


def test_a_line_that_is_longer_than_a_block_does_not_end_a_run(log: Path) -> None:
    """Where nothing else is in the block that was read, the file has not ended there."""
    events = [*simulate(4, runs=1, steps=5)]
    events[3]["note"] = "y" * 1_500_000
    write_log(log, events)
    run, kept = events[0]["run"], Kept()
    note_closed(Receipts(log).directory, run)
    _follow(log, kept, until=Until.WRITERS_GONE)
    assert Counter(map(plain, kept.spans)) == Counter(replayed_spans(log))
    found = ids_of_log(log)
    assert len(kept.spans) == found.total()
