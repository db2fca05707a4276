"""Processes that are killed at any moment."""

from __future__ import annotations

import random
import shutil
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest
from support.otlp_receiver import OtlpReceiver, nobody

from otel_rollout_trace.receipts import Receipts

from .common import eventually, ids_by_run, ids_of_log, outcomes_at, program, running, side_cars

pytestmark = [pytest.mark.trial, pytest.mark.timeout(240)]

_THREADS: Final = 8
_SLOTS: Final = 2_000
_AT_ONCE: Final = 3

#: What a kill may take: 20 ms that events gather, and the write itself.
_LOSS_S: Final = 0.05


class Case(NamedTuple):
    """How a process is killed.

    Attributes:
        export: as of `configure`, or ``file``.
        after: seconds from its first event to the kill.
        burst: events that it emits at once before.
        resume: whether it goes on from an earlier run of a long log.
    """

    export: str
    after: float
    burst: int = 0
    resume: bool = False

    @property
    def kind(self) -> str:
        """What it is called in the table."""
        more = f", after {self.burst:,} at once" if self.burst else ""
        return self.export + (more or (", with a long log" if self.resume else ""))


class Killed(NamedTuple):
    """What a kill left.

    Attributes:
        acknowledged: events that were emitted before it.
        missing: those of them that are not in the file, and are older than a kill may take.
        oldest: how long before the kill the oldest one was emitted that is not in the file.
        stalled: for how long the machine let no thread of the process run, at the most.
        odd: what else is wrong.
    """

    acknowledged: int
    missing: int
    oldest: float
    stalled: float
    odd: list[str]


def _kill(case: Case, folder: Path, endpoint: str, earlier: Path | None = None) -> Killed:
    log, times = folder / "rollout_trace.jsonl", folder / "times"
    skipped = 0
    if earlier is not None and case.resume:
        shutil.copy(earlier, log)
        skipped = log.stat().st_size
    times.write_bytes(bytes(8 * _SLOTS * (1 + _THREADS)))
    numbers = (_THREADS, _SLOTS, case.burst, int(case.resume))
    with running(program("acknowledging", log, times, case.export, endpoint, *numbers)) as process:
        eventually(lambda: _row(times, 1)[0] or process.poll() is not None, "an event")
        time.sleep(case.after)
        killed_at = time.monotonic()
        process.kill()
        _, err = process.communicate()
    assert not err, err
    return _examine(log.read_bytes()[skipped:] if log.exists() else b"", times, killed_at)


def _row(times: Path, row: int) -> tuple[float, ...]:
    with times.open("rb") as file:
        file.seek(8 * _SLOTS * row)
        return struct.unpack(f"{_SLOTS}d", file.read(8 * _SLOTS))


def _examine(text: bytes, times: Path, killed_at: float) -> Killed:
    *lines, torn = text.split(b"\n")
    odd = [f"ends with {torn[:40]!r}"] if torn.startswith(b"{") and torn.endswith(b"}") else []
    numbers: dict[int, list[int]] = {thread: [] for thread in range(_THREADS)}
    for line in lines:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError:
            odd.append(f"a broken line: {line[:80]!r}")
            continue
        if "number" in event:
            numbers[event["thread"]].append(event["number"])
    ticks = [tick for tick in _row(times, 0) if tick and tick <= killed_at]
    recent = [tick for tick in ticks if tick > killed_at - 0.5]
    stalled = max((b - a for a, b in zip(recent, [*recent[1:], killed_at], strict=True)), default=0)
    acknowledged = missing = 0
    oldest = 0.0
    for thread, found in numbers.items():
        if found != list(range(len(found))):
            odd.append(f"thread {thread} is out of order")
        emitted = [at for at in _row(times, 1 + thread) if at and at <= killed_at]
        acknowledged += len(emitted)
        for at in emitted[len(found) :]:
            oldest = max(oldest, killed_at - at)
            missing += killed_at - at > _LOSS_S + stalled
    return Killed(acknowledged, missing, oldest, stalled, odd)


def _cases() -> list[Case]:
    chance = random.Random(20_260)
    return [
        *(Case("file", chance.uniform(0, 0.6)) for _ in range(78)),
        *(Case("process", chance.uniform(0, 0.6)) for _ in range(10)),
        *(Case("process", chance.uniform(0, 0.8), burst=20_000) for _ in range(8)),
        *(Case("process", chance.uniform(0, 0.6), resume=True) for _ in range(4)),
    ]


def _write_earlier_run(path: Path) -> None:
    names = ("attempt_dispatched", "attempt_sealed", "group_published")
    with path.open("w") as file:
        for number in range(200_000):
            which = number // 3
            file.write(
                f'{{"t":{1_700_000_000 + number / 100},"run":"{"a" * 32}",'
                f'"event":"{names[number % 3]}","group_id":"g{which}","attempt_id":"a{which}",'
                '"tokens":10,"prompt_id":1,"generation_index":0,"weight_version":3}\n'
            )


def test_what_was_emitted_is_in_the_file_whenever_a_process_is_killed(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """All but the last moments; lines are whole, and in the order of each thread.

    Also while spans are made of a burst, and while a long log of an earlier run is read.
    """
    cases = _cases()
    earlier = folder / "earlier.jsonl"
    _write_earlier_run(earlier)
    folders = [folder / str(number) for number in range(len(cases))]
    for each in folders:
        each.mkdir()
    with nobody() as endpoint, ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(
            pool.map(lambda case, where: _kill(case, where, endpoint, earlier), cases, folders)
        )
    figure("kills", len(found))
    figure("events acknowledged", sum(each.acknowledged for each in found))
    kinds: dict[str, list[Killed]] = {}
    for case, killed in zip(cases, found, strict=True):
        kinds.setdefault(case.kind, []).append(killed)
    for name, of in kinds.items():
        oldest, stalled = max((each.oldest, each.stalled) for each in of)
        figure(
            f"{name}: oldest event not in the file",
            f"{oldest * 1000:.0f} ms (machine stalled {stalled * 1000:.0f} ms)",
        )
    assert min(each.acknowledged for each in found) > 0
    assert [(case, each) for case, each in zip(cases, found, strict=True) if each.odd] == []
    assert [(case, each) for case, each in zip(cases, found, strict=True) if each.missing] == []


def test_a_side_car_ends_what_a_killed_process_left_open(
    folder: Path, receiver: OtlpReceiver, figure: Callable[[str, object], None]
) -> None:
    """Each span of the log arrives once: ended attempts as they ended, open ones interrupted."""
    chance = random.Random(12)
    cases = [Case("sidecar", chance.uniform(0, 1.5)) for _ in range(12)]
    folders = [folder / str(number) for number in range(len(cases))]
    for each in folders:
        each.mkdir()
    endpoint = receiver.endpoint("grpc")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda case, where: _kill(case, where, endpoint), cases, folders))
    eventually(lambda: not side_cars(folder), "the end of the side-cars", timeout=60)
    interrupted = total = 0
    arrived = ids_by_run(receiver)
    outcomes = outcomes_at(receiver)
    for where, killed in zip(folders, found, strict=True):
        assert not killed.odd
        assert not killed.missing
        log = where / "rollout_trace.jsonl"
        if not log.exists() or not log.stat().st_size:
            continue
        lines = [msgspec.json.decode(line) for line in log.read_bytes().split(b"\n")[:-1]]
        run = lines[0]["run"]
        expected = ids_of_log(log)
        assert arrived[run] == expected
        assert Receipts(log).of(run).done
        started = {line["attempt_id"] for line in lines if "attempt_id" in line}
        sealed = {line["attempt_id"] for line in lines if line["event"] == "attempt_sealed"}
        ends = {each: "sealed" if each in sealed else "interrupted" for each in started}
        assert outcomes[run] == ends
        interrupted += len(started - sealed)
        total += len(expected)
    assert interrupted
    figure("kills", len(found))
    figure("spans at the receiver, each once", total)
    figure("of them interrupted", interrupted)
