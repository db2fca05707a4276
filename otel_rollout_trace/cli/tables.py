"""What people see: tables, numbers, progress. Eighty columns are enough."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..check import LogCheck, RunCheck
from ..replaying import Replayed
from ..words import duration, many

__all__ = ["duration", "many", "print_check", "print_replayed", "reading"]

# How far searches of Jaeger and Grafana look back unless told otherwise.
_LOOK_BACK_S = 3_600

# A file that takes long enough to watch.
_LONG_BYTES = 20_000_000


@contextmanager
def reading(path: Path) -> Iterator[Callable[[int], object]]:
    """Show how far a long file was read, where there is a terminal to see it."""
    size = os.path.getsize(path) if path.is_file() else 0
    if size < _LONG_BYTES or not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(path.name, total=size)
        yield lambda position: progress.update(task, completed=position)


def print_replayed(
    path: Path,
    found: Replayed,
    target: str | None,
    points: tuple[int, int] | None,
    reason: str,
) -> None:
    """What a replay found and sent."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    runs = many(found.runs, "run")
    console.print(f"[bold]{escape(path.name)}[/bold]: {many(found.events, 'event')} of {runs}")
    if found.events:
        console.print(f"  time      {_time(found.first_t)} to {_time(found.last_t)} UTC")
    if found.bad_lines:
        torn = "torn or foreign line"
        console.print(f"  skipped   {many(found.bad_lines, torn)}, {escape(found.first_bad)}")
    console.print(f"  attempts  {_outcomes(found.attempts)}")
    console.print(f"  groups    {_outcomes(found.groups)}")
    if found.tokens:
        console.print(f"  tokens    {_outcomes(found.tokens)}")
    if found.batch_age:
        ages = list(found.batch_age.values())
        console.print(
            f"  batch age mean {sum(ages) / len(ages):.3f}, max {max(ages):.3f}, "
            f"last {ages[-1]:.3f} over {many(len(ages), 'step')}"
        )
    if target is None:
        console.print(f"  spans     {many(found.spans, 'span')}, not sent (dry run)")
        return
    sent = found.spans - found.not_sent
    console.print(f"  spans     {many(sent, 'span')} sent to {escape(target)}")
    if sent and time.time() - found.last_t > _LOOK_BACK_S:
        console.print("            search at that time: backends look back an hour by default")
    if points is not None:
        console.print(f"  metrics   {many(points[0], 'data point')} sent")
    sys.stdout.flush()
    failed = [(found.not_sent, "span"), (points[1] if points else 0, "data point")]
    for number, noun in failed:
        if number:
            print(
                f"otel-rollout-trace: {many(number, noun)} did not arrive at {target}"
                + (f": {reason}" if reason else ""),
                file=sys.stderr,
            )


def print_check(result: LogCheck) -> None:
    """What a check found."""
    console = Console(highlight=False, emoji=False)
    runs = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "started (UTC)", "lasted"):
        runs.add_column(name, no_wrap=True)
    for name in ("events", "steps", "attempts"):
        runs.add_column(name, justify="right", no_wrap=True)
    runs.add_column("restored", justify="right")
    for run in result.runs:
        runs.add_row(
            escape(run.run[:8]),
            _time(run.first),
            duration(run.last - run.first),
            f"{run.events:,}",
            _steps(run),
            f"{sum(run.attempts.values()):,}",
            f"step {run.restored_step}" if run.restored_step is not None else "",
        )
    total = sum(result.events.values())
    console.print(
        f"[bold]{escape(Path(result.path).name)}[/bold]: {many(total, 'event')} of "
        f"{many(len(result.runs), 'run')}\n"
    )
    console.print(runs)
    console.print()
    events = Table(box=None, pad_edge=False, header_style="bold")
    events.add_column("event", no_wrap=True)
    events.add_column("count", justify="right")
    for name, count in result.events.most_common():
        events.add_row(escape(name), f"{count:,}")
    console.print(events)
    console.print()
    if not result.findings:
        console.print("nothing odd")
        return
    odd = Table(box=None, pad_edge=False, header_style="bold")
    odd.add_column("odd", justify="right")
    odd.add_column("")
    for finding in result.findings:
        odd.add_row(f"{finding.count:,}", escape(finding.text))
    console.print(odd)


def _outcomes(counts: dict[str, int]) -> str:
    if not counts:
        return "none"
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return f"{sum(counts.values()):,}: " + ", ".join(f"{n:,} {name}" for name, n in ordered)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _steps(run: RunCheck) -> str:
    if run.first_step is None:
        return "none"
    if run.first_step == run.last_step:
        return str(run.first_step)
    return f"{run.first_step}-{run.last_step}"
