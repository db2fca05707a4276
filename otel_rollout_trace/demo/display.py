"""What people see: a board in a terminal, a line for each step elsewhere, a summary."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from otel_rollout_trace import batch_age_by_step, read_events, replay

from .engine import Engine
from .rollouts import Rollouts
from .training import ReplayBuffer, StepReport

__all__ = ["Display", "print_summary", "say", "say_killed", "shown", "sparkline"]

_TREND_STEPS: Final = 40
_BARS: Final = "▁▂▃▄▅▆▇█"


def _console() -> Console:
    return Console(highlight=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line."""
    _console().print(escape(text))
    sys.stdout.flush()


def say_killed(text: str) -> None:
    """Print a line when a process was killed that may have had the terminal to itself."""
    console = _console()
    if console.is_terminal:
        console.show_cursor()
        console.print()
    say(text)


def sparkline(values: Sequence[float], top: float) -> str:
    """Values from 0 to ``top`` as a row of bars."""
    last = len(_BARS) - 1
    return "".join(_BARS[max(0, min(last, round(value / top * last)))] for value in values)


class Display:
    """A line for each step; where there is no terminal, this is all."""

    def __init__(self, steps: int | None) -> None:
        self.steps = steps
        self.reports: list[StepReport] = []
        self.engine: Engine | None = None
        self.rollouts: Rollouts | None = None
        self.buffer: ReplayBuffer | None = None

    def watch(self, engine: Engine, rollouts: Rollouts, buffer: ReplayBuffer) -> None:
        """Tell what is going on there."""
        self.engine, self.rollouts, self.buffer = engine, rollouts, buffer

    def stepped(self, report: StepReport) -> None:
        """Tell what came of a step."""
        self._keep(report)
        calls = len(self.engine.running) if self.engine else 0
        waiting = len(self.buffer.groups) if self.buffer else 0
        say(
            f"step {report.step:3}  reward {report.reward:.3f}  "
            f"batch age {report.batch_age:.3f}  loss {report.loss:+.4f}  "
            f"{calls:3} calls  {waiting} waiting"
        )

    def note(self, text: str) -> None:
        """Print a line of something else."""
        say(text)

    def _keep(self, report: StepReport) -> None:
        self.reports = [*self.reports[-_TREND_STEPS + 1 :], report]


class Board(Display):
    """What is going on now, in place."""

    def __init__(self, steps: int | None, console: Console) -> None:
        super().__init__(steps)
        self.live = Live(
            console=console, get_renderable=self._render, refresh_per_second=8, transient=False
        )

    def stepped(self, report: StepReport) -> None:
        """Tell what came of a step."""
        self._keep(report)

    def note(self, text: str) -> None:
        """Print a line of something else, above the board."""
        self.live.console.print(escape(text))

    def _render(self) -> RenderableType:
        last = self.reports[-1] if self.reports else None
        step = last.step if last else 0
        trends = _grid(17)
        bar: RenderableType = ""
        if self.steps is not None:
            bar = ProgressBar(total=self.steps, completed=step, width=_TREND_STEPS)
        trends.add_row("step", f"{step}" + (f" of {self.steps}" if self.steps else ""), bar)
        if last is not None:
            rewards = [report.reward for report in self.reports]
            ages = [report.batch_age for report in self.reports]
            trends.add_row("reward", f"{last.reward:.3f}", Text(sparkline(rewards, 1), "green"))
            age = Text(sparkline(ages, max(3.0, *ages)), "yellow")
            trends.add_row("batch age", f"{last.batch_age:.3f} updates", age)
        now = _grid()
        if self.engine and self.rollouts and self.buffer:
            calls, groups = len(self.engine.running), len(self.rollouts.open)
            now.add_row("rollouts", f"{_many(calls, 'call')} running, of {_many(groups, 'group')}")
            now.add_row("buffer", f"{_many(len(self.buffer.groups), 'group')} waiting")
            now.add_row("attempts", _counted(self.rollouts.ended))
        return Group(trends, now)


@contextmanager
def shown(steps: int | None) -> Iterator[Display]:
    """The display that fits where the output goes.

    Args:
        steps: how many there will be; None for no end.
    """
    console = _console()
    if not console.is_terminal:
        yield Display(steps)
        return
    board = Board(steps, console)
    with board.live:
        yield board


def print_summary(log: Path, since: float) -> None:
    """Say what a log's runs came to, from the log alone.

    Args:
        log: the log.
        since: the time when the first of the runs was started, in seconds since the epoch.
    """
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.trace import NoOpTracerProvider

    runs = list(dict.fromkeys(e["run"] for e in read_events(log) if e["t"] >= since))
    steps = {
        event["step"]: event["reward"]
        for event in read_events(log)
        if event["event"] == "step_trained" and event["run"] in runs
    }
    ages = batch_age_by_step(event for event in read_events(log) if event["run"] in runs)
    attempts: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for run in runs:
        # Nothing is sent, only counted.
        found = replay(
            log, run=run, tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider()
        )
        attempts += found.attempts
        groups += found.groups
        tokens += found.tokens
    console = _console()
    rewards = list(steps.values())
    summary = _grid()
    if rewards:
        summary.add_row("reward", f"{rewards[0]:.3f} in the first step, {rewards[-1]:.3f} at last")
    if ages:
        mean = sum(ages.values()) / len(ages)
        summary.add_row("batch age", f"mean {mean:.3f}, max {max(ages.values()):.3f} updates")
    summary.add_row("attempts", _outcomes(attempts))
    summary.add_row("groups", _outcomes(groups))
    summary.add_row("tokens", _outcomes(tokens))
    console.print(
        f"\n{_many(len(rewards), 'step')} in {_many(len(runs), 'run')}: {escape(str(log))}"
    )
    console.print(summary, soft_wrap=False)
    console.print("\nnext:")
    for command in ("batch-age", "check", "replay --dry-run"):
        console.print(f"  otel-rollout-trace {command} {escape(shlex.quote(str(log)))}")
    sys.stdout.flush()


def _grid(*widths: int) -> Table:
    """Rows of a name and something, the columns before the last of given widths."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", width=9)
    for width in widths:
        grid.add_column(width=width)
    grid.add_column()
    return grid


def _outcomes(counts: Counter[str]) -> str:
    return f"{sum(counts.values()):,}: {_counted(counts)}" if counts else "none"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.most_common())


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
