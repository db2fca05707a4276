from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from support.otlp_receiver import OtlpReceiver

from .common import side_cars
from .figures import Figures

_FIGURES: Final = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = Figures()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    text = config.stash[_FIGURES].text()
    if text:
        terminalreporter.write_sep("=", "trials")
        terminalreporter.write_line(text)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Notes a figure of the test for the table."""
    figures, trial = request.config.stash[_FIGURES], request.node.name.removeprefix("test_")
    return lambda what, value: figures.note(trial, what, value)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that is gone afterwards: trials leave a lot. Its side-cars are ended."""
    with tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True) as made:
        yield Path(made)
        for pid in side_cars(Path(made)):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def log(folder: Path) -> Path:
    return folder / "rollout_trace.jsonl"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as running:
        yield running
