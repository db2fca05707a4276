"""What recording costs a training loop, with a live receiver: each way to do it, at three rates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from .report import Report, take_turns
from .training import MODES

_TITLES: Final = {
    "off": "off",
    "file": "file only",
    "sidecar": "side-car",
    "process": "in process",
    "reference": "reference",
    "sdk": "SDK, OTLP exporter",
}
_ROUNDS: Final = 2
_SECONDS: Final = 1.0
_HERE: Final = Path(__file__).parent


@pytest.fixture
def receiver() -> Iterator[str]:
    drain = subprocess.Popen(
        [sys.executable, str(_HERE / "drain.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert drain.stdout is not None
    yield f"http://127.0.0.1:{drain.stdout.readline().strip()}"
    drain.communicate()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("rate", [200, 2_000, 20_000])
def test_a_training_loop(
    rate: int, benchmark: BenchmarkFixture, report: Report, tmp_path: Path, receiver: str
) -> None:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver

    def measure(mode: str) -> None:
        directory = tmp_path / f"{mode}-{len(found[mode])}"
        directory.mkdir()
        program = [sys.executable, "-m", "tests.benchmarks.training"]
        done = subprocess.run(
            [*program, mode, str(rate), str(_SECONDS), str(directory)],
            cwd=_HERE.parents[1],
            env=environ,
            check=True,
            capture_output=True,
        )
        found[mode].append(json.loads(done.stdout))

    def others() -> None:
        for mode in MODES:
            if mode != "file":
                measure(mode)

    take_turns(benchmark, lambda: measure("file"), others, rounds=_ROUNDS)
    off = {key: median(each[key] for each in found["off"]) for key in found["off"][0]}

    def row(mode: str) -> list[str]:
        middle = {key: median(each[key] for each in found[mode]) for key in off}
        return [
            *(f"{middle[key] - off[key]:.1f}" for key in ("caller", "process")),
            *(f"{middle[key]:.2f}" for key in ("p50", "p99", "max")),
        ]

    report.table(
        (f"asyncio, {rate}/s", "caller µs", "process µs", "lag ms p50", "p99", "max"),
        [(title, *row(mode)) for mode, title in _TITLES.items()],
    )
