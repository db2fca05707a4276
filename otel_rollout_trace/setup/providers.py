"""Providers of our own: what is sent is counted, and stopping is bounded."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import DEFAULT_ON

from ..spans import SpanRecord, names
from ..spans.emit import ProcessorSink, TracerSink
from .keeping import ReceiptKeeper
from .quiet import Outage

__all__ = ["CountingExporter", "CountingProcessor", "RolloutTracerProvider", "Telemetry"]

logger = logging.getLogger(__name__)

# Thousands of attempts end at once when a run does; the SDK's default of 2048
# spans would drop the oldest of them.
_QUEUED_SPANS: Final = 65_536
_EXPORT_DELAY_MS: Final = 1_000
_BATCH_SPANS: Final = 512

# What these do when a span starts is nothing.
_IDLE_STARTS: Final = (
    SpanProcessor.on_start,
    BatchSpanProcessor.on_start,
    SimpleSpanProcessor.on_start,
)

# How long the interpreter's exit waits for a backend that was just found to be away.
_UNREACHABLE_S: Final = 0.5

# With one of these set the SDK cuts attributes, which the short way does not.
_LENGTH_LIMITS: Final = (
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_SPAN_LINK_COUNT_LIMIT",
)


class CountingExporter(SpanExporter):
    """Passes spans on, and counts those of ours that arrived and that did not.

    Args:
        exporter: sends them.
        target: where to, for messages.
        again: makes the exporter anew, for the child of a fork: connections are not
            for two processes.

    Attributes:
        handed: spans of ours that were to be sent.
        sent: those of them that were delivered.
        outage: whether they arrive.
        keeper: keeps on disk which of them did.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        target: str,
        again: Callable[[], SpanExporter | None] = lambda: None,
    ) -> None:
        self._exporter = exporter
        self._again = again
        self._inherited = False
        self.outage = Outage(exporter, "spans", target)
        self.keeper = ReceiptKeeper()
        self._stopped = False
        self._count_anew()
        _counting.add(self)

    def renew(self) -> None:
        """In the child of a fork: what was counted was the parent's, connections too."""
        self._count_anew()
        self._inherited = True

    def _count_anew(self) -> None:
        self.handed = 0
        self.sent = 0
        self._told = 0

    def unsent(self) -> int:
        """Spans of ours that were not delivered, and that this was not asked about yet."""
        missing = self.handed - self.sent
        # Fewer, where some that were told of have arrived after all.
        unsent, self._told = missing - self._told, missing
        return max(0, unsent)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See ``SpanExporter``."""
        if self._stopped:
            return SpanExportResult.FAILURE
        if self._inherited:
            self._inherited = False
            self._exporter = self._again() or self._exporter
        with self.outage.watch() as messages:
            try:
                result = self._exporter.export(spans)
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
                result = SpanExportResult.FAILURE
        complete = result is SpanExportResult.SUCCESS
        # Of several requests, the first ones may have been delivered.
        arrived = len(spans) if complete else getattr(self._exporter, "arrived", 0)
        self.sent += sum(map(_is_ours, spans[:arrived]))
        self.keeper.settle(spans, arrived)
        self.outage.note(complete)
        return result

    def shutdown(self) -> None:
        """See ``SpanExporter``. A second call does nothing."""
        if not self._stopped:
            self._stopped = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """See ``SpanExporter``."""
        return self._exporter.force_flush(timeout_millis)


_counting: Final[weakref.WeakSet[CountingExporter]] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for exporter in list(_counting):
        exporter.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def _is_ours(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == names.SCOPE


class RolloutTracerProvider(TracerProvider):
    """The SDK's provider, which also takes finished spans while that changes nothing.

    Args:
        resource: of everything that goes through it.
    """

    def __init__(self, resource: Resource) -> None:
        # The SDK leaves its constructor untyped.
        self._processors = SynchronousMultiSpanProcessor()  # type: ignore[no-untyped-call] # above
        super().__init__(
            resource=resource, shutdown_on_exit=False, active_span_processor=self._processors
        )
        #: What stops it, once `Telemetry` is made.
        self.telemetry: Telemetry | None = None
        # A sampler asks about each span, a processor may change one as it starts,
        # limits cut attributes: with any of them spans take the long way.
        self._plain = self.sampler is DEFAULT_ON and not any(
            os.environ.get(limit) for limit in _LENGTH_LIMITS
        )
        self._tracer_sink = TracerSink(self)
        self._processor_sink = ProcessorSink(self._processors, lambda _: self.resource)

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """See ``TracerProvider``."""
        self._plain = self._plain and type(span_processor).on_start in _IDLE_STARTS
        super().add_span_processor(span_processor)

    @property
    def rollout_sink(self) -> RolloutTracerProvider:
        """The way for span records; see `otel_rollout_trace.projection.sink_of`."""
        return self

    def emit(self, record: SpanRecord) -> None:
        """Send a span record, the shorter way where the result is the same."""
        sink = self._processor_sink if self._plain else self._tracer_sink
        sink.emit(record)


class Telemetry:
    """The providers that `configure` made, and how they are stopped.

    Args:
        tracer_provider, meter_provider: either may be None.
        exporters: those of the tracer provider.
    """

    def __init__(
        self,
        tracer_provider: RolloutTracerProvider | None,
        meter_provider: MeterProvider | None,
        exporters: Sequence[CountingExporter],
    ) -> None:
        self.tracer_provider = tracer_provider
        self.meter_provider = meter_provider
        self._exporters = exporters
        # Where there are several, the first one's: the receipts are about one backend.
        self.keeper = exporters[0].keeper if exporters else ReceiptKeeper()
        self._unreachable = False
        if tracer_provider is not None:
            tracer_provider.telemetry = self
        atexit.register(self.shutdown)

    def drain(self, timeout: float, log: Path, run: str) -> None:
        """Send what is queued, and say what was not sent.

        Args:
            timeout: for how many seconds at most.
            log: the log that can be replayed instead.
            run: the run that was recorded.
        """
        _within(timeout, self._flush)
        self.keeper.finish(run)
        for exporter in self._exporters:
            failed = exporter.unsent()
            self._unreachable = self._unreachable or failed > 0
            if failed:
                exporter.outage.note(False)  # before what follows from it
                logger.warning(
                    "%d span(s) of run %s were not sent; "
                    "otel-rollout-trace replay %s --run %s sends them",
                    failed,
                    run,
                    log,
                    run,
                )

    def shutdown(self, timeout: float = 5.0) -> None:
        """Stop the providers, within so many seconds whatever the collector does."""
        atexit.unregister(self.shutdown)
        if self._unreachable:
            timeout = min(timeout, _UNREACHABLE_S)
            for exporter in self._exporters:
                exporter.shutdown()  # ends the tries that are under way
        _within(timeout, self._stop)

    def _flush(self) -> None:
        for provider in (self.tracer_provider, self.meter_provider):
            if provider is not None:
                provider.force_flush()

    def _stop(self) -> None:
        for provider in (self.tracer_provider, self.meter_provider):
            if provider is not None:
                provider.shutdown()


class CountingProcessor(BatchSpanProcessor):
    """A batch processor that counts our spans, and has room for a run's end.

    Args:
        exporter: sends them; the standard variables say how many at a time, and when.
    """

    def __init__(self, exporter: CountingExporter) -> None:
        queue_size = _number("OTEL_BSP_MAX_QUEUE_SIZE", _QUEUED_SPANS)
        batch_size = _number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", _BATCH_SPANS)
        super().__init__(
            exporter,
            max_queue_size=queue_size,
            # The SDK refuses a batch that is larger than the queue.
            max_export_batch_size=min(batch_size, queue_size),
            schedule_delay_millis=_number("OTEL_BSP_SCHEDULE_DELAY", _EXPORT_DELAY_MS),
        )
        self._counting = exporter

    def on_end(self, span: ReadableSpan) -> None:
        """See ``SpanProcessor``."""
        if span.context is not None and span.context.trace_flags.sampled and _is_ours(span):
            self._counting.handed += 1
            self._counting.keeper.number(span)
        super().on_end(span)


def _number(variable: str, otherwise: int) -> int:
    """A setting that must be a whole number above zero; what is none is left out."""
    text = os.environ.get(variable)
    try:
        number = int(text or otherwise)
    except ValueError:
        number = 0
    if number > 0:
        return number
    logger.warning("%s=%s is no number above 0; %d is used", variable, text, otherwise)
    return otherwise


def _within(timeout: float, work: Callable[[], None]) -> None:
    """Do it on a thread that is not waited for longer than that."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            logger.debug("stopping failed", exc_info=error)

    thread = threading.Thread(target=run, name="rollout-trace-drain", daemon=True)
    started = time.monotonic()
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down
        return
    thread.join(max(0.0, timeout - (time.monotonic() - started)))
