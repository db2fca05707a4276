"""One log, read once: its cost, and everything else that its section of the page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..cost import Cost, Stop, cost_of
from ..events import Event, Vocabulary
from ..journal import LogReader
from ..lifecycle import Lifecycle
from ..words import duration, many
from .clock import Clock
from .collecting import Collector
from .over_time import levels_plot, outcomes_plot
from .plots import batch_age_plot, ledger_plot, token_age_plot
from .style import Plot
from .timeline import stops_on, timeline_plot

__all__ = ["MOST_STOPS", "Section", "read_section"]

MOST_STOPS: Final = 20


@dataclass
class Section:
    """What the page says of one log.

    Attributes:
        path: the log.
        run: the one run that is shown; None for all.
        cost: what it cost.
        found: what was gathered.
        clock: of its time axes.
        plots: by name.
        bad_lines: lines that were passed over, or their beginning.
        first_bad: what is wrong with the first of them.
    """

    path: Path
    run: str | None
    cost: Cost
    found: Collector
    clock: Clock
    plots: dict[str, Plot]
    bad_lines: int
    first_bad: str

    @property
    def headlines(self) -> list[tuple[str, str, str]]:
        """The large figures on top: what, how much, and what is to be said about it."""
        cost, ledger = self.cost, self.cost.ledger
        lost = sum(stop.generation_s_lost for stop in cost.stops)
        percent = ledger.percent()
        ages = [step.batch_age for step in cost.ages().values() if step.batch_age is not None]
        lines = [_wall_clock(cost.stops)]
        if cost.stops:
            lines.append(
                ("Generation lost", duration(lost), "of attempts that stops cut off or threw away")
            )
        lines.append(
            ("Tokens trained", f"{percent['trained']:.1f} %", f"of {ledger.total:,} generated")
        )
        lines.append(
            ("Tokens lost", f"{percent['lost']:.1f} %", f"{ledger.tokens['lost']:,}, at stops")
        )
        if ages:
            mean = sum(ages) / len(ages)
            lines.append(
                ("Batch age", f"{mean:.2f}", f"weight updates, mean of {many(len(ages), 'step')}")
            )
        return lines


def _wall_clock(stops: list[Stop]) -> tuple[str, str, str]:
    """The price of all stops in wall-clock time, where they overlap counted once."""
    if not stops:
        return "Stops", "none", "that a later run followed"
    spans = sorted(
        (stop.stopped_at, stop.stopped_at + stop.caught_up_s)
        if stop.caught_up_s is not None
        else (stop.stopped_at, max(stop.stopped_at, stop.resumed_at))
        for stop in stops
    )
    total, until = 0.0, spans[0][0]
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    behind = sum(stop.caught_up_s is None for stop in stops)
    about = f"of wall-clock time, {many(len(stops), 'stop')}"
    if behind:
        about += f"; {behind:,} not made up for yet: their downtime"
    return "Price of the stops", duration(total), about


def read_section(
    path: Path,
    *,
    run: str | None = None,
    vocabulary: Vocabulary | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Section:
    """Read a log for its section.

    Args:
        path: the log.
        run: only this run's figures.
        vocabulary: which words mean which row.
        progress: called now and then with the bytes of the file read so far.

    Raises:
        LogError: if the log cannot be read, or is none.
    """
    reader = LogReader(path, required=True)
    found = Collector(run)
    lifecycle = Lifecycle([found], vocabulary=vocabulary)

    def watched() -> Iterator[Event]:
        for number, event in enumerate(reader):
            if not number % 1_000:
                progress(reader.position)
            lifecycle.feed(event)
            yield event

    whole = cost_of(watched(), vocabulary=vocabulary)
    found.last_runs = {each.run for each in whole.runs if each.followed_by is None}
    lifecycle.close()
    cost = whole if run is None else _of_run(whole, run)
    clock = Clock((first, last) for first, last in found.spans.values())
    undone = {(step.run, step.step) for step in cost.steps if step.undone and step.step is not None}
    stops = stops_on(cost, clock)
    plots = [
        ledger_plot(cost),
        batch_age_plot(cost),
        token_age_plot(found),
        outcomes_plot(found, clock, stops),
        timeline_plot(found, cost, clock, undone),
        levels_plot(found, clock, stops),
    ]
    return Section(
        path=path,
        run=run,
        cost=cost,
        found=found,
        clock=clock,
        plots={plot.name: plot for plot in plots},
        bad_lines=reader.bad_lines,
        first_bad=reader.first_bad.reason if reader.first_bad is not None else "",
    )


def _of_run(cost: Cost, run: str) -> Cost:
    """The part of it that is about one run: the stop that ended it, and what it did."""
    return replace(
        cost,
        stops=[stop for stop in cost.stops if stop.run == run],
        ledger=cost.ledger_of(run=run),
        runs=[each for each in cost.runs if each.run == run],
        steps=[step for step in cost.steps if step.run == run],
    )
