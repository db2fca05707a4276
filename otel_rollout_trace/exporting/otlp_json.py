"""OTLP as JSON lines: what the Collector's ``otlpjsonfile`` receiver reads.

A line is an export request, ``{"resourceSpans": [...]}``, as the OTLP exporters would
send it, in OTLP's JSON encoding: ids in hex, 64-bit numbers as text, enumerations as
numbers. It is made from span records directly: by way of the SDK's spans and their
protobuf it would take thirty times as long, and be the same (which is a test).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from ..events import Event, EventRow
from ..history import MetricsHistory
from ..lifecycle import Listener
from ..setup.configuring import resource_of_run
from ..spans import SpanRecord, names
from ..version import __version__
from .exports import well_formed

__all__ = ["LONGEST_LINE", "OtlpJson"]

_encode: Final = msgspec.json.Encoder().encode

LONGEST_LINE: Final = 1024 * 1024 - 1
"""The longest line that the receiver reads whole, where ``max_log_size`` is not set."""

_MOST_SPANS: Final = 256

_INTERNAL: Final = 1
_ERROR: Final = 2
# That a span has no parent in another process is known, and is so.
_FLAGS: Final = 0x100

_SCOPE: Final = {"name": names.SCOPE, "version": __version__}


class OtlpJson:
    """Writes spans, and perhaps the history of metrics, as OTLP's JSON lines.

    Args:
        file: takes the bytes.
        metrics: whether gauges and counters are written too, at the log's own times.

    Attributes:
        written: how many of what were written.
    """

    def __init__(self, file: IO[bytes], *, metrics: bool = False) -> None:
        self.written: Counter[str] = Counter()
        self.long_lines = 0
        self._file = file
        self._metrics = metrics
        self._history: MetricsHistory | None = None
        self._opened = _Opened()
        # Of the run whose spans wait.
        self._run = ""
        self._waiting: list[dict[str, Any]] = []

    @property
    def advice(self) -> str:
        """See `Export`."""
        if not self.long_lines:
            return ""
        return (
            f"{self.long_lines} line(s) are longer than 1 MiB: "
            "the Collector's receiver reads them whole with a larger max_log_size"
        )

    def begin(self, log: Path) -> Sequence[Listener]:
        """See `Export`."""
        self._opened = _Opened()
        if not self._metrics:
            return (self._opened,)
        self._history = MetricsHistory(_Lines(self), self._opened.resource)
        return (self._opened, self._history)

    def emit(self, record: SpanRecord) -> None:
        """See `Export`."""
        run = str(record.attributes[names.RUN_ID])
        if run != self._run or len(self._waiting) >= _MOST_SPANS:
            self._write_spans()
            self._run = run
        self._waiting.append(_span(record))

    def flush(self) -> None:
        """See `Export`."""
        self._write_spans()
        if self._history is not None:
            self._history.close()
            self.written["data points"] += self._history.sent
            self._history = None

    def close(self) -> None:
        """See `Export`."""

    def line(self, request: Mapping[str, Any]) -> None:
        """Write a line."""
        self._put(_encode(request))

    def _put(self, line: bytes) -> None:
        self._file.write(line)
        self._file.write(b"\n")
        self.written["lines"] += 1
        self.long_lines += len(line) > LONGEST_LINE

    def _write_spans(self) -> None:
        spans, self._waiting = self._waiting, []
        if spans:
            resource = _resource(self._opened.resource(self._run))
            self._write_some(resource, spans)
            self.written["spans"] += len(spans)

    def _write_some(self, resource: Any, spans: list[dict[str, Any]]) -> None:
        scope = {"scope": _SCOPE, "spans": spans}
        line = _encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})
        half = len(spans) // 2
        if len(line) <= LONGEST_LINE or not half:
            self._put(line)
            return
        self._write_some(resource, spans[:half])
        self._write_some(resource, spans[half:])


class _Opened(Listener):
    """How each run began, and so what its resource is."""

    def __init__(self) -> None:
        self._of: dict[str, Event] = {}
        self._latest: tuple[str, Resource] | None = None

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        if row is not None and row.name == "trace_opened" and run not in self._of:
            self._of[run] = event
            self._latest = None

    def resource(self, run: str) -> Resource:
        if self._latest is None or self._latest[0] != run:
            self._latest = (run, resource_of_run(run, self._of.get(run, {})))
        return self._latest[1]


class _Lines(MetricExporter):
    """Writes metrics as lines, by way of protobuf: there are few of them."""

    def __init__(self, to: OtlpJson) -> None:
        super().__init__()
        self._to = to

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """See ``MetricExporter``."""
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # - no types
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

        request = encode_metrics(metrics_data)
        if request.resource_metrics[0].scope_metrics[0].metrics:
            # These points have no exemplars, and so nothing has an id.
            self._to.line(MessageToDict(request, use_integers_for_enums=True))
        return MetricExportResult.SUCCESS

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """See ``MetricExporter``."""

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """See ``MetricExporter``."""
        return True


def _span(record: SpanRecord) -> dict[str, Any]:
    span: dict[str, Any] = {
        "traceId": f"{record.trace_id:032x}",
        "spanId": f"{record.span_id:016x}",
    }
    if record.parent_id is not None:
        span["parentSpanId"] = f"{record.parent_id:016x}"
    span |= {
        "name": record.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(record.started),
        "endTimeUnixNano": str(record.ended),
        "attributes": _attributes(record.attributes),
    }
    if record.events:
        span["events"] = [
            {"timeUnixNano": str(time), "name": well_formed(name)}
            | ({"attributes": _attributes(attributes)} if attributes else {})
            for name, time, attributes in record.events
        ]
    if record.links:
        span["links"] = [
            {"traceId": f"{trace_id:032x}", "spanId": f"{span_id:016x}", "flags": _FLAGS}
            for trace_id, span_id in record.links
        ]
    span["status"] = {"code": _ERROR} if record.failed else {}
    span["flags"] = _FLAGS
    return span


def _spelled(value: float) -> str:
    """What JSON has no number for, as protobuf's JSON spells it."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _resource(resource: Resource) -> dict[str, Any]:
    return {"attributes": _attributes(resource.attributes)}


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": well_formed(key), "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"stringValue": well_formed(value)}
    if kind is bool:
        return {"boolValue": value}
    if kind is int:
        return {"intValue": str(value)}
    if kind is float:
        return {"doubleValue": value if math.isfinite(value) else _spelled(value)}
    return {"arrayValue": {"values": [_value(item) for item in value]} if value else {}}
