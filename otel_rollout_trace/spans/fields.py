"""Fields of a line as attributes, in a way that gives the line back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..events import HEADER, Event, clamped, version_counts_of
from ..values import degrade
from . import names

__all__ = ["AttributeValue", "Attributes", "Put", "line_text", "put_arrays", "put_fields"]

AttributeValue = str | bool | int | float | Sequence[str] | Sequence[int]
Attributes = dict[str, AttributeValue]

# A span and a span event keep 128 attributes; the computed ones need room too.
_MOST_FIELDS: Final = 96

_HEADER_KEYS: Final = len(HEADER)

# Put by `put_arrays`, or, on a span that says them of its own, not at all.
_ARRAYS: Final = ("tokens_by_version", "group_ids")
_ABSENT: Final = object()

# What the JSON text of a nested value begins with.
_NESTED: Final = frozenset("{[")

# Values that an attribute can have, besides text and whole numbers of 64 bits.
_PLAIN: Final = (float, bool)

_encode: Final = msgspec.json.Encoder().encode


class Put(NamedTuple):
    """How an event's fields became attributes.

    Attributes:
        exact: whether the attributes alone give every field back. Where not, the
            line itself must be kept beside them.
        others: whether it had fields that its row does not have.
    """

    exact: bool
    others: bool


# One of four answers, given for every event: made once.
_ANSWERS: Final = {
    (exact, others): Put(exact, others) for exact in (False, True) for others in (False, True)
}


def line_text(event: Event) -> str:
    """An event's line, as text."""
    return _text_of(event)


def _text_of(value: Any) -> str:
    """A nested value as JSON text; one nested without end is cut."""
    try:
        return _encode(value).decode()
    except RecursionError:
        return _encode(degrade(value)).decode()


def put_fields(
    attributes: Attributes,
    event: Event,
    plan: Mapping[str, str],
    *,
    said: int = 0,
) -> Put:
    """Put an event's fields among the attributes of a span or span event.

    Args:
        attributes: where they go; what is there already stays.
        event: the event.
        plan: the attribute that each of the row's fields becomes; any other is
            put behind ``rl.field.``.
        said: how many of its fields are left out of ``plan``, since the span
            itself says them.
    """
    exact = True
    found = _HEADER_KEYS + said
    total = len(event)
    for field, name in plan.items():
        if found == total:
            break
        value = event.get(field)
        if value is None:
            continue  # absent; or null, and then the numbers differ below
        found += 1
        kind = type(value)
        if name in attributes:
            if attributes[name] != value or type(attributes[name]) is not kind:
                exact = False
        elif kind is str:
            attributes[name] = value
            if value[:1] in _NESTED and name.startswith(names.FIELD_PREFIX):
                exact = False  # it would come back as what it looks like
        elif kind is float or kind is bool or (kind is int and -(2**63) <= value < 2**63):
            attributes[name] = value
        else:
            attributes[name] = _text_of(value)
            exact = exact and kind is not int and name.startswith(names.FIELD_PREFIX)
    if found == total:
        return _ANSWERS[exact, False]
    exact = _put_others(attributes, event, plan) and exact
    return _ANSWERS[exact, True]


def _put_others(attributes: Attributes, event: Event, plan: Mapping[str, str]) -> bool:
    """The fields that are in no plan; whether the attributes give them back."""
    exact = True
    for number, (field, value) in enumerate(event.items()):
        if field in HEADER or field in _ARRAYS or (field in plan and value is not None):
            continue
        kind = type(value)
        name = names.FIELD_PREFIX + field
        if number >= _MOST_FIELDS:
            return False
        if value is None:
            exact = False
        elif name in attributes:
            exact = exact and attributes[name] == value and type(attributes[name]) is kind
        elif kind is str:
            attributes[name] = value
            exact = exact and value[:1] not in (
                "{",
                "[",
            )  # it would come back as what it looks like
        elif kind is bool or kind is float or (kind is int and -(2**63) <= value < 2**63):
            attributes[name] = value
        else:
            attributes[name] = _text_of(value)
            exact = exact and kind in (dict, list)
    return exact


def put_arrays(attributes: Attributes, event: Event) -> tuple[int, bool]:
    """Put ``tokens_by_version`` and ``group_ids``, which are shown as arrays.

    Returns:
        How many of the two the event has, and whether the arrays give them back.
    """
    counts, ids = event.get("tokens_by_version", _ABSENT), event.get("group_ids", _ABSENT)
    found, exact = 0, True
    if counts is not _ABSENT:
        found += 1
        exact = _put_counts(attributes, counts)
    if ids is not _ABSENT:
        found += 1
        exact = _put_ids(attributes, ids) and exact
    return found, exact


def _put_counts(attributes: Attributes, value: Any) -> bool:
    counts = version_counts_of(value)
    attributes[names.TOKEN_VERSIONS] = tuple(counts)
    attributes[names.TOKEN_COUNTS] = tuple(map(clamped, counts.values()))
    if type(value) is not dict or len(value) != len(counts):
        return False
    for version, number in counts.items():
        given = value.get(str(version))
        if given != number or type(given) is not int:
            return False
    return True


def _put_ids(attributes: Attributes, value: Any) -> bool:
    if type(value) is not list:
        attributes[names.FIELD_PREFIX + "group_ids"] = _text_of(value)
        return False
    attributes[names.GROUP_IDS] = tuple(
        item if type(item) is str else _text_of(item) for item in value
    )
    return all(type(item) is str for item in value)
