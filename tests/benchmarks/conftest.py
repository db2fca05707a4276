from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .report import Report
from .workload import write_log

_REPORT: Final = pytest.StashKey[Report]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_REPORT] = Report()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    text = config.stash[_REPORT].text()
    if text:
        terminalreporter.write_sep("=", "ratios, medians of interleaved rounds")
        terminalreporter.write_line(text)
        if file := os.environ.get("BENCHMARK_TABLE"):
            Path(file).write_text(text + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Report:
    return pytestconfig.stash[_REPORT]


@pytest.fixture(scope="session")
def million_events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("log") / "rollout_trace.jsonl"
    write_log(path, 1_000_000)
    yield path
    path.unlink()  # 200 MB, which pytest would keep for three sessions
