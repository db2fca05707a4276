"""Emits a log's events with providers of the user's own: ``own_provider.py LOG SOURCE SPANS WHEN``.

They are set ``before`` `configure` is called, or ``after`` a trace was opened. What
spans they got is written to SPANS at the end.
"""

import json
import sys
from pathlib import Path

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_rollout_trace

log, source, spans, when = sys.argv[1:]

exporter = InMemorySpanExporter()
tracer_provider = TracerProvider()
tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
meter_provider = MeterProvider([InMemoryMetricReader()])


def set_providers() -> None:
    """As a user's own set-up does."""
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(meter_provider)


if when == "before":
    set_providers()
    rollouts = otel_rollout_trace.configure(log)
else:
    rollouts = otel_rollout_trace.RolloutTrace(log)

lines = Path(source).read_text().splitlines()
for number, line in enumerate(lines):
    event = json.loads(line)
    del event["run"]
    rollouts.emit(event.pop("event"), **event)
    if when == "after" and number == len(lines) // 2:
        rollouts.flush()
        set_providers()
rollouts.close()

assert trace.get_tracer_provider() is tracer_provider
assert metrics.get_meter_provider() is meter_provider
# Still theirs to use: a span of the user's own arrives.
with trace.get_tracer("own").start_as_current_span("own") as own:
    assert own.is_recording()
Path(spans).write_text(
    "\n".join(
        f"{span.context.trace_id:032x}/{span.context.span_id:016x}"
        for span in exporter.get_finished_spans()
        if span.context is not None and span.name != "own"
    )
)
