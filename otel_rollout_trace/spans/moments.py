"""Lines as parts of a span: what began it, what ended it, what happened in between.

The attributes say what the line says. Where they could not give it back exactly
(a synonym, a number for an id, a null, ...) its text stays beside them, so that
`otel_rollout_trace.exporter` can write the very line again.
"""

from __future__ import annotations

from typing import Final

from ..events import VOCABULARY
from ..lifecycle import Group, Moment, Price, Refit, Step
from ..lifecycle.items import Item
from . import names
from .fields import Attributes, line_text, put_arrays, put_fields
from .record import SpanEvent

__all__ = ["moment_event", "put_end", "put_learned", "put_start", "refit_event"]

_END_ROW: Final = {
    "sealed": "attempt_sealed",
    "refused": "attempt_refused",
    "abandoned": "attempt_abandoned",
    "discarded": "group_discarded",
}


# Of an ending event's fields only its row's are its own: where it began says the rest.
_END_PLAN: Final = {
    row_name: {
        field: names.attributes_of_row(row_name)[field] for field in VOCABULARY[row_name].fields
    }
    for row_name in _END_ROW.values()
}


def put_start(attributes: Attributes, item: Item) -> None:
    """The event that began an item, among its attributes."""
    event, row = item.first, item.first_row
    if event is None or row is None:
        attributes[names.LOG_START] = ""
        return
    put = put_fields(attributes, event, names.attributes_of_row(row.name))
    whole = "group_id" in event or names.GROUP_ID not in attributes
    if not (put.exact and whole and event["event"] == names.start_event(attributes, item.kind)):
        attributes[names.LOG_START] = line_text(event)


def put_end(attributes: Attributes, item: Item) -> None:
    """The event that ended an item, among its attributes."""
    event = item.last
    if event is None:
        return
    row_name = _END_ROW[item.outcome]
    put = put_fields(attributes, event, _END_PLAN[row_name])
    named = "group_id" in event and (item.kind == "group" or "attempt_id" in event)
    if put.exact and named and not put.others and event["event"] == row_name:
        return
    attributes[names.LOG_END] = line_text(event)
    if put.others and item.first is not None:
        # Whose field is whose would be a guess.
        attributes[names.LOG_START] = line_text(item.first)


def put_learned(attributes: Attributes, item: Item, group: Group) -> None:
    """A group's prompt and task, where the item's own events do not say them."""
    if group.task_name is None and names.PROMPT_ID in attributes:
        return  # nearly always
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
    if isinstance(moment.about, Price):
        return _price_event(moment.about, moment.time)
    event, row = moment.event, moment.row
    name: str = event["event"]
    attributes: Attributes = {}
    exact, said = True, 0
    plan = names.attributes_of_row(row.name if row is not None else "")
    if row is not None and row.name in names.EVENT_NAMES and row.subject == item.kind:
        exact = name == row.name
        name = names.EVENT_NAMES[row.name]
        if isinstance(item, Group) and event["group_id"] == item.group_id:
            plan, said = names.attributes_on_group(row.name), 1
    elif name.startswith("rl."):
        exact = False  # it would be taken for one of ours
    arrays, as_said = 0, True
    if "tokens_by_version" in event or "group_ids" in event:
        arrays, as_said = put_arrays(attributes, event)
    put = put_fields(attributes, event, plan, said=said + arrays)
    if not (put.exact and exact and as_said):
        attributes[names.LOG_LINE] = line_text(event)
    if isinstance(moment.about, Step):
        age = moment.about.batch_age
        if age is not None:
            attributes[names.BATCH_AGE] = age
    return SpanEvent(name, moment.time * 1000, attributes)


def _price_event(price: Price, time: int) -> SpanEvent:
    attributes: Attributes = {
        names.RESTORE_PREFIX + name: value
        for name, value in price.figures.items()
        if value is not None
    }
    return SpanEvent(names.RESTORE_EVENT, time * 1000, attributes)


def refit_event(refit: Refit, tokens: int | None) -> SpanEvent:
    """A refit as an event of an attempt that it paused after so many tokens."""
    attributes: Attributes = {}
    if refit.replaced_version is not None:
        attributes[names.REPLACED_VERSION] = refit.replaced_version
    if refit.weight_version is not None:
        attributes[names.WEIGHT_VERSION] = refit.weight_version
    if tokens is not None:
        attributes[names.TOKENS_GENERATED] = tokens
    if refit.duration is not None:
        attributes[names.REFIT_DURATION] = refit.duration
    return SpanEvent(names.REFIT_EVENT, refit.time * 1000, attributes)
