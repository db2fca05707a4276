"""What recording an event costs: the caller, and the whole process until all is written."""

from __future__ import annotations

import gc
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from .report import Report, median_ratio, take_turns
from .sides import SIDES, as_attributes
from .workload import Written, calls, written

_ROWS: Final = {
    "reference": "reference",
    "file": "file only",
    "spans": "spans, own provider",
    "tracer": "spans, any provider",
    "span": "SDK span, 1 event",
}

#: A side, what it is compared with, and what is aimed at.
_LIMITS: Final = (
    ("file", "reference", "<= 0.200"),
    ("spans", "reference", "<= 0.500"),
    ("file", "span", "<= 0.067"),
)


class Shape(NamedTuple):
    """How events come.

    Attributes:
        name: what it is called.
        events: how many of them in a round.
        interval: seconds from one to the next.
        rounds: how often each side is measured.
    """

    name: str
    events: int
    interval: float
    rounds: int


# Many short rounds: what disturbs a shared machine lasts longer than a round of all sides.
# Long enough that opening a file and starting a thread do not count.
_BURST: Final = Shape("burst", events=10_000, interval=0.0, rounds=15)
# As training emits: a thread that writes is asleep when the next one comes.
_PACED: Final = Shape("2000/s", events=2_000, interval=1 / 2_000, rounds=7)


class Cost(NamedTuple):
    """Of one event, in microseconds.

    Attributes:
        caller: CPU time of the thread that emits.
        wall: how long it is kept.
        process: CPU time of the process, until everything is written and projected.
    """

    caller: float
    wall: float
    process: float


class Lap:
    """Measures all sides in turn, and keeps what each cost."""

    def __init__(self, shape: Shape, directory: Path) -> None:
        self._shape = shape
        self._directory = directory
        self._files = itertools.count()
        batch = calls(shape.events)
        lines = written(batch)
        self._lines: dict[str, Sequence[Written]] = defaultdict(lambda: lines)
        self._lines["span"] = written(map(as_attributes, batch))
        # What the measuring costs. A call of `emit`, even of one that does nothing, does
        # not belong to that.
        self._lines["idle"] = [(_nothing, values) for _, values in lines]
        self._idle = Cost(0.0, 0.0, 0.0)
        self.costs: dict[str, list[Cost]] = defaultdict(list)

    def measure_others(self) -> None:
        """One round of every other side."""
        for name in SIDES:
            if name != "file":
                self._measure(name)

    def measure_file(self) -> None:
        """One round of the side that pytest-benchmark times."""
        self._measure("file")

    def _measure(self, name: str) -> None:
        path = self._directory / f"{next(self._files)}.jsonl"
        side = SIDES[name](path)
        gc.collect()
        process = time.process_time()
        caller, wall = _emit_all(side.emit, self._lines[name], self._shape.interval)
        side.close()
        process = time.process_time() - process
        if path.exists():
            assert path.read_bytes().count(b"\n") >= self._shape.events  # nothing was dropped
            path.unlink()
        cost = Cost(*(seconds * 1e6 / self._shape.events for seconds in (caller, wall, process)))
        if name == "idle":
            self._idle = cost
        else:
            self.costs[name].append(Cost(*(a - b for a, b in zip(cost, self._idle, strict=True))))


def _nothing(emit: Callable[..., None], *values: object) -> None:
    pass


def _emit_all(
    emit: Callable[..., None], batch: Sequence[Written], interval: float
) -> tuple[float, float]:
    """Emit them; the seconds of CPU this thread took, and those that `emit` kept it."""
    clock, sleep, wall = time.perf_counter, time.sleep, 0.0
    caller, due = time.thread_time(), clock()
    for line, values in batch:
        now = clock()
        if interval:
            due += interval
            if due > now:
                sleep(due - now)
                now = clock()
        line(emit, *values)
        wall += clock() - now
    return time.thread_time() - caller, wall


def _ratios(ours: Sequence[Cost], theirs: Sequence[Cost]) -> str:
    """Of the caller's CPU and of the process's."""
    caller = median_ratio([cost.caller for cost in ours], [cost.caller for cost in theirs])
    process = median_ratio([cost.process for cost in ours], [cost.process for cost in theirs])
    return f"{caller:.3f} / {process:.3f}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", [_BURST, _PACED], ids=lambda shape: shape.name)
def test_events(
    shape: Shape,
    benchmark: BenchmarkFixture,
    report: Report,
    tmp_path: Path,
) -> None:
    lap = Lap(shape, tmp_path)
    gc.freeze()  # collections do not look at what the test holds ready
    take_turns(benchmark, lap.measure_file, lap.measure_others, rounds=shape.rounds)
    gc.unfreeze()
    costs = lap.costs
    ratios = {
        (side, other): _ratios(costs[side], costs[other])
        for side in _ROWS
        for other in ("reference", "span")
    }
    report.table(
        (f"{shape.name}: µs an event", "caller", "wall", "CPU", "x reference", "x SDK span"),
        [
            (
                title,
                *(f"{median(values):.1f}" for values in zip(*costs[side], strict=True)),
                ratios[side, "reference"],
                ratios[side, "span"],
            )
            for side, title in _ROWS.items()
        ],
    )
    for side, other, limit in _LIMITS:
        what = f"{shape.name}: {_ROWS[side]} / {_ROWS[other]}"
        report.target(what, limit, ratios[side, other])
