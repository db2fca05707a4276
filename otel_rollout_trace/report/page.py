"""The page: sections as HTML, figures as JSON, and a policy that lets nothing else in.

All that comes from a log is text: escaped in HTML, and in the JSON so that no tag can
end it. The content security policy names the page's own scripts by their hashes and
forbids every connection, so that a mistake in this would still run and send nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, Final

from ..cost.words import price_of
from ..version import __version__
from ..words import duration, many, moment
from .collecting import shown
from .sections import MOST_STOPS, Section
from .style import Plot, Table
from .tables import most_retried, slowest, stop_table, waste_table

__all__ = ["page_of"]

_ASSETS: Final = Path(__file__).parent / "assets"
_ORDER: Final = ("ledger", "batch-age", "token-age", "timeline", "outcomes", "levels")


def page_of(sections: Sequence[Section], title: str, plotly: str) -> Iterator[str]:
    """The page, in parts.

    Args:
        sections: one for each log.
        title: of the page.
        plotly: Plotly's script.
    """
    css = (_ASSETS / "page.css").read_text(encoding="utf-8")
    script = (_ASSETS / "page.js").read_text(encoding="utf-8")
    # An end tag would end the script wherever it stands.
    plotly = plotly.replace("</script", r"<\/script")
    policy = (
        # Plotly compiles what it draws with WebGL.
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(script)} 'unsafe-eval'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    yield (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="otel-rollout-trace {__version__}">\n'
        f"<title>{_text(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        f"<header>\n<h1>{_text(title)}</h1>\n"
    )
    if len(sections) > 1:
        yield '<nav aria-label="Logs"><ul>'
        for number, section in enumerate(sections, 1):
            yield f'<li><a href="#log-{number}">{_text(section.path.name)}</a></li>'
        yield "</ul></nav>\n"
    yield (
        "</header>\n<noscript><p>Plots need JavaScript, which is off. All of their figures "
        "are in the tables.</p></noscript>\n"
    )
    for number, section in enumerate(sections, 1):
        yield from _section(section, number)
    yield (
        "</main>\n<footer><p>Made by otel-rollout-trace "
        f"{__version__} from the event log alone. Times are UTC. This page needs no network: "
        "it holds all that it shows.</p></footer>\n"
        f"<script>{plotly}</script>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


def _text(text: str) -> str:
    return escape(shown(text, 2_000))


def _section(section: Section, number: int) -> Iterator[str]:
    cost, found = section.cost, section.found
    yield f'<section class="log" id="log-{number}">\n'
    yield f"<h2>{_text(section.path.name)}</h2>\n<p class=about>{_text(_about(section))}</p>\n"
    if section.bad_lines:
        yield (
            f"<p class=odd>{many(section.bad_lines, 'bad line')} passed over, or their torn "
            f"beginning; the first: {_text(section.first_bad)}.</p>\n"
        )
    yield "<dl class=headlines>\n"
    for what, how_much, about in section.headlines:
        yield f"<div><dt>{what}</dt><dd><b>{how_much}</b> <span>{about}</span></dd></div>\n"
    yield "</dl>\n"
    yield from _stops(section)
    for name in _ORDER:
        yield from _plot(section.plots[name], f"log-{number}-{name}", section)
        if name == "ledger" and cost.ledger.waste:
            yield "<h3>Generated for nothing, by reason</h3>\n"
            yield from _table(waste_table(cost.ledger))
    for heading, table in (
        ("Slowest prompts", slowest(found)),
        ("Most retried prompts", most_retried(found)),
    ):
        yield f"<h3>{heading}</h3>\n"
        if table.rows:
            yield from _table(table)
        else:
            yield "<p>There are none.</p>\n"
    yield "</section>\n"


def _about(section: Section) -> str:
    found, cost = section.found, section.cost
    text = f"{many(found.events, 'event')} of {many(len(found.spans), 'run')}"
    if section.run is not None:
        text = f"{many(found.events, 'event')} of run {section.run[:8]}"
    if found.spans:
        first = min(span[0] for span in found.spans.values())
        last = max(span[1] for span in found.spans.values())
        text += f", {moment(first)} to {moment(last)} ({duration(last - first)})"
    steps = len({step.step for step in cost.steps})
    return f"{text}; {many(steps, 'step')} trained, {many(len(cost.steps), 'time')} in all"


def _stops(section: Section) -> Iterator[str]:
    stops = section.cost.stops
    yield "<h3>What the stops cost</h3>\n"
    if not stops:
        yield "<p>No run of it was stopped and followed by another, so no stop cost anything.</p>\n"
    left_out = max(0, len(stops) - MOST_STOPS)
    if left_out:
        yield (
            f"<p>These are the last {MOST_STOPS}; {many(left_out, 'earlier stop')} is in the "
            "figures above, and in what the command cost prints with --json.</p>\n"
        )
    for number, stop in enumerate(stops[left_out:], left_out + 1):
        yield f'<article class="stop">\n<h4>Stop {number}</h4>\n'
        yield f"<p>{_text(price_of(stop))}</p>\n"
        yield from _table(stop_table(stop), "figures")
        yield "</article>\n"


def _plot(plot: Plot, name: str, section: Section) -> Iterator[str]:
    yield f'<figure id="{name}">\n<h3>{plot.title}</h3>\n<figcaption>{_text(plot.says)}'
    for note in plot.notes:
        yield f" <small>{_text(note)}</small>"
    if plot.clock and section.clock.is_cut:
        yield " <small>Time is to scale while a run was going; shaded stops are cut short.</small>"
    yield "</figcaption>\n"
    if plot.tips:
        yield from _zooms(section)
    yield (
        f'<div class="plot" role="img" aria-label="{_text(plot.title)}: {_text(plot.says)}" '
        f'style="height:{plot.height}px" data-figure="{name}-figure"></div>\n'
        f'<script type="application/json" id="{name}-figure">'
    )
    yield _json(_figure(plot, section))
    yield "</script>\n"
    if plot.table.rows:
        yield f"<details><summary>{plot.title}, as a table</summary>\n"
        yield from _table(plot.table)
        yield "</details>\n"
    yield "</figure>\n"


def _zooms(section: Section) -> Iterator[str]:
    """Buttons that show one run; with more of them than fit, the pointer is faster."""
    runs = section.cost.runs
    yield '<p class="zooms">Drag over the bars to zoom in, double-click to zoom out.'
    if 1 < len(runs) <= 12:
        end = section.clock.end
        yield f' Show <button type="button" data-range="[{-0.01 * end},{1.01 * end}]">all</button>'
        for number, run in enumerate(runs, 1):
            first, last = section.found.spans[run.run]
            low, high = section.clock.at_seconds(first), section.clock.at_seconds(last)
            pad = max(high - low, end / 1e6) * 0.02
            yield (
                f' <button type="button" data-range="[{low - pad},{high + pad}]">'
                f"run {number}</button>"
            )
    yield "</p>\n"


def _figure(plot: Plot, section: Section) -> dict[str, Any]:
    import plotly.graph_objects as go

    # Plotly checks names and values of every property.
    figure = go.Figure({"data": plot.data, "layout": plot.layout}).to_plotly_json()
    return {
        "data": figure["data"],
        "layout": figure["layout"],
        "clock": section.clock.to_list() if plot.clock else None,
        "tips": plot.tips,
    }


def _json(value: object) -> str:
    """JSON that stands in a script element: no tag, comment or entity can begin in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _table(table: Table, kind: str = "") -> Iterator[str]:
    yield f'<div class="wide"><table class="{kind}">\n<thead><tr>'
    for place, name in enumerate(table.head):
        number = "" if place < table.texts else ' class="n"'
        yield f'<th scope="col"{number}>{escape(name)}</th>'
    yield "</tr></thead>\n<tbody>\n"
    for row in table.rows:
        yield "<tr>"
        for place, cell in enumerate(row):
            if not place:
                yield f'<th scope="row">{_text(cell)}</th>'
            else:
                number = "" if place < table.texts else ' class="n"'
                yield f"<td{number}>{_text(cell)}</td>"
        yield "</tr>\n"
    yield "</tbody></table></div>\n"
    if table.note:
        yield f"<p><small>{_text(table.note)}</small></p>\n"
