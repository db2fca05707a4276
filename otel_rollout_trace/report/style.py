"""Colours that mean something, on light and on dark, and what all plots have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "COLOURS",
    "Plot",
    "Table",
    "base_layout",
    "colour_of",
    "escaped",
    "hatched",
    "time_axis",
]

# Kept is green, given up on purpose amber, lost red, and what is neither blue or grey.
# Each has a contrast of 3:1 at least to both backgrounds of the page.
KEPT: Final = "#2c9a5a"
ON_PURPOSE: Final = "#c47f12"
LOST: Final = "#c8443f"
UNDONE: Final = "#dd7671"
GIVEN_UP: Final = "#bb6d8f"
NEUTRAL: Final = "#3f86d8"
QUIET: Final = "#8a929c"

COLOURS: Final = {
    "trained": KEPT,
    "sealed": KEPT,
    "waiting": NEUTRAL,
    "still out": NEUTRAL,
    "refused": ON_PURPOSE,
    "discarded": ON_PURPOSE,
    "abandoned": GIVEN_UP,
    "interrupted": LOST,
    "undone": UNDONE,
    "lost": LOST,
}

# Two of one colour are told apart by hatching.
HATCHES: Final = {"refused": "/"}
REASON_HATCHES: Final = ("", "/", "\\", "x", "-", "|", "+", ".")


def hatched(shape: str) -> dict[str, Any]:
    """White lines across a bar of its own colour."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "#fff", "fgopacity": 0.75, "size": 6,
            "solidity": 0.2}  # fmt: skip


def colour_of(outcome: str) -> str:
    """The colour of an outcome or a fate."""
    return COLOURS.get(outcome, QUIET)


def escaped(text: str) -> str:
    """Text of a log for Plotly, which understands some tags in what it is given."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@dataclass
class Table:
    """Figures in rows, as text.

    Attributes:
        head: names of the columns.
        rows: the cells; those of all columns but the first ``texts`` are numbers.
        texts: how many columns hold text.
        note: said below it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    note: str = ""


@dataclass
class Plot:
    """A plot and what stands beside it for those who do not see it.

    Attributes:
        name: of the plot, unique in its section.
        title: its heading.
        says: what it shows, in a sentence or two.
        data, layout: of the figure.
        height: in pixels.
        table: its figures.
        clock: whether its x axis is the section's clock.
        tips: whether the script says what is under the pointer.
        notes: what was left out.
    """

    name: str
    title: str
    says: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int
    table: Table
    clock: bool = False
    tips: bool = False
    notes: list[str] = field(default_factory=list)


def base_layout(height: int, **more: Any) -> dict[str, Any]:
    """A layout without ornaments. Ink and grid come from the page's script."""
    layout: dict[str, Any] = {
        "template": {},
        "height": height,
        "margin": {"l": 56, "r": 40, "t": 12, "b": 44},
        "modebar": {"orientation": "v"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "size": 12},
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
            "itemsizing": "constant",
        },
        "hoverlabel": {"align": "left"},
        "bargap": 0.25,
        "dragmode": "zoom",
    }
    layout.update(more)
    return layout


def percentage(part: int, whole: int) -> str:
    """A part of a whole, where a little is not nothing."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.1f} %" if part == 0 or percent >= 0.1 else "< 0.1 %"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its quantity and unit."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "zeroline": False,
        "automargin": True,
        **more,
    }


def time_axis(end: float, **more: Any) -> dict[str, Any]:
    """The clock's axis; the page's script writes its ticks, for what is in view."""
    return {
        "type": "linear",
        "range": [-0.01 * end, 1.01 * end],
        "zeroline": False,
        "showgrid": True,
        "tickmode": "array",
        "tickvals": [],
        "ticktext": [],
        "ticks": "outside",
        **more,
    }
