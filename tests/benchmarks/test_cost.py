"""What stops cost, of a long log: against decoding its lines and doing nothing with them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from .children import run_child
from .report import Report, median_ratio, take_turns

_MB: Final = 1e6


@pytest.mark.timeout(400)
def test_cost(benchmark: BenchmarkFixture, report: Report, million_events: Path) -> None:
    sides: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def run(work: str) -> None:
        sides[work].append(run_child(work, million_events))

    take_turns(benchmark, lambda: run("cost_streamed"), lambda: run("lines_decoded"), rounds=3)
    ours, theirs = sides["cost_streamed"], sides["lines_decoded"]
    assert ours[0]["result"] == theirs[0]["result"]
    titles = {"cost_streamed": "cost_of", "lines_decoded": "json.loads of each line"}
    report.table(
        ("cost, 1,000,000 events", "CPU s", "peak MB"),
        [
            (
                title,
                f"{median(each['cpu'] for each in sides[work]):.2f}",
                f"{median(each['peak'] for each in sides[work]) / _MB:.0f}",
            )
            for work, title in titles.items()
        ],
    )
    ratio = median_ratio([each["cpu"] for each in ours], [each["cpu"] for each in theirs])
    report.target("cost: x json.loads of each line (CPU)", "<= 3", f"{ratio:.2f}")
    peak = max(each["peak"] for each in ours) / _MB
    report.target("cost: peak memory", "< 200 MB", f"{peak:.0f} MB")
