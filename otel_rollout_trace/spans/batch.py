"""Sending span records in batches that are waited for: for a replay, which can wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .emit import ProcessorSink
from .record import SpanRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["BatchSink", "PacedSink"]

_BATCH_SPANS: Final = 256

# After so many batches in a row that did not arrive, none is tried any more: each
# takes as long as the exporter's timeout.
_HOPELESS: Final = 2


class BatchSink:
    """Exports spans a batch at a time, as they come.

    Args:
        exporter: sends them.
        resource: the spans' resource, by the run they are of.

    Attributes:
        sent, failed: spans that arrived, and that did not.
    """

    def __init__(self, exporter: SpanExporter, resource: Callable[[str], Any]) -> None:
        from opentelemetry.sdk.trace import SpanProcessor
        from opentelemetry.sdk.trace.export import SpanExportResult

        sink = self

        class Collector(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                sink._take(span)

        self._exporter = exporter
        self._success = SpanExportResult.SUCCESS
        self._batch: list[ReadableSpan] = []
        self._failures = 0
        self._built = ProcessorSink(Collector(), resource)
        self.sent = 0
        self.failed = 0

    def emit(self, record: SpanRecord) -> None:
        """Build the span; export it with the next full batch."""
        self._built.emit(record)

    def flush(self) -> None:
        """Export what is left."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        arrived = self._export(batch) if self._failures < _HOPELESS else 0
        self.sent += arrived
        self.failed += len(batch) - arrived
        self._failures = 0 if arrived else self._failures + 1

    def _take(self, span: ReadableSpan) -> None:
        self._batch.append(span)
        if len(self._batch) >= _BATCH_SPANS:
            self.flush()

    def _export(self, batch: list[ReadableSpan]) -> int:
        """Export a batch; how many of its spans arrived."""
        if self._exporter.export(batch) is self._success:
            return len(batch)
        # Of several requests, the first ones may have been delivered.
        arrived: int = getattr(self._exporter, "arrived", 0)
        return arrived


class PacedSink:
    """Sends through a provider, and lets its processors catch up.

    A batch processor drops spans when they come faster than it sends them, as
    those of a replayed file do.

    Args:
        sink: sends each record.
        provider: its ``force_flush`` is called now and then, if it has one.
        every: after how many records.

    Attributes:
        sent: records sent.
    """

    def __init__(self, sink: Any, provider: Any, every: int) -> None:
        self._sink = sink
        self._flush: Callable[[], object] = getattr(provider, "force_flush", lambda: None)
        self._every = max(1, every)
        self.sent = 0

    def emit(self, record: SpanRecord) -> None:
        """Send one."""
        self._sink.emit(record)
        self.sent += 1
        if self.sent % self._every == 0:
            self._flush()

    def flush(self) -> None:
        """Wait until what was sent has left the process."""
        self._flush()
