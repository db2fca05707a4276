"""Export requests that a receiver takes, however large spans and batches are.

A gRPC receiver refuses messages of more than 4 MiB, and over HTTP 413 is answered;
the SDK's exporters send the same message again and then lose it. So a batch is sent
in several requests where one would be too large, and a span that is too large by
itself loses what weighs most, says so, and arrives.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Link, Status

from ..spans import names
from .sizes import (
    attribute_bound,
    attributes_bound,
    encoded_size,
    event_bound,
    link_bound,
    origin_bound,
    span_bound,
)

__all__ = ["ATTRIBUTES_DROPPED", "LINKS_DROPPED", "MOST_BYTES", "FittingExporter"]

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 4 * 1024 * 1024 - 256 * 1024
"""The largest request: what a gRPC receiver takes by default, 4 MiB of protobuf.

Sizes are never estimated too low; the difference is for those on the way, as a
Collector that adds attributes to a request before it sends it on.
"""

ATTRIBUTES_DROPPED: Final = "rl.attributes.dropped"
"""On a span: names of the attributes, its own or its events' or links', that it lost."""

LINKS_DROPPED: Final = "rl.links.dropped"
"""On a span: how many of its links it lost."""

# Smaller attributes are not worth a place in a list of names: a span with a hundred
# thousand events would lose the ids in all of them rather than some of the events.
_LARGE: Final = 1024

# A list of names that is itself too large would be no help: of these many names,
# each of so many characters at most.
_MOST_NAMES: Final = 128
_LONGEST_NAME: Final = 256

# What a status says is dropped like an attribute, under this name.
_DESCRIPTION: Final = "status.description"

# Lengths in a message grow with it: by four bytes each, of the request's two levels.
_GROWTH: Final = 16


class FittingExporter(SpanExporter):
    """Sends spans through another exporter, in requests of limited size.

    One export at a time, as of any exporter.

    Args:
        inner: sends them, as OTLP.
        most_bytes: how large an export request may be, in bytes of protobuf.

    Attributes:
        inner: the same.
        arrived: how many spans of the latest export, from its first on, were
            delivered: all of them, or those before the first failure.
    """

    def __init__(self, inner: SpanExporter, *, most_bytes: int = MOST_BYTES) -> None:
        self.inner = inner
        self.arrived = 0
        self._most_bytes = most_bytes
        self._said = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, in order, until a request fails.

        A span that is too large by itself loses its largest attributes, those of its
        events and links included. Where no large ones are left it loses what weighs
        most: events from the middle, links, or small attributes. One that is too
        large even so is sent all the same: this receiver may take it.

        Returns:
            SUCCESS if all arrived, else what the request that failed was answered.
        """
        self.arrived = 0
        for part in self._parts(spans):
            result = self.inner.export(part)
            if result is not SpanExportResult.SUCCESS:
                return result
            self.arrived += len(part)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """See ``SpanExporter``."""
        self.inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """See ``SpanExporter``."""
        return self.inner.force_flush(timeout_millis)

    def _parts(self, spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
        """The spans in order, as many at a time as fit into a request."""
        most = self._most_bytes
        # By identity: to hash a resource is to write it as JSON.
        origins: dict[tuple[int, int], int] = {}
        part: list[ReadableSpan] = []
        said: set[tuple[int, int]] = set()
        size = 0
        for whole in spans:
            origin = (id(whole.resource), id(whole.instrumentation_scope))
            if origin not in origins:
                origins[origin] = _origin_size(whole)
            span, own = whole, _size(whole)
            if own + origins[origin] > most:
                span, own = self._fitted(whole, own)
            more = own if origin in said else own + origins[origin]
            if part and size + more > most:
                yield part
                part, said, size = [], set(), 0
                more = own + origins[origin]
            part.append(span)
            said.add(origin)
            size += more
        if part:
            yield part

    def _fitted(self, span: ReadableSpan, bound: int) -> tuple[ReadableSpan, int]:
        """A span that fits into a request, and at most how many bytes it is.

        Args:
            span: one that may be too large.
            bound: at most how many bytes it is.
        """
        size = _whole_size(span)
        if size <= self._most_bytes:
            return span, min(bound, size + _GROWTH)
        remains = _Remains(span)
        steps = remains.leave_out()
        while size > self._most_bytes:
            # A step takes off as much as it says or less, never more: what is left
            # out here has to be, and the next round sees what is still too much.
            excess = size - self._most_bytes
            for saved in steps:
                excess -= saved
                if excess <= 0:
                    break
            span = remains.span()
            size = _whole_size(span)
            if excess > 0:
                break  # nothing is left to leave out
        self._say(remains)
        return span, min(_size(span), size + _GROWTH)

    def _say(self, remains: _Remains) -> None:
        if self._said:
            return
        self._said = True
        logger.warning(
            "a span %.100r is too large for a receiver (over %d bytes) and is sent without "
            "%d attribute(s) (%.500s), %d event(s), %d link(s); each such span says what it "
            "lost in rl.*.dropped (said once)",
            remains.name,
            self._most_bytes,
            len(remains.dropped_names),
            ", ".join(remains.dropped_names),
            remains.events_dropped,
            remains.links_dropped,
        )


class _Remains:
    """What is left of a span that is too large.

    Args:
        span: the whole span.

    Attributes:
        name: its name.
        events_dropped, links_dropped: how many it lost.
    """

    def __init__(self, span: ReadableSpan) -> None:
        self._span = span
        self.name = span.name
        self._attributes = dict(span.attributes or {})
        # Two stacks, of which the middle is the top.
        events = [(event, dict(event.attributes or {})) for event in span.events]
        middle = len(events) // 2
        self._first, self._last = events[:middle], events[middle:][::-1]
        self._links = [(link, dict(link.attributes or {})) for link in span.links]
        description = span.status.description
        self._status: dict[str, Any] = {_DESCRIPTION: description} if description else {}
        self._dropped: set[str] = set()
        self.events_dropped = 0
        self.links_dropped = 0

    @property
    def dropped_names(self) -> list[str]:
        """Names of attributes that are left out, sorted; only the first of very many."""
        return sorted(self._dropped)[:_MOST_NAMES]

    def leave_out(self) -> Iterator[int]:
        """Leave out one thing after another; at most so many bytes does each take off."""
        events = (*self._first, *reversed(self._last))
        held = [kept for _, kept in (*events, *self._links)]
        yield from self._leave_out_attributes([self._attributes, self._status, *held], _LARGE)
        # Of small things there are too many: of the kind that weighs most.
        own = [self._attributes, self._status]
        kinds = (
            (sum(map(attributes_bound, own)), self._leave_out_attributes(own, 0)),
            (sum(event_bound(event) for event, _ in events), self._leave_out_events()),
            (sum(link_bound(link) for link, _ in self._links), self._leave_out_links()),
        )
        for _, steps in sorted(kinds, key=lambda kind: -kind[0]):
            yield from steps

    def span(self) -> ReadableSpan:
        """The span with what is left."""
        whole = self._span
        attributes = _counting(self._attributes, whole)
        if self._dropped:
            attributes[ATTRIBUTES_DROPPED] = self.dropped_names
        for name, count in (
            (names.EVENTS_DROPPED, self.events_dropped),
            (LINKS_DROPPED, self.links_dropped),
        ):
            if count:
                before = attributes.get(name)
                attributes[name] = count + (before if type(before) is int else 0)
        events = [
            event
            if len(kept) == len(event.attributes or {})
            else Event(event.name, _counting(kept, event), event.timestamp)
            for event, kept in (*self._first, *reversed(self._last))
        ]
        links = [
            link
            if len(kept) == len(link.attributes or {})
            else Link(link.context, _counting(kept, link))
            for link, kept in self._links
        ]
        status = whole.status
        if status.description and not self._status:
            status = Status(status.status_code)
        return ReadableSpan(
            whole.name,
            whole.context,
            whole.parent,
            whole.resource,
            attributes,
            _counted(events, whole.dropped_events + self.events_dropped),
            _counted(links, whole.dropped_links + self.links_dropped),
            whole.kind,
            status=status,
            start_time=whole.start_time,
            end_time=whole.end_time,
            instrumentation_scope=whole.instrumentation_scope,
        )

    def _leave_out_attributes(self, holders: list[dict[str, Any]], least: int) -> Iterator[int]:
        """Leave out attributes of at least so many bytes, the largest first."""
        found: list[tuple[int, dict[str, Any], str]] = [
            (size, holder, name)
            for holder in holders
            for name, value in holder.items()
            if (size := attribute_bound(name, value)) >= least
        ]
        found.sort(key=lambda each: -each[0])
        for size, holder, name in found:
            del holder[name]
            self._dropped.add(name[:_LONGEST_NAME])
            yield size

    def _leave_out_events(self) -> Iterator[int]:
        """Leave out events, from the middle to both ends."""
        while self._first or self._last:
            stack = self._first if len(self._first) > len(self._last) else self._last
            event, _ = stack.pop()
            self.events_dropped += 1
            yield event_bound(event)

    def _leave_out_links(self) -> Iterator[int]:
        """Leave out links, the last first."""
        while self._links:
            link, _ = self._links.pop()
            self.links_dropped += 1
            yield link_bound(link)


def _counting(kept: dict[str, Any], whole: ReadableSpan | Event | Link) -> BoundedAttributes:
    """Attributes with OTLP's own count of those that are left out."""
    attributes = BoundedAttributes(attributes=kept, immutable=False)
    attributes.dropped = whole.dropped_attributes + len(whole.attributes or {}) - len(kept)
    return attributes


def _counted(kept: list[Any], dropped: int) -> Sequence[Any]:
    """Events or links with OTLP's own count of those that are left out."""
    counted: Any = BoundedList.from_seq(None, kept)
    counted.dropped = dropped
    sequence: Sequence[Any] = counted
    return sequence


def _size(span: ReadableSpan) -> int:
    """At most how many bytes a span is, without where it is from."""
    try:
        return span_bound(span)
    except Exception:  # none that the SDK makes; the exporter will say what is wrong with it
        return 0


def _whole_size(span: ReadableSpan) -> int:
    """How many bytes a request with only this span is."""
    try:
        return encoded_size(span)
    except Exception:  # a message cannot be larger than 2 GiB
        return _size(span) + _origin_size(span)


def _origin_size(span: ReadableSpan) -> int:
    """At most how many bytes it is to say where a span is from."""
    try:
        return origin_bound(span.resource, span.instrumentation_scope)
    except Exception:  # see `_size`
        return 0
