"""Plots of tokens and of batch ages."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ..cost import FATES, Cost, Ledger, StepAge
from ..words import many
from .collecting import Collector
from .style import (
    HATCHES,
    LOST,
    NEUTRAL,
    QUIET,
    Plot,
    Table,
    axis,
    base_layout,
    colour_of,
    escaped,
    hatched,
    percentage,
)

__all__ = ["batch_age_plot", "ledger_plot", "token_age_plot"]

MOST_RUNS: Final = 8
MOST_STEPS: Final = 1_500
MOST_ROWS: Final = 200


def ledger_plot(cost: Cost) -> Plot:
    """What became of every token, of the whole log and of each run."""
    rows: list[tuple[str, Ledger]] = [("all", cost.ledger)]
    if 1 < len(cost.runs) <= MOST_RUNS:
        rows += [(f"run {number}", run.ledger) for number, run in enumerate(cost.runs, 1)]
    names = [escaped(name) for name, _ in rows]
    data: list[dict[str, Any]] = []
    for fate in FATES:
        tokens = [ledger.tokens[fate] for _, ledger in rows]
        if not any(tokens):
            continue
        percents = [ledger.percent()[fate] for _, ledger in rows]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": fate,
                "y": names,
                "x": [float(number) for number in tokens],
                "marker": {
                    "color": colour_of(fate),
                    "pattern": hatched(HATCHES.get(fate, "")),
                },
                "text": [f"{percent:.0f} %" if percent >= 5 else "" for percent in percents],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "textfont": {"color": "#fff"},
                "hovertext": [
                    f"{fate}: {number:,} tokens, {percent:.1f} %"
                    for number, percent in zip(tokens, percents, strict=True)
                ],
                "hoverinfo": "text",
            }
        )
    height = 110 + 34 * len(rows)
    layout = base_layout(
        height,
        barmode="stack",
        # A percentage stands where it fits.
        uniformtext={"mode": "hide", "minsize": 11},
        xaxis=axis("tokens generated", rangemode="tozero"),
        yaxis={"autorange": "reversed", "automargin": True, "fixedrange": True},
    )
    ledger = cost.ledger
    percent = ledger.percent()
    best = [f"{percent[fate]:.1f} % {fate}" for fate in FATES if ledger.tokens[fate]]
    says = f"Of {ledger.total:,} tokens generated: {', '.join(best) or 'none counted'}."
    if ledger.repeated:
        says += f" {ledger.repeated:,} on top of the trained were trained again."
    notes = []
    if ledger.uncounted_attempts:
        notes.append(
            f"The log has no count of the tokens, or not of all, of "
            f"{many(ledger.uncounted_attempts, 'attempt')}; they are not in the bars."
        )
    if len(cost.runs) > MOST_RUNS:
        notes.append(f"The {len(cost.runs):,} runs are not drawn one by one.")
    table = Table(
        ("fate", "tokens", "%", "attempts"),
        [
            (fate, f"{ledger.tokens[fate]:,}", f"{percent[fate]:.1f}", f"{ledger.attempts[fate]:,}")
            for fate in FATES
        ]
        + [("total", f"{ledger.total:,}", "100" if ledger.total else "0",
            f"{sum(ledger.attempts.values()):,}")],
    )  # fmt: skip
    return Plot("ledger", "Where the tokens went", says, data, layout, height, table, notes=notes)


def batch_age_plot(cost: Cost) -> Plot:
    """Batch age by step, in its two parts, with trainings that were undone."""
    ages = cost.ages()
    kept = list(ages.items())
    notes = []
    if len(kept) > MOST_STEPS:
        every = -(-len(kept) // MOST_STEPS)
        notes.append(f"One of {every} steps is drawn, {len(kept[::every]):,} of {len(kept):,}.")
        kept = kept[::every]
    numbers = [number for number, _ in kept]
    latest = {id(step) for _, step in kept}
    earlier = [
        step
        for step in cost.steps
        if id(step) not in latest and step.step is not None and step.batch_age is not None
    ]
    parts = (
        ("while generating", NEUTRAL, [step.batch_age_generation for _, step in kept]),
        ("waiting in the buffer", QUIET, [step.batch_age_queue for _, step in kept]),
    )
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": name,
            "x": numbers,
            "y": values,
            "marker": {"color": colour},
            "hovertemplate": f"step %{{x}}: %{{y:.3f}} {name}<extra></extra>",
        }
        for name, colour, values in parts
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "batch age",
            "x": numbers,
            "y": [step.batch_age for _, step in kept],
            "line": {"width": 1.5},
            "marker": {"size": 5},
            "meta": {"ink": True},
            "hovertemplate": "step %{x}: batch age %{y:.3f}<extra></extra>",
        }
    )
    if earlier and len(kept) == len(ages):
        earlier = earlier[-MOST_STEPS:]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "trained earlier, and again",
                "x": [step.step for step in earlier],
                "y": [step.batch_age for step in earlier],
                "marker": {"color": LOST, "symbol": "x-thin-open", "size": 9, "line": {"width": 2}},
                "hovertemplate": "step %{x}, trained again later: %{y:.3f}<extra></extra>",
            }
        )
    tops = [step.batch_age or 0.0 for _, step in kept] + [step.batch_age or 0.0 for step in earlier]
    low = min([0.0, *tops, *(value for _, _, values in parts for value in values if value)])
    high = max([*tops, 0.0]) or 1.0
    layout = base_layout(
        320,
        barmode="relative",
        xaxis=axis("step", rangemode="normal", tickformat="d"),
        yaxis=axis("weight updates", range=[1.1 * low, 1.2 * high]),
        **_restored(cost, set(ages)),
    )
    values = [step.batch_age for step in ages.values() if step.batch_age is not None]
    says = "No step of the log has an age: it has no counts of trained tokens."
    if values:
        says = (
            f"Over {many(len(values), 'step')} the batch age was {sum(values) / len(values):.3f} "
            f"weight updates in the mean, {max(values):.3f} at most, and {values[-1]:.3f} "
            f"at the last."
        )
    table = Table(
        ("step", "batch age", "generating", "in the buffer", "tokens", "groups counted", "undone"),
        [_step_row(step) for step in cost.steps[-MOST_ROWS:]],
        note=_only_last(len(cost.steps), "training"),
    )
    return Plot("batch-age", "Batch age by step", says, data, layout, 320, table, notes=notes)


def _restored(cost: Cost, steps: set[int]) -> dict[str, Any]:
    """Lines where runs came back."""
    if not steps:
        return {}
    low, high = min(steps), max(steps)
    counts = Counter(stop.restored_step for stop in cost.stops)
    shapes, annotations = [], []
    for step, times in sorted(counts.items())[-30:]:
        place = min(max(float(step), low - 1.0), float(high)) + 0.5
        shapes.append(
            {
                "type": "line", "xref": "x", "yref": "paper", "x0": place, "x1": place,
                "y0": 0, "y1": 1, "line": {"color": LOST, "width": 1.5, "dash": "dash"},
            }
        )  # fmt: skip
        again = "" if times == 1 else f", {times} times"
        annotations.append(
            {
                "x": place, "xref": "x", "y": 0.99, "yref": "paper", "showarrow": False,
                "xanchor": "left", "yanchor": "top", "xshift": 3, "font": {"size": 11},
                "text": f"restored{again}" if step else f"from scratch{again}",
            }
        )  # fmt: skip
    return {"shapes": shapes, "annotations": annotations}


def _step_row(step: StepAge) -> tuple[str, ...]:
    def age(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    return (
        "?" if step.step is None else str(step.step),
        age(step.batch_age),
        age(step.batch_age_generation),
        age(step.batch_age_queue),
        f"{step.tokens:,}",
        "" if step.coverage is None else f"{100 * step.coverage:.0f} %",
        "undone" if step.undone else "",
    )


def _only_last(number: int, noun: str) -> str:
    if number <= MOST_ROWS:
        return ""
    return f"The last {MOST_ROWS} of {number:,} {noun}s; the command cost has all."


def token_age_plot(found: Collector) -> Plot:
    """Trained tokens by their age."""
    total: Counter[str] = Counter()
    for ages in found.ages.values():
        total.update(ages)
    labels = sorted(total, key=lambda label: -1 if label == "<0" else int(label.rstrip("+")))
    tokens = [total[label] for label in labels]
    everything = sum(tokens)
    data = [
        {
            "type": "bar",
            "x": labels,
            "y": [float(number) for number in tokens],
            "marker": {"color": [LOST if label == "<0" else NEUTRAL for label in labels]},
            "text": [percentage(number, everything) for number in tokens],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": [
                f"{number:,} tokens of age {escaped(label)}"
                for label, number in zip(labels, tokens, strict=True)
            ],
            "hoverinfo": "text",
        }
    ]
    data[0]["x"] = [escaped(label) for label in labels]
    layout = base_layout(
        280,
        margin={"l": 56, "r": 40, "t": 28, "b": 44},
        xaxis=axis("age in weight updates", type="category"),
        yaxis=axis("tokens", rangemode="tozero"),
        showlegend=False,
    )
    fresh = percentage(total["0"], everything)
    says = "No trained tokens are counted in the log."
    if everything:
        says = (
            f"{everything:,} trained tokens, of each step's last training: {fresh} were "
            f"generated on the very weights that they updated."
        )
        if total["<0"]:
            says += " An age below 0 means that versions in the log are wrong."
    table = Table(
        ("age", "tokens", "%"),
        [
            (label, f"{number:,}", percentage(number, everything))
            for label, number in zip(labels, tokens, strict=True)
        ],
    )
    return Plot("token-age", "How old trained tokens were", says, data, layout, 280, table)
