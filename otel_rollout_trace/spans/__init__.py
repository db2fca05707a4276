"""Groups, attempts and segments as OpenTelemetry spans, with ids that can be computed."""

from .context import attempt_context
from .describe import SpanView
from .ids import attempt_span_id, group_span_id, group_trace_id, run_span_id, run_trace_id
from .record import SpanEvent, SpanRecord

__all__ = [
    "SpanEvent",
    "SpanRecord",
    "SpanView",
    "attempt_context",
    "attempt_span_id",
    "group_span_id",
    "group_trace_id",
    "run_span_id",
    "run_trace_id",
]
