"""How large spans are as OTLP protobuf, without encoding them.

Encoding a span costs more than everything else that is done with it, so a batch is
not encoded to see whether it is too large. What is counted here is an upper bound:
the content as it is, and around it tags and lengths as if it were large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link

__all__ = [
    "attribute_bound",
    "attributes_bound",
    "encoded_size",
    "event_bound",
    "link_bound",
    "origin_bound",
    "span_bound",
    "text_size",
]

# A tag (one byte) and a length (at most five) are put before everything that is of
# no fixed length.
_HEAD: Final = 6

# A span's own: ids 18 + 10 + 10, kind 2, times 9 + 9, flags 6, three counts of what
# was dropped 18; heads of itself, its name, trace state, status and the status'
# message 30, and the status' code 2.
_SPAN: Final = 114

# An event's: time 9, a count 6; heads of itself and its name.
_EVENT: Final = 27

# A link's: ids 18 + 10, flags 6, a count 6; heads of itself and its trace state.
_LINK: Final = 52

# Heads of a key and its value: the pair, the key, the value, and what is in it. A
# number (at most ten bytes and a tag) has no fourth, and its value's is two bytes.
_PAIR: Final = 4 * _HEAD

# An item of a sequence: heads of the value, and of what is in it.
_ITEM: Final = 2 * _HEAD

# The same where all items are shorter than a length of one byte says.
_SHORT_ITEM: Final = 4
_SHORT_TEXT: Final = 30  # characters, of at most four bytes each

# A number that is an item: head 2, tag 1, and the number.
_NUMBER_ITEM: Final = 3
_LONGEST_INT: Final = 10
_NUMBER_SIZES: Final[Mapping[type, int]] = {float: 8, bool: 1, type(None): 0}

# Kinds that the heads of a pair make up for.
_NUMBERS: Final = frozenset({int, float, bool, type(None)})
_INT: Final = frozenset({int})
_TEXT: Final = frozenset({str})

# Of a resource and a scope: heads of both, of what they are in, of two schema URLs,
# of the scope's name and version, and of the resource's and the scope's spans.
_ORIGIN: Final = 10 * _HEAD


def span_bound(span: ReadableSpan) -> int:
    """At most so many bytes is a span in an export request, without where it is from.

    Raises:
        Exception: for a span that the SDK does not make, such as one with a number
            for a name.
    """
    name = span.name
    size = _SPAN + (len(name) if name.isascii() else text_size(name))
    if span.attributes:
        size += attributes_bound(span.attributes)
    for event in span.events:
        size += event_bound(event)
    for link in span.links:
        size += link_bound(link)
    context = span.context
    if context is not None and context.trace_state:
        size += _state_bound(context.trace_state)
    if span.status.description:
        size += text_size(span.status.description)
    return size


def event_bound(event: Event) -> int:
    """At most so many bytes is an event of a span."""
    size = _EVENT + text_size(event.name)
    return size + attributes_bound(event.attributes) if event.attributes else size


def link_bound(link: Link) -> int:
    """At most so many bytes is a link of a span."""
    size = _LINK
    if link.attributes:
        size += attributes_bound(link.attributes)
    if link.context.trace_state:
        size += _state_bound(link.context.trace_state)
    return size


def origin_bound(resource: Resource, scope: InstrumentationScope | None) -> int:
    """At most so many bytes is where spans are from, which a request says once for all."""
    size = _ORIGIN + attributes_bound(resource.attributes) + text_size(resource.schema_url or "")
    if scope is not None:
        size += attributes_bound(scope.attributes or {})
        for text in (scope.name, scope.version, scope.schema_url):
            size += text_size(text or "")
    return size


def attributes_bound(attributes: Mapping[str, Any]) -> int:
    """At most so many bytes are attributes."""
    size = 0
    for key, value in attributes.items():
        size += _PAIR + (len(key) if key.isascii() else text_size(key))
        kind = type(value)
        if kind is str:
            size += len(value) if value.isascii() else text_size(value)
        elif kind not in _NUMBERS:
            size += _content_bound(value)
    return size


def attribute_bound(key: str, value: Any) -> int:
    """At most so many bytes is an attribute."""
    return attributes_bound({key: value})


def text_size(text: str) -> int:
    """How many bytes a text is in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def encoded_size(span: ReadableSpan) -> int:
    """How many bytes an export request with only this span is, which costs encoding it.

    Raises:
        Exception: for a span that cannot be encoded.
    """
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    size: int = encode_spans([span]).ByteSize()
    return size


def _content_bound(value: Any) -> int:
    """At most so many bytes is a value, besides the heads of what it is in."""
    if isinstance(value, str):
        return text_size(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Sequence):
        return _items_bound(value)
    if isinstance(value, Mapping):
        return attributes_bound({str(key): item for key, item in value.items()})
    return 0  # a number of another class; what is nothing of all this is not encoded


def _items_bound(items: Sequence[Any]) -> int:
    kinds = set(map(type, items))
    if kinds == _TEXT:
        size = sum(map(len, items)) if all(map(str.isascii, items)) else sum(map(text_size, items))
        return size + len(items) * (_SHORT_ITEM if max(map(len, items)) <= _SHORT_TEXT else _ITEM)
    if kinds <= _NUMBERS:
        return len(items) * (_NUMBER_ITEM + _widest(items, kinds)) if items else 0
    return sum(_ITEM + max(_LONGEST_INT, _content_bound(item)) for item in items)


def _widest(numbers: Sequence[Any], kinds: set[type]) -> int:
    """At most so many bytes is any of these numbers."""
    if kinds == _INT:
        return _LONGEST_INT if min(numbers) < 0 else max(1, -(-max(numbers).bit_length() // 7))
    return max(_NUMBER_SIZES.get(kind, _LONGEST_INT) for kind in kinds)


def _state_bound(state: Mapping[str, str]) -> int:
    return sum(map(text_size, chain(state, state.values()))) + 2 * len(state)
