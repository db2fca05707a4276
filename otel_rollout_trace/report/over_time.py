"""Plots over time: how attempts ended, what was in flight, and what waited."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ..words import duration, many
from .clock import Clock
from .collecting import BUFFERED, IN_FLIGHT, OPEN, Collector
from .style import (
    NEUTRAL,
    ON_PURPOSE,
    QUIET,
    REASON_HATCHES,
    Plot,
    Table,
    axis,
    base_layout,
    colour_of,
    escaped,
    hatched,
    percentage,
    time_axis,
)

__all__ = ["levels_plot", "outcomes_plot"]

# Plots over time stand below each other, each second below itself.
CLOCK_MARGIN: Final = {"l": 84, "r": 40, "t": 12, "b": 44}


def outcomes_plot(found: Collector, clock: Clock, layout: dict[str, Any]) -> Plot:
    """How attempts ended, over time.

    Args:
        found: what was gathered.
        clock: of the time axis.
        layout: shapes and annotations of the stops.
    """
    intervals = found.outcomes.intervals()
    width = found.outcomes.width
    order = {"sealed": 0, "refused": 1, "abandoned": 2, "interrupted": 3, "still out": 4}
    totals: Counter[tuple[str, str]] = Counter()
    for _, sums in intervals:
        totals.update(sums)
    keys = sorted(totals, key=lambda key: (order.get(key[0], 9), -totals[key], key[1]))
    hatch: Counter[str] = Counter()
    data = []
    for outcome, reason in keys:
        spans = [
            (clock.at(start), clock.at(start + width), sums[outcome, reason])
            for start, sums in intervals
            if (outcome, reason) in sums
        ]
        name = outcome if not reason else f"{outcome}: {reason}"
        data.append(
            {
                "type": "bar",
                "name": escaped(name),
                "x": [(low + high) / 2 for low, high, _ in spans],
                "width": [max(high - low, 1e-6) * 0.96 for low, high, _ in spans],
                "y": [number for _, _, number in spans],
                "marker": {
                    "color": colour_of(outcome),
                    "line": {"width": 0},
                    "pattern": hatched(REASON_HATCHES[hatch[outcome] % len(REASON_HATCHES)]),
                },
                "hovertext": [f"{number:,} {escaped(name)}" for _, _, number in spans],
                "hoverinfo": "text",
            }
        )
        hatch[outcome] += 1
    whole = base_layout(
        320,
        margin=CLOCK_MARGIN,
        barmode="stack",
        xaxis=time_axis(clock.end),
        yaxis=axis(f"attempts ended, per {duration(width / 1e6)}", rangemode="tozero"),
        **layout,
    )
    number = sum(totals.values())
    by_outcome: Counter[str] = Counter()
    for (outcome, _), count in totals.items():
        by_outcome[outcome] += count
    parts = [f"{count:,} {outcome}" for outcome, count in by_outcome.most_common()]
    says = f"{many(number, 'attempt')}: {', '.join(parts) or 'none'}."
    if by_outcome["interrupted"]:
        says += " Interrupted are those that were out when their run was stopped."
    table = Table(
        ("outcome", "reason", "attempts", "%"),
        [
            (outcome, reason, f"{totals[outcome, reason]:,}",
             percentage(totals[outcome, reason], number))
            for outcome, reason in keys
        ],
        texts=2,
    )  # fmt: skip
    return Plot("outcomes", "How attempts ended", says, data, whole, 320, table, clock=True)


def levels_plot(found: Collector, clock: Clock, layout: dict[str, Any]) -> Plot:
    """Attempts in flight and groups in the buffer, over time."""
    intervals = found.levels.intervals()
    width = found.levels.width
    data, rows = [], []
    for key, colour in ((IN_FLIGHT, NEUTRAL), (BUFFERED, ON_PURPOSE), (OPEN, QUIET)):
        x, y, level, most = [0.0], [0], 0, 0
        for start, sums in intervals:
            change = sums.get(key, 0)
            if change:
                level += change
                most = max(most, level)
                # An interval may begin before the log does.
                x.append(max(x[-1], clock.at(start)))
                y.append(level)
        x.append(max(x[-1], clock.end))
        y.append(level)
        mean = sum(v * (b - a) for v, a, b in zip(y, x, x[1:], strict=False)) / clock.running
        rows.append((key, f"{most:,}", f"{mean:,.1f}"))
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": key,
                "x": x,
                "y": y,
                "line": {"color": colour, "width": 2 if key != OPEN else 1, "shape": "hv"},
                "hovertemplate": f"%{{y:,}} {key}<extra></extra>",
            }
        )
    whole = base_layout(
        300,
        margin=CLOCK_MARGIN,
        hovermode="x",
        xaxis=time_axis(clock.end),
        yaxis=axis("attempts, groups", rangemode="tozero"),
        **layout,
    )
    says = (
        f"At most {rows[0][1]} attempts were in flight at once, {rows[0][2]} in the mean "
        f"while a run was going; at most {rows[1][1]} published groups waited in the buffer."
    )
    notes = ["Groups that a checkpoint carried into a run wait in no buffer that the log tells of."]
    if width > 1_000:
        notes.append(f"Each point is the level at the end of {duration(width / 1e6)}.")
    table = Table(("", "at most", "in the mean"), rows)
    return Plot(
        "levels", "In flight and in the buffer", says, data, whole, 300, table, clock=True,
        notes=notes,
    )  # fmt: skip
