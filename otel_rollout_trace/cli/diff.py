"""``diff``: which logs or runs, and how their differences are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..comparing import Difference, Pair, Row, StepPair, compare, read_side
from ..events import Event, Vocabulary
from ..journal import LogReader
from .replaying import _whole_id
from .tables import duration, many, reading

__all__ = ["DiffOptions", "log_and_run", "show_diff"]

# What is printed of each kind; ``--json`` has all.
_MOST_ROWS: Final = 20
_MOST_STEPS: Final = 30


@dataclass
class DiffOptions:
    """What ``diff`` was asked for.

    Attributes:
        as_json: whether it prints JSON.
        vocabulary: which words mean which row.
    """

    as_json: bool
    vocabulary: Vocabulary


def log_and_run(text: str) -> tuple[Path, str | None]:
    """What ``FILE@RUN`` names, or the file of that name where there is one."""
    name, _, run = text.rpartition("@")
    if name and run and not Path(text).exists():
        return Path(name), run
    return Path(text), None


def show_diff(a: tuple[Path, str | None], b: tuple[Path, str | None], options: DiffOptions) -> bool:
    """Print what differs between two logs, or runs of logs; whether they did the same work.

    Args:
        a: a log, and the beginning of a run's id (None for the whole log).
        b: the other one.
        options: what was asked for.

    Raises:
        LogError: if a file is no log, or has no such run.
    """
    sides = []
    for path, beginning in (a, b):
        next(iter(LogReader(path, required=True)), None)
        run = _whole_id(path, beginning)
        with reading(path) as progress:
            reader = LogReader(path)

            def events(reader: LogReader = reader, progress: Any = progress) -> Iterator[Event]:
                for number, event in enumerate(reader):
                    if not number % 10_000:
                        progress(reader.position)
                    yield event

            sides.append(read_side(events(), run=run, vocabulary=options.vocabulary))
    found = compare(*sides)
    if options.as_json:
        names = {"path_a": str(a[0]), "run_a": a[1], "path_b": str(b[0]), "run_b": b[1]}
        print(json.dumps(names | found.to_dict()))
    else:
        _show(found, _title(*a), _title(*b))
    return found.same


def _title(path: Path, run: str | None) -> str:
    return path.name if run is None else f"{path.name}@{run[:8]}"


def _show(found: Difference, a: str, b: str) -> None:
    console = Console(highlight=False, emoji=False)
    console.print(f"[bold]A[/bold] {escape(a)}\n[bold]B[/bold] {escape(b)}\n")
    console.print(_totals(found))
    console.print()
    if found.rows:
        console.print(
            f"[bold]{many(len(found.rows), 'row')}[/bold] of both "
            f"{'differs' if len(found.rows) == 1 else 'differ'}\n"
        )
        console.print(_rows(found.rows[:_MOST_ROWS]))
        _rest(console, len(found.rows) - _MOST_ROWS, "row")
    for side, keys in (("A", found.only_a), ("B", found.only_b)):
        if keys:
            console.print(f"[bold]{many(len(keys), 'row')}[/bold] only in {side}")
            named = ", ".join(f"{prompt}/{generation}" for prompt, generation in keys[:_MOST_ROWS])
            console.print(f"  prompt/generation {escape(named)}")
            _rest(console, len(keys) - _MOST_ROWS, "row")
    if found.steps:
        console.print("[bold]Batch age[/bold] by step\n")
        console.print(_steps(found.steps[:_MOST_STEPS]))
        _rest(console, len(found.steps) - _MOST_STEPS, "step")
    if found.same:
        console.print("A and B did the same work.")
    else:
        console.print("A and B did not do the same work.")


def _rest(console: Console, number: int, noun: str) -> None:
    if number > 0:
        console.print(f"  and {many(number, f'further {noun}')}")
    console.print()


def _totals(found: Difference) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for side in ("A", "B", "B - A"):
        table.add_column(side, justify="right", no_wrap=True)
    names = {
        "rows": "rows",
        "rows_sealed": "  sealed",
        "rows_tokens": "  their tokens",
        "reward_mean": "  mean reward",
        "attempts": "attempts",
        "tokens": "  their tokens",
        "steps": "steps",
        "duration_s": "lasted",
    }
    for name, title in names.items():
        a, b = found.a[name], found.b[name]
        show = duration if name == "duration_s" else _number
        gap = "" if a is None or b is None or a == b else show(b - a)
        if gap and name == "duration_s":
            gap = ("-" if b < a else "+") + duration(abs(b - a))
        elif gap and b > a:
            gap = f"+{gap}"
        table.add_row(title, *("" if each is None else show(each) for each in (a, b)), gap)
    table.add_row("rows alike", f"{found.rows_same:,}", f"{found.rows_same:,}", "")
    return table


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _rows(pairs: list[Pair]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("prompt/gen.", overflow="fold")
    for name in ("outcome", "tokens", "reward", "took"):
        table.add_column(name, justify="right")
    for pair in pairs:
        table.add_row(
            escape(f"{pair.prompt_id}/{pair.generation_index}"),
            *(_both(name, pair.a, pair.b) for name in ("outcome", "tokens", "reward")),
            _both("duration_s", pair.a, pair.b),
        )
    return table


def _both(name: str, a: Row, b: Row) -> str:
    ours, theirs = (_cell(name, getattr(row, name)) for row in (a, b))
    return ours if ours == theirs else f"{ours} | {theirs}"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "?"
    if name == "duration_s":
        return duration(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(f"{value:,}" if name == "tokens" else str(value)[:24])


def _steps(pairs: list[StepPair]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("step", "A", "B", "B - A"):
        table.add_column(name, justify="right", no_wrap=True)
    for pair in pairs:
        gap = "" if pair.a is None or pair.b is None else f"{pair.b - pair.a:+.3f}"
        table.add_row(
            str(pair.step), _age(pair.a, in_it=pair.in_a), _age(pair.b, in_it=pair.in_b), gap
        )
    return table


def _age(age: float | None, *, in_it: bool) -> str:
    if not in_it:
        return "not trained"
    return "not counted" if age is None else f"{age:.3f}"
