"""Reading logs: batch age of a long one, open attempts in memory, replay."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from otel_rollout_trace.replaying import replay_into

from .children import run_child
from .report import Report, median_ratio, take_turns
from .workload import write_log

_MB: Final = 1e6
_MEASURED: Final = ("cpu", "wall", "peak")


@pytest.mark.timeout(400)
def test_batch_age(benchmark: BenchmarkFixture, report: Report, million_events: Path) -> None:
    sides: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def run(work: str, times: int) -> None:
        measured = [run_child(work, million_events) for _ in range(times)]
        sides[work].append({key: median(each[key] for each in measured) for key in _MEASURED})
        assert measured[0]["result"] == results.setdefault("ages", measured[0]["result"])

    results: dict[str, Any] = {}
    # The shorter one more often: what disturbs it is longer than it is.
    take_turns(benchmark, lambda: run("ages_streamed", 5), lambda: run("ages_of_list", 1), rounds=3)
    ours, theirs = sides["ages_streamed"], sides["ages_of_list"]
    titles = {"ages_streamed": "batch_age_by_step", "ages_of_list": "list of json.loads"}
    report.table(
        ("batch age, 1,000,000 events", "CPU s", "wall s", "peak MB"),
        [
            (
                titles[work],
                *(f"{median(each[key] for each in sides[work]):.2f}" for key in ("cpu", "wall")),
                f"{median(each['peak'] for each in sides[work]) / _MB:.0f}",
            )
            for work in titles
        ],
    )
    cpu, wall, _ = (
        median_ratio([each[key] for each in theirs], [each[key] for each in ours])
        for key in _MEASURED
    )
    report.target("batch age: times as fast (CPU, wall)", ">= 10", f"{cpu:.1f}, {wall:.1f}")
    peak = max(each["peak"] for each in ours) / _MB
    report.target("batch age: peak memory", "< 80 MB", f"{peak:.0f} MB")


@pytest.mark.skipif(sys.platform != "linux", reason="reads what /proc says")
def test_open_attempts(benchmark: BenchmarkFixture, report: Report) -> None:
    sizes: list[float] = []

    def run() -> None:
        result = run_child("open_attempts", 100_000)["result"]
        assert result["open"] == 100_000
        sizes.append(result["bytes"])

    take_turns(benchmark, run, lambda: None, rounds=1)
    report.target("memory of an open attempt, of 100,000", "< 2,000 B", f"{median(sizes):,.0f} B")


class _Nowhere:
    """Takes spans and forgets them."""

    def emit(self, record: object) -> None:
        pass

    def flush(self) -> None:
        pass


def test_replay(benchmark: BenchmarkFixture, report: Report, tmp_path: Path) -> None:
    log = tmp_path / "rollout_trace.jsonl"
    events = write_log(log, 20_000)
    seconds: dict[str, list[float]] = defaultdict(list)

    def decode_only() -> None:
        started = time.process_time()
        with log.open(encoding="utf-8") as lines:
            for line in lines:
                json.loads(line)
        seconds["json.loads of each line"].append(time.process_time() - started)

    def replay() -> None:
        started = time.process_time()
        assert replay_into(log, _Nowhere()).events == events
        seconds["replay, no export"].append(time.process_time() - started)

    take_turns(benchmark, replay, decode_only, rounds=7)
    decoding = seconds["json.loads of each line"]
    report.table(
        ("replay", "events a CPU second", "x json.loads"),
        [
            (side, f"{events / median(each):,.0f}", f"{median_ratio(decoding, each):.2f}")
            for side, each in seconds.items()
        ],
    )
