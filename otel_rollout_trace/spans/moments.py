"""Lines as parts of a span: what began it, what ended it, what happened in between.

The attributes say what the line says. Where they could not give it back exactly
(a synonym, a number for an id, a null, ...) its text stays beside them, so that
`otel_rollout_trace.exporter` can write the very line again.
"""

from __future__ import annotations

from typing import Any, Final

from ..lifecycle import Group, Moment, Refit, Step
from ..lifecycle.items import Item
from . import names
from .fields import Attributes, line_text, put_fields
from .record import SpanEvent

__all__ = ["moment_event", "put_end", "put_learned", "put_start", "refit_event"]

_END_ROW: Final = {
    "sealed": "attempt_sealed",
    "refused": "attempt_refused",
    "abandoned": "attempt_abandoned",
    "discarded": "group_discarded",
}


def put_start(attributes: Attributes, item: Item) -> None:
    """The event that began an item, among its attributes."""
    event, row = item.first, item.first_row
    if event is None or row is None:
        attributes[names.LOG_START] = ""
        return
    exact = put_fields(attributes, event, names.attributes_of_row(row.name))
    if not exact or event["event"] != names.start_event(attributes, item.kind):
        attributes[names.LOG_START] = line_text(event)


def put_end(attributes: Attributes, item: Item) -> None:
    """The event that ended an item, among its attributes."""
    event = item.last
    if event is None:
        return
    row_name = _END_ROW[item.outcome]
    table = names.attributes_of_row(row_name)
    exact = put_fields(attributes, event, table)
    known = names.end_fields(row_name)
    named = "group_id" in event and (isinstance(item, Group) or "attempt_id" in event)
    if exact and named and event["event"] == row_name and event.keys() <= known:
        return
    attributes[names.LOG_END] = line_text(event)
    if item.first is not None and not event.keys() <= known:
        # Whose field is whose would be a guess.
        attributes[names.LOG_START] = line_text(item.first)


def put_learned(attributes: Attributes, item: Item, group: Group) -> None:
    """A group's prompt and task, where the item's own events do not say them."""
    for name, value in ((names.PROMPT_ID, group.prompt_id), (names.TASK_NAME, group.task_name)):
        if name in attributes or not isinstance(value, (str, int, float)):
            continue
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            continue
        attributes[name] = value
        if item.first is not None:
            attributes[names.LOG_START] = line_text(item.first)


def moment_event(moment: Moment, item: Item) -> SpanEvent:
    """A moment as an event of its item's span."""
    event, row = moment.event, moment.row
    name = event["event"]
    attributes: Attributes = {}
    leave = ""
    exact = not name.startswith("rl.")
    if row is not None and row.name in names.EVENT_NAMES and row.subject == item.kind:
        exact = name == row.name
        name = names.EVENT_NAMES[row.name]
        if isinstance(item, Group) and event.get("group_id") == item.group_id:
            leave = "group_id"
    table = names.attributes_of_row(row.name if row is not None else "")
    if not put_fields(attributes, event, table, leave=leave) or not exact:
        attributes[names.LOG_LINE] = line_text(event)
    if isinstance(moment.about, Step) and moment.about.batch_age is not None:
        attributes[names.BATCH_AGE] = moment.about.batch_age
    return SpanEvent(name, moment.time * 1000, attributes)


def refit_event(refit: Refit, tokens: int | None) -> SpanEvent:
    """A refit as an event of an attempt that it paused after so many tokens."""
    attributes: Attributes = {}
    if refit.replaced_version is not None:
        attributes[names.REPLACED_VERSION] = refit.replaced_version
    if refit.weight_version is not None:
        attributes[names.WEIGHT_VERSION] = refit.weight_version
    if tokens is not None:
        attributes[names.TOKENS_GENERATED] = tokens
    duration: Any = refit.event.get("duration_s")
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        attributes[names.REFIT_DURATION] = float(duration)
    return SpanEvent(names.REFIT_EVENT, refit.time * 1000, attributes)
