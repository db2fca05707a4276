"""A span in plain values: what every way of sending it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .fields import Attributes

__all__ = ["SpanEvent", "SpanRecord"]


class SpanEvent(NamedTuple):
    """A span event: its name, when (nanoseconds since the epoch), and its attributes."""

    name: str
    time: int
    attributes: Attributes


class SpanRecord(NamedTuple):
    """A span that is over, in plain values.

    Attributes:
        name: the span's name.
        trace_id, span_id: its ids.
        parent_id: its parent's span id, None for a root.
        started, ended: nanoseconds since the epoch.
        attributes: its attributes.
        events: its events, in the order of the log.
        links: ``(trace id, span id)`` of spans that it goes on from.
        failed: whether its status is ERROR.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    started: int
    ended: int
    attributes: Attributes
    events: Sequence[SpanEvent]
    links: Sequence[tuple[int, int]]
    failed: bool
