"""Fields of a line as attributes, in a way that gives the line back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ..events import HEADER, Event, version_counts_of
from . import names

__all__ = ["AttributeValue", "Attributes", "line_text", "put_counts", "put_fields"]

AttributeValue = str | bool | int | float | Sequence[str] | Sequence[int]
Attributes = dict[str, AttributeValue]

# A span and a span event keep 128 attributes; the computed ones need room too.
_MOST_FIELDS: Final = 96

_encode: Final = msgspec.json.Encoder().encode


def line_text(event: Event) -> str:
    """An event's line, as text."""
    return _encode(event).decode()


def put_fields(
    attributes: Attributes, event: Event, table: Mapping[str, str], *, leave: str = ""
) -> bool:
    """Put an event's fields among the attributes of a span or span event.

    Args:
        attributes: where they go; what is there already stays.
        event: the event.
        table: the attribute that each of the row's fields becomes; any other is
            put behind ``rl.field.``.
        leave: a field that is not put, since the span itself says it.

    Returns:
        Whether the attributes alone give every field back. Where not, the line
        itself must be kept beside them.
    """
    exact = True
    for number, (field, value) in enumerate(event.items()):
        if field in HEADER or field == leave:
            continue
        if number > _MOST_FIELDS:
            return False
        name = table.get(field)
        kind = type(value)
        if name is None:
            name = names.FIELD_PREFIX + field
            if kind is str and value[:1] in ("{", "["):
                exact = False  # it would come back as what it looks like
        elif field == "tokens_by_version":
            exact &= put_counts(attributes, value)
            continue
        elif field == "group_ids":
            exact &= _put_ids(attributes, name, value)
            continue
        elif field == "group_id" or field == "attempt_id":
            exact &= kind is str and value != ""
        if name in attributes:
            exact &= type(attributes[name]) is kind and attributes[name] == value
        elif kind is str or kind is bool or kind is float or (kind is int and -(2**63) <= value < 2**63):
            attributes[name] = value
        elif value is None:
            exact = False
        else:
            attributes[name] = _encode(value).decode()
            exact &= kind in (dict, list) and name.startswith(names.FIELD_PREFIX)
    return exact


def put_counts(attributes: Attributes, value: Any) -> bool:
    """Put ``tokens_by_version`` as two parallel arrays; whether they give it back."""
    counts = version_counts_of(value)
    attributes[names.TOKEN_VERSIONS] = tuple(counts)
    attributes[names.TOKEN_COUNTS] = tuple(counts.values())
    return isinstance(value, dict) and {str(v): n for v, n in counts.items()} == value


def _put_ids(attributes: Attributes, name: str, value: Any) -> bool:
    if not isinstance(value, list):
        attributes[name] = _encode(value).decode()
        return False
    attributes[name] = tuple(item if type(item) is str else str(item) for item in value)
    return all(type(item) is str for item in value)
