"""The timeline: every attempt and group as a bar, with refits and steps across.

The bars are line segments that a graphics card draws, one trace for each outcome: as
many shapes would keep a browser busy for minutes. What is under the pointer is looked up
by the page's script from the same numbers.
"""

from __future__ import annotations

import heapq
from array import array
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ..cost import Cost
from ..words import duration, many, moment
from .clock import Clock
from .collecting import Bar, Collector, Mark
from .style import LOST, NEUTRAL, QUIET, Plot, Table, base_layout, colour_of, escaped, time_axis

__all__ = ["pack", "stops_on", "timeline_plot"]

_MOST_STOPS: Final = 60
_ROWS: Final = 30

_BREAK: Final = float("nan")


def pack(spans: Sequence[tuple[float, float]]) -> list[int]:
    """For each span the first lane that is free when it begins; spans sorted by their start."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    lanes = []
    made = 0
    for start, end in spans:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, made = made, made + 1
        heapq.heappush(busy, (end, lane))
        lanes.append(lane)
    return lanes


def stops_on(cost: Cost, clock: Clock) -> dict[str, Any]:
    """Shapes and annotations that shade the stops on a clock's axis."""
    shapes, annotations = [], []
    for stop in cost.stops[-_MOST_STOPS:]:
        low, high = clock.at_seconds(stop.stopped_at), clock.at_seconds(stop.resumed_at)
        shapes.append(
            {
                "type": "rect", "xref": "x", "yref": "paper", "x0": low, "x1": high,
                "y0": 0, "y1": 1, "fillcolor": LOST, "opacity": 0.16, "layer": "below",
                "line": {"width": 0},
            }
        )  # fmt: skip
        if len(cost.stops) <= 12:
            annotations.append(
                {
                    "x": (low + high) / 2, "xref": "x", "y": 0.5, "yref": "paper",
                    "text": f"down {duration(max(0.0, stop.downtime_s))}", "textangle": -90,
                    "showarrow": False, "font": {"size": 11},
                }
            )  # fmt: skip
    return {"shapes": shapes, "annotations": annotations}


def timeline_plot(found: Collector, cost: Cost, clock: Clock, undone: set[tuple[str, int]]) -> Plot:
    """The timeline.

    Args:
        found: what was gathered.
        cost: of the same log.
        clock: of the time axis.
        undone: run and number of the steps that a restore undid.
    """

    def outcome_of(bar: Bar) -> str:
        if bar.step is not None and (bar.run, bar.step) in undone:
            return "undone"
        return bar.outcome

    runs = {run.run: number for number, run in enumerate(cost.runs)}
    shortest = clock.end / 4_000
    attempts, attempt_lanes = _traces(
        found.attempts.items, clock, shortest, runs, outcome_of, "attempt", "y"
    )
    groups, group_lanes = _traces(
        found.groups.items, clock, shortest, runs, outcome_of, "group", "y2"
    )
    low, high = _pixels(attempt_lanes), _pixels(group_lanes)
    top, gap, margins = 64, 14, 90
    inner = low + high + top + 2 * gap
    for traces, lanes, pixels in ((attempts, attempt_lanes, low), (groups, group_lanes, high)):
        for trace in traces:
            trace["line"]["width"] = max(1.0, min(7.0, 0.7 * pixels / max(1, lanes)))
    data = [
        *_across(found.steps.items, clock, NEUTRAL, "steps", attempt_lanes, group_lanes),
        *_across(found.refits.items, clock, QUIET, "refits", attempt_lanes, group_lanes, "dot"),
        *groups,
        *attempts,
        _marks(found.steps.items, clock, "steps", NEUTRAL, "square", 2),
        _marks(found.refits.items, clock, "refits", QUIET, "diamond", 1),
        _marks(found.saves.items, clock, "checkpoints", LOST, "triangle-up", 0),
    ]
    ends = (low / inner, (low + gap) / inner, (low + gap + high) / inner, 1 - top / inner)
    layout = base_layout(
        inner + margins,
        margin={"l": 84, "r": 40, "t": 46, "b": 44},
        hovermode="closest",
        xaxis=time_axis(clock.end, anchor="y"),
        yaxis=_lanes("attempts", attempt_lanes, [0, ends[0]]),
        yaxis2=_lanes("groups", group_lanes, [ends[1], ends[2]]),
        yaxis3={
            "domain": [ends[3], 1],
            "range": [-0.6, 2.6],
            "tickvals": [0, 1, 2],
            "ticktext": ["checkpoints", "refits", "steps"],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        **stops_on(cost, clock),
    )
    counts = Counter(outcome_of(bar) for bar in found.groups.items)
    says = (
        f"{many(found.attempts.seen, 'attempt')} in lanes, as many of them as were in flight at "
        f"once, below their {many(found.groups.seen, 'group')}, with "
        f"{many(found.steps.seen, 'step')} and {many(found.refits.seen, 'refit')} across."
    )
    if cost.stops:
        says += " Stops are shaded."
    if counts["undone"]:
        says += " Undone are groups whose step was trained, and then lost to a restore."
    return Plot(
        "timeline", "Timeline", says, data, layout, inner + margins, _steps(found),
        clock=True, tips=True, notes=_left_out(found, cost),
    )  # fmt: skip


def _pixels(lanes: int) -> int:
    return min(420, max(80, 8 * lanes))


def _lanes(title: str, lanes: int, domain: list[float]) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 12}, "standoff": 4},
        "domain": domain,
        "range": [-1, max(1, lanes)],
        "showgrid": False,
        "showticklabels": False,
        "zeroline": False,
    }


def _typed(values: array[float]) -> dict[str, str]:
    """Numbers as Plotly reads them fastest; they are little-endian everywhere."""
    import sys

    if sys.byteorder == "big":
        values.byteswap()
    return {
        "bdata": b64encode(values.tobytes()).decode("ascii"),
        "dtype": "f8" if values.typecode == "d" else "f4",
    }


def _traces(
    bars: list[Bar],
    clock: Clock,
    shortest: float,
    runs: dict[str, int],
    outcome_of: Callable[[Bar], str],
    kind: str,
    y: str,
) -> tuple[list[dict[str, Any]], int]:
    """One trace for each outcome, and how many lanes there are."""
    ordered = sorted(bars, key=lambda bar: (bar.started, bar.ended))
    spans = [(clock.at(bar.started), clock.at(bar.ended)) for bar in ordered]
    spans = [(low, max(high, low + shortest)) for low, high in spans]
    lanes = pack(spans)
    by_outcome: dict[str, list[int]] = {}
    for place, bar in enumerate(ordered):
        by_outcome.setdefault(outcome_of(bar), []).append(place)
    traces: list[dict[str, Any]] = []
    for outcome in sorted(by_outcome, key=lambda each: (-len(by_outcome[each]), each)):
        xs, ys = array("d"), array("f")
        columns: dict[str, list[Any]] = {
            name: [] for name in ("id", "group", "prompt", "gen", "tok", "s", "why", "step", "run")
        }
        texts = _Texts()
        for place in by_outcome[outcome]:
            bar, (low, high) = ordered[place], spans[place]
            xs.extend((low, high, _BREAK))
            ys.extend((lanes[place], lanes[place], _BREAK))
            columns["id"].append(bar.id)
            columns["group"].append(texts.add(bar.group_id))
            columns["prompt"].append(texts.add(bar.prompt))
            columns["gen"].append(texts.add(bar.generation))
            columns["tok"].append(bar.tokens)
            columns["s"].append(round((bar.ended - bar.started) / 1e6, 3))
            columns["why"].append(texts.add(bar.reason))
            columns["step"].append(bar.step)
            columns["run"].append(runs.get(bar.run, -1) + 1)
        traces.append(
            {
                "type": "scattergl",
                "mode": "lines",
                "name": f"{kind} {outcome}",
                "x": _typed(xs),
                "y": _typed(ys),
                "yaxis": y,
                "line": {"color": colour_of(outcome)},
                "hoverinfo": "skip",
                # Read by the page's script.
                "meta": {"kind": kind, "outcome": outcome, "texts": texts.all, **_dense(columns)},
            }
        )
    return traces, max(lanes, default=0) + 1


def _dense(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Columns without those that say nothing."""
    return {
        name: values
        for name, values in columns.items()
        if any(value not in (None, 0) for value in values) or name == "s"
    }


class _Texts:
    """Texts that stand in many rows, each once."""

    def __init__(self) -> None:
        self.all = [""]
        self._places = {"": 0}

    def add(self, text: str) -> int:
        place = self._places.setdefault(text, len(self.all))
        if place == len(self.all):
            self.all.append(text)
        return place


def _across(
    marks: Iterable[Mark],
    clock: Clock,
    colour: str,
    name: str,
    attempt_lanes: int,
    group_lanes: int,
    dash: str = "solid",
) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = []
    places = [clock.at(mark.time) for mark in marks]
    if not places:
        return []
    for y, lanes in (("y", attempt_lanes), ("y2", group_lanes)):
        xs, ys = array("d"), array("f")
        for place in places:
            xs.extend((place, place, _BREAK))
            ys.extend((-1, max(1, lanes), _BREAK))
        traces.append(
            {
                "type": "scattergl",
                "mode": "lines",
                "legendgroup": name,
                "showlegend": False,
                "x": _typed(xs),
                "y": _typed(ys),
                "yaxis": y,
                "line": {"color": colour, "width": 1, "dash": dash},
                "opacity": 0.6 if len(places) <= 100 else 0.25,
                "hoverinfo": "skip",
            }
        )
    return traces


def _marks(
    marks: Sequence[Mark], clock: Clock, name: str, colour: str, symbol: str, y: int
) -> dict[str, Any]:
    return {
        "type": "scattergl",
        "mode": "markers",
        "name": name,
        "legendgroup": name,
        "showlegend": False,
        "x": [clock.at(mark.time) for mark in marks],
        "y": [y] * len(marks),
        "yaxis": "y3",
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "text": [f"{escaped(mark.text)}<br>{moment(mark.time / 1e6)}" for mark in marks],
        "hoverinfo": "text",
    }


def _steps(found: Collector) -> Table:
    marks = sorted(
        [*found.steps.items, *found.saves.items, *found.refits.items], key=lambda mark: mark.time
    )
    rows: list[Sequence[str]] = [(moment(mark.time / 1e6), mark.text) for mark in marks]
    note = ""
    if len(rows) > _ROWS:
        note = f"The last {_ROWS} of {len(rows):,}."
    return Table(("time", "steps, refits and checkpoints"), rows[-_ROWS:], texts=2, note=note)


def _left_out(found: Collector, cost: Cost) -> list[str]:
    notes = []
    for what, thinned in (
        ("attempts", found.attempts),
        ("groups", found.groups),
        ("steps", found.steps),
        ("refits", found.refits),
        ("checkpoints", found.saves),
    ):
        if thinned.every > 1:
            notes.append(
                f"One of {thinned.every} {what} is drawn: {len(thinned.items):,} of "
                f"{thinned.seen:,}, so lanes are fewer than were in flight."
            )
    if len(cost.stops) > _MOST_STOPS:
        notes.append(f"The last {_MOST_STOPS} of {len(cost.stops):,} stops are shaded.")
    return notes
