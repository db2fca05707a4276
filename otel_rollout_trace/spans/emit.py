"""Sending span records: through any tracer provider, or straight to our own processors.

`TracerSink` goes through the public tracer API, so a provider's sampler, limits
and processors all see the span as any other. `ProcessorSink` builds the finished
span and hands it to the processors of a provider that `configure` made, which
costs a seventh; it is taken only where the result is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from ..recent import Recent
from ..version import __version__
from . import names
from .record import SpanRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator

__all__ = ["GroupSampling", "ProcessorSink", "TracerSink"]

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)

# Traces whose sampling is remembered: their groups are open, or ended a short while ago.
_MOST_DECISIONS: Final = 50_000


class ComputedIds:
    """Gives a tracer the ids it is told to use next, else those of the generator it had.

    The SDK asks for ids inside ``start_span``; the next ones are kept for each
    thread, so that other users of the tracer are not disturbed.
    """

    def __init__(self, otherwise: IdGenerator) -> None:
        self._otherwise = otherwise
        self._next = threading.local()

    def use(self, trace_id: int, span_id: int) -> None:
        """The next span that this thread starts has these ids."""
        self._next.ids = (trace_id, span_id)

    def forget(self) -> None:
        """The next span that this thread starts has ids as any other."""
        self._next.ids = None

    def generate_trace_id(self) -> int:
        """See ``opentelemetry.sdk.trace.id_generator.IdGenerator``."""
        ids = getattr(self._next, "ids", None)
        return ids[0] if ids else self._otherwise.generate_trace_id()

    def generate_span_id(self) -> int:
        """See ``opentelemetry.sdk.trace.id_generator.IdGenerator``."""
        ids = getattr(self._next, "ids", None)
        return ids[1] if ids else self._otherwise.generate_span_id()

    def is_trace_id_random(self) -> bool:
        """A computed id makes no claim to be random; W3C's flag is left off."""
        return False


class GroupSampling:
    """Asks a sampler about each trace once, as of its group's root.

    Attempts end, and are sent, before their group. Were the sampler only asked
    about each span, a ratio would keep every attempt, whose parent says it is
    sampled, of groups that it drops.

    Args:
        sampler: the sampler.
        runs: whether to ask about runs' spans too, which are traces of their own.
    """

    def __init__(self, sampler: Any, *, runs: bool = True) -> None:
        self._sampler = sampler
        self._runs = runs
        self._decisions: Recent[bool] = Recent(_MOST_DECISIONS)

    def __call__(self, record: SpanRecord) -> bool:
        """Whether a record's trace is sampled."""
        if record.name == names.RUN_SPAN:
            return not self._runs or self._ask(record, names.RUN_SPAN)
        key = f"{record.trace_id:x}"
        sampled = self._decisions.get(key, None)
        if sampled is None:
            sampled = self._ask(record, names.GROUP_SPAN)
            self._decisions.put(key, sampled)
        return sampled

    def _ask(self, record: SpanRecord, name: str) -> bool:
        result = self._sampler.should_sample(
            Context(),
            record.trace_id,
            name,
            SpanKind.INTERNAL,
            {names.RUN_ID: record.attributes[names.RUN_ID]},
            (),
        )
        return bool(result.decision.is_recording())


class TracerSink:
    """Starts and ends each span through a provider's own tracer.

    Args:
        provider: any tracer provider of the OpenTelemetry API. One whose tracers
            take no id generator gets spans in the computed traces, under ids of
            its own.
    """

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer(names.SCOPE, __version__)
        # Public on the SDK's tracers, and unknown to the API.
        tracer: Any = self._tracer
        sampler = getattr(tracer, "sampler", None)
        # About a run's span the tracer asks itself.
        self._sampled = GroupSampling(sampler, runs=False) if sampler is not None else None
        self._ids: ComputedIds | None = None
        generator = getattr(tracer, "id_generator", None)
        if isinstance(generator, ComputedIds):
            self._ids = generator
        elif generator is not None:
            self._ids = tracer.id_generator = ComputedIds(generator)

    def emit(self, record: SpanRecord) -> None:
        """Start the span, fill it, end it."""
        if self._sampled is not None and not self._sampled(record):
            return
        if self._ids is not None:
            self._ids.use(record.trace_id, record.span_id)
        try:
            span = self._tracer.start_span(
                record.name,
                context=self._parent(record),
                kind=SpanKind.INTERNAL,
                attributes=record.attributes,
                links=[trace.Link(_context(*link)) for link in record.links],
                start_time=record.started,
            )
        finally:
            if self._ids is not None:
                self._ids.forget()
        for name, time, attributes in record.events:
            span.add_event(name, attributes, timestamp=time)
        if record.failed:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end_time=record.ended)

    def _parent(self, record: SpanRecord) -> Context:
        # Never the ambient context: whatever span a user's code has open is not ours.
        parent_id = record.parent_id
        if parent_id is None and self._ids is None:
            parent_id = record.span_id  # the only way into the computed trace
        if parent_id is None:
            return Context()
        parent = trace.NonRecordingSpan(_context(record.trace_id, parent_id))
        return trace.set_span_in_context(parent, Context())


class ProcessorSink:
    """Builds finished spans and hands them to a processor.

    Args:
        processor: takes each span's ``on_end``.
        resource: the spans' resource, by the run they are of.
    """

    def __init__(self, processor: SpanProcessor, resource: Callable[[str], Any]) -> None:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace.status import Status, StatusCode

        self._on_end = processor.on_end
        self._resource = resource
        self._scope = InstrumentationScope(names.SCOPE, __version__)
        self._event = Event
        self._span: type[ReadableSpan] = ReadableSpan
        self._ok = Status(StatusCode.UNSET)
        self._error = Status(StatusCode.ERROR)

    def emit(self, record: SpanRecord) -> None:
        """Build the span and pass it on."""
        trace_id = record.trace_id
        parent_id = record.parent_id
        event = self._event
        self._on_end(
            self._span(
                record.name,
                SpanContext(trace_id, record.span_id, False, _SAMPLED),
                None if parent_id is None else _parent_context(trace_id, parent_id),
                self._resource(record.attributes[names.RUN_ID]),  # type: ignore[arg-type] # text
                record.attributes,
                [event(name, attributes, time) for name, time, attributes in record.events]
                if record.events
                else (),
                [trace.Link(_context(*link)) for link in record.links] if record.links else (),
                SpanKind.INTERNAL,
                status=self._error if record.failed else self._ok,
                start_time=record.started,
                end_time=record.ended,
                instrumentation_scope=self._scope,
            )
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, False, _SAMPLED)


# A group's attempts have one parent.
_parent_context = lru_cache(maxsize=8192)(_context)
