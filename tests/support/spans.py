"""Spans as plain values that can be compared, and the ways to get them from a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_rollout_trace import RolloutTrace, replay
from otel_rollout_trace.events import Event, micros_of
from otel_rollout_trace.exporter import events_of
from otel_rollout_trace.projection import Projection
from otel_rollout_trace.spans.emit import ProcessorSink, TracerSink

__all__ = [
    "PlainSpan",
    "Seen",
    "as_multiset",
    "built_spans",
    "emit_all",
    "lines_of",
    "live_spans",
    "plain",
    "replayed_spans",
    "traced_spans",
]

_RESOURCE = Resource({"service.name": "test"})


class PlainSpan(NamedTuple):
    """A span, in values that compare by what they say."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    started: int | None
    ended: int | None
    attributes: str
    events: tuple[tuple[str, int, str], ...]
    links: tuple[tuple[int, int], ...]
    failed: bool


def _text(attributes: Any) -> str:
    return msgspec.json.encode(dict(attributes or {}), order="sorted").decode()


def plain(span: ReadableSpan) -> PlainSpan:
    """A span as it can be compared."""
    context = span.get_span_context()
    assert context is not None
    return PlainSpan(
        span.name,
        context.trace_id,
        context.span_id,
        span.parent.span_id if span.parent is not None else None,
        span.start_time,
        span.end_time,
        _text(span.attributes),
        tuple((event.name, event.timestamp, _text(event.attributes)) for event in span.events),
        tuple((link.context.trace_id, link.context.span_id) for link in span.links),
        not span.status.is_unset and not span.status.is_ok,
    )


class Seen:
    """A tracer provider whose spans are kept."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(resource=_RESOURCE, shutdown_on_exit=False, **settings)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """What was sent so far."""
        return self.exporter.get_finished_spans()

    @property
    def plain(self) -> list[PlainSpan]:
        """What was sent so far, comparable and sorted."""
        return sorted(map(plain, self.spans), key=repr)


class _Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def built_spans(events: Iterable[Event], **settings: Any) -> list[ReadableSpan]:
    """The spans of events, built without a tracer."""
    kept = _Kept()
    projection = Projection(ProcessorSink(kept, lambda _: _RESOURCE), None, **settings)
    projection.feed_all(events)
    projection.close()
    return kept.spans


def traced_spans(events: Iterable[Event]) -> list[ReadableSpan]:
    """The spans of events, through an SDK's tracer."""
    seen = Seen()
    projection = Projection(TracerSink(seen.provider), None)
    projection.feed_all(events)
    projection.close()
    return list(seen.spans)


def emit_all(trace: RolloutTrace, events: Iterable[Event]) -> None:
    """Emit events as training code would, each with the time it has."""
    for event in events:
        fields = {key: value for key, value in event.items() if key not in ("run", "event")}
        trace.emit(event["event"], **fields)


def live_spans(path: Path, events: Iterable[Event], **settings: Any) -> list[PlainSpan]:
    """The spans of a live run that emits events into a file."""
    seen = Seen()
    with RolloutTrace(path, tracer_provider=seen.provider, **settings) as trace:
        emit_all(trace, events)
    return seen.plain


def replayed_spans(path: Path, *, run: str | None = None) -> list[PlainSpan]:
    """The spans of a replay of a file."""
    seen = Seen()
    replay(path, tracer_provider=seen.provider, run=run)
    return seen.plain


def lines_of(spans: Iterable[ReadableSpan]) -> list[Event]:
    """The events that spans give back."""
    return [event for span in spans for event in events_of(span)]


def as_multiset(events: Iterable[Event]) -> Counter[str]:
    """Events as text, so that 1, 1.0 and true differ; their times in microseconds."""
    return Counter(
        msgspec.json.encode(event | {"t": micros_of(event["t"])}, order="sorted").decode()
        for event in events
    )
