"""Where other processes hang their own spans: an attempt, by its ids alone."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context

from . import ids

__all__ = ["attempt_context"]


def attempt_context(run: str, group_id: str, attempt_id: str, *, sampled: bool = True) -> Context:
    """An OpenTelemetry context whose current span is a rollout attempt's.

    A rollout worker, in any process, parents its own spans to the attempt from
    the ids alone; nothing needs to be passed along but those.

    Args:
        run: the run's id, `RolloutTrace.run`.
        group_id: the group's id, as in the log.
        attempt_id: the attempt's id, as in the log.
        sampled: whether spans under it are to be recorded.

    Returns:
        A context for ``tracer.start_span(..., context=...)`` or
        ``opentelemetry.context.attach``.

    Example:
        >>> context = attempt_context("5f0c", "g1", "a1")
        >>> with tracer.start_as_current_span("reward_model", context=context):
        ...     score(completion)  # doctest: +SKIP
    """
    span_context = trace.SpanContext(
        trace_id=ids.group_trace_id(run, group_id),
        span_id=ids.attempt_span_id(run, group_id, attempt_id),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else 0),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(span_context), Context())
