"""``cost``: what it was asked for, and how its report is shown in eighty columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..cost import Cost, Ledger, RunCost, StepAge, Stop, cost_of
from ..cost.words import price_of
from ..events import Event, Vocabulary
from ..journal import LogError, LogReader
from .tables import duration, many, reading

__all__ = ["CostOptions", "show_cost"]

# What is printed; ``--json`` has all.
_MOST_STOPS: Final = 10
_MOST_STEPS: Final = 30
_MOST_REASONS: Final = 20

_BAR: Final = 40
_AGE_BAR: Final = 24

_COLOURS: Final = {
    "trained": "green",
    "waiting": "cyan",
    "refused": "yellow",
    "abandoned": "magenta",
    "discarded": "blue",
    "lost": "red",
}
_REASONS: Final = {
    "in_flight": "in flight at the stop",
    "not_trained": "not trained by then",
    "training_undone": "trained, and undone by the restore",
    "": "no reason given",
}


@dataclass
class CostOptions:
    """What ``cost`` was asked for.

    Attributes:
        run: the beginning of a run's id; None for every run.
        steps: a range of steps, ``A:B``; None for all.
        as_json: whether it prints JSON.
        vocabulary: which words mean which row.
    """

    run: str | None
    steps: str | None
    as_json: bool
    vocabulary: Vocabulary


def show_cost(path: Path, options: CostOptions) -> None:
    """Print what the stops of a log cost.

    Raises:
        LogError: if the file is no log, or has no such run.
        ValueError: for a range that is none.
    """
    first, last = _range(options.steps)
    reader = LogReader(path, required=True)
    with reading(path) as progress:
        cost = cost_of(_watched(reader, progress), vocabulary=options.vocabulary)
    run = _whole_id(path, cost.runs, options.run)
    shown = _chosen(cost, run, first, last)
    if options.as_json:
        bad_lines = {"path": str(path), "bad_lines": reader.bad_lines}
        print(json.dumps({**bad_lines, **shown.to_dict()}))
        return
    about = f", run {run[:8]}" if run else ""
    if options.steps is not None:
        about += f", steps {options.steps}"
    numbers = {stop.run: number for number, stop in enumerate(cost.stops, 1)}
    _Page(path, shown, about, numbers, reader.bad_lines).show()


def _watched(reader: LogReader, progress: Callable[[int], object]) -> Iterator[Event]:
    for number, event in enumerate(reader):
        if not number % 10_000:
            progress(reader.position)
        yield event


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    low, colon, high = text.partition(":")
    try:
        first, last = (int(low) if low else None), (int(high) if high else None)
    except ValueError:
        raise ValueError(f"--steps {text!r} is not like A:B") from None
    if not colon:
        last = first
    if first is None and last is None:
        raise ValueError(f"--steps {text!r} is not like A:B")
    if first is not None and last is not None and first > last:
        raise ValueError(f"--steps {text!r} ends before it begins")
    return first, last


def _whole_id(path: Path, runs: list[RunCost], beginning: str | None) -> str | None:
    """The one run of a log whose id begins so."""
    if beginning is None:
        return None
    found = [run.run for run in runs if run.run.startswith(beginning)]
    if beginning in found:
        return beginning
    if not found:
        raise LogError(f"{path}: no run begins with {beginning!r}")
    if len(found) > 1:
        raise LogError(f"{path}: {len(found)} runs begin with {beginning!r}")
    return found[0]


def _chosen(cost: Cost, run: str | None, first: int | None, last: int | None) -> Cost:
    """The part of a report that is about a run and a range of steps."""
    if run is None and first is None and last is None:
        return cost

    def is_in(step: StepAge) -> bool:
        if step.step is None:
            return first is None and last is None
        return (first is None or step.step >= first) and (last is None or step.step <= last)

    runs = [each for each in cost.runs if run in (None, each.run)]
    for each in runs:
        each.ledger = cost.ledger_of(run=each.run, first=first, last=last)
    return Cost(
        stops=[stop for stop in cost.stops if run in (None, stop.run)],
        ledger=cost.ledger_of(run=run, first=first, last=last),
        runs=runs,
        steps=[step for step in cost.steps if run in (None, step.run) and is_in(step)],
    )


class _Page:
    """The report, as people read it."""

    def __init__(
        self, path: Path, cost: Cost, about: str, numbers: dict[str, int], bad_lines: int
    ) -> None:
        self._path = path
        self._cost = cost
        self._about = about
        self._numbers = numbers
        self._bad_lines = bad_lines
        self._console = Console(highlight=False, emoji=False)
        self._block = "#" if self._console.options.ascii_only else "█"

    def show(self) -> None:
        """Print it."""
        say = self._console.print
        cost = self._cost
        runs, stops = many(len(cost.runs), "run"), many(len(cost.stops), "stop")
        say(f"[bold]{escape(self._path.name)}[/bold]{escape(self._about)}: {stops} in {runs}")
        if self._bad_lines:
            say(f"{many(self._bad_lines, 'bad line')} skipped, or their torn beginning")
        say()
        if not cost.stops:
            say("No run here was stopped and followed by another, so no stop cost anything.\n")
        left_out = len(cost.stops) - _MOST_STOPS
        if left_out > 0:
            say(f"The last {_MOST_STOPS} stops; --json has {left_out:,} earlier ones.\n")
        for stop in cost.stops[-_MOST_STOPS:]:
            self._show_stop(self._numbers[stop.run], stop)
        self._show_ledger(cost.ledger)
        self._show_waste(cost.ledger)
        self._show_steps(cost.steps)

    def _show_stop(self, number: int, stop: Stop) -> None:
        say = self._console.print
        say(f"[bold]Stop {number}[/bold]: {price_of(stop)}\n")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        for name, text in _figures(stop):
            table.add_row(f"  {name}", escape(text))
        say(table)
        say()

    def _show_ledger(self, ledger: Ledger) -> None:
        say = self._console.print
        say(f"[bold]Tokens[/bold]: {ledger.total:,} generated, and what became of them\n")
        percent = ledger.percent()
        table = _table(("", "left"), ("tokens", "right"), ("%", "right"), ("", "left"))
        table.add_column("attempts", justify="right")
        for fate, tokens in ledger.tokens.items():
            table.add_row(
                f"  {fate}",
                f"{tokens:,}",
                f"{percent[fate]:.1f}",
                self._bar(tokens, ledger.total, _BAR, _COLOURS[fate]),
                f"{ledger.attempts[fate]:,}",
            )
        say(table)
        notes = []
        if ledger.repeated:
            notes.append(f"{ledger.repeated:,} on top of the trained were trained again")
        if ledger.resumed:
            notes.append(f"{ledger.resumed:,} were carried into resumed attempts")
        if ledger.uncounted_attempts:
            notes.append(f"{many(ledger.uncounted_attempts, 'attempt')} could not be counted")
        if notes:
            say(f"  {'; '.join(notes)}")
        say()

    def _show_waste(self, ledger: Ledger) -> None:
        if not ledger.waste:
            return
        wasted = sum(waste.tokens for waste in ledger.waste)
        self._console.print(f"[bold]Waste[/bold]: {wasted:,} tokens, by reason\n")
        table = _table(("", "left"), ("tokens", "right"), ("attempts", "right"))
        table.add_column("", no_wrap=True)
        table.add_column("")
        for waste in ledger.waste[:_MOST_REASONS]:
            uncounted = f" ({waste.uncounted:,} not counted)" if waste.uncounted else ""
            reason = waste.reason
            if waste.fate == "lost" or not reason:
                reason = _REASONS.get(reason, reason)
            table.add_row(
                f"  {waste.fate}",
                f"{waste.tokens:,}",
                f"{waste.attempts:,}",
                self._bar(waste.tokens, wasted, 12, _COLOURS[waste.fate]),
                escape(reason + uncounted),
            )
        self._console.print(table)
        left_out = len(ledger.waste) - _MOST_REASONS
        if left_out > 0:
            self._console.print(f"  and {left_out:,} further reasons")
        self._console.print()

    def _show_steps(self, steps: list[StepAge]) -> None:
        say = self._console.print
        if not steps:
            say("No step was trained.")
            return
        shown = steps[-_MOST_STEPS:]
        say("[bold]Batch age[/bold] in weight updates: from generation, and in the queue\n")
        if len(shown) < len(steps):
            left_out = len(steps) - len(shown)
            say(f"  {left_out:,} earlier steps are not shown; --steps A:B shows others\n")
        oldest = max((step.batch_age or 0.0 for step in shown), default=0.0)
        table = _table(
            ("step", "right"), ("age", "right"), ("", "left"), ("gener.", "right"),
            ("queue", "right"), ("tokens", "right"), ("counted", "right"),
        )  # fmt: skip
        table.add_column("")
        followed = {(stop.run, stop.next_run) for stop in self._cost.stops}
        run = shown[0].run
        for step in shown:
            if step.run != run:
                stopped = "stop, " if (run, step.run) in followed else ""
                table.add_row("", "", f"-- {stopped}run {escape(step.run[:8])} --")
                run = step.run
            coverage = "" if step.coverage is None else f"{100 * step.coverage:.0f} %"
            table.add_row(
                "?" if step.step is None else str(step.step),
                _age(step.batch_age),
                self._ages(step, oldest),
                _age(step.batch_age_generation),
                _age(step.batch_age_queue),
                f"{step.tokens:,}",
                coverage,
                "undone" if step.undone else "",
            )
        say(table)

    def _bar(self, part: int, whole: int, width: int, colour: str) -> str:
        length = round(width * part / whole) if whole else 0
        if part and not length:
            length = 1
        return f"[{colour}]{self._block * length}[/{colour}]"

    def _ages(self, step: StepAge, oldest: float) -> str:
        """A bar in two parts; other characters for the queue, where there is no colour."""
        if not step.batch_age or oldest <= 0:
            return ""
        generation = max(0.0, step.batch_age_generation or 0.0)
        length = round(_AGE_BAR * max(0.0, step.batch_age) / oldest)
        own = min(length, round(_AGE_BAR * generation / oldest))
        queue = "." if self._console.options.ascii_only else "░"
        return f"[green]{self._block * own}[/green][cyan]{queue * (length - own)}[/cyan]"


def _table(*columns: tuple[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    return table


def _age(age: float | None) -> str:
    return "" if age is None else f"{age:.3f}"


def _figures(stop: Stop) -> list[tuple[str, str]]:
    repeated = stop.steps_repeated
    steps = ", ".join(map(str, repeated[:8])) + (", ..." if len(repeated) > 8 else "")
    never = "not in this log"
    return [
        ("run", f"{stop.run[:8]}, followed by {stop.next_run[:8]}"),
        ("stopped at", _time(stop.stopped_at)),
        ("resumed at", f"{_time(stop.resumed_at)}, {duration(stop.downtime_s)} later"),
        ("restored step", str(stop.restored_step) if stop.restored_step else "none"),
        ("steps repeated", steps or "none"),
        ("trained again", f"{stop.tokens_trained_again:,} tokens"),
        ("in flight", _attempts(stop.attempts_in_flight, duration(stop.in_flight_s))),
        ("kept", _attempts(stop.attempts_kept, f"{stop.tokens_kept:,} tokens")),
        ("lost", _attempts(stop.attempts_lost, f"{stop.tokens_lost:,} tokens")),
        ("generation lost", duration(stop.generation_s_lost)),
        ("first step", never if stop.first_step_s is None else
         f"{duration(stop.first_step_s)} after resuming"),
        ("caught up", never if stop.caught_up_s is None else
         f"{duration(stop.caught_up_s)} after stopping"),
    ]  # fmt: skip


def _attempts(number: int, figure: str) -> str:
    return f"{many(number, 'attempt')}, {figure}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
