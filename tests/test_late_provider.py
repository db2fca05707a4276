"""Providers that are set after the log was opened: the spans are those of the whole run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.processes import run_python

_START = """
    import json, sys
    from otel_rollout_trace import RolloutTrace

    def set_providers():
        global seen, reader
        from opentelemetry import metrics, trace as tracing
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        seen, reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(seen))
        tracing.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([reader]))

    def plain(spans):
        return sorted(
            (span.name, span.context.span_id, span.start_time, span.end_time,
             json.dumps(dict(span.attributes)), [event.name for event in span.events])
            for span in spans
        )

    def work(trace, numbers):
        for number in numbers:
            trace.emit("group_reserved", group_id=f"g{number}")
            trace.emit("attempt_dispatched", group_id=f"g{number}", attempt_id="a")
            trace.emit("attempt_sealed", group_id=f"g{number}", attempt_id="a", tokens=5)
            trace.emit("group_published", group_id=f"g{number}", tokens_by_version={0: 5})
            trace.emit("step_trained", step=number, trained_version=1, group_ids=[f"g{number}"])

    def check():
        # A replay of the file must show what the live run showed.
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from otel_rollout_trace import replay
        again = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(again))
        replay("log.jsonl", tracer_provider=provider)
        live, replayed = plain(seen.get_finished_spans()), plain(again.get_finished_spans())
        assert len(replayed) > 3
        assert live == replayed, (len(live), len(replayed))
    """


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(
            "work(trace, range(20)); trace.flush(); set_providers(); work(trace, range(20, 30))",
            id="in the middle",
        ),
        pytest.param(
            "work(trace, range(20)); set_providers(); work(trace, range(20, 30))", id="unflushed"
        ),
        pytest.param(
            "work(trace, range(20)); trace.flush(); set_providers(); trace.flush()",
            id="after the last event, and flushed",
        ),
        pytest.param(
            "work(trace, range(20)); trace.flush(); set_providers()", id="after the last event"
        ),
        pytest.param(
            "work(trace, range(20)); set_providers()", id="after the last event, unflushed"
        ),
    ],
)
def test_a_provider_set_later_gets_the_whole_run(tmp_path: Path, rest: str) -> None:
    """What happened before is read back from the file."""
    run_python(
        _START
        + f"""
    trace = RolloutTrace("log.jsonl")
    {rest}
    trace.close()
    check()
    """,
        cwd=tmp_path,
    )


def test_late_metrics_count_the_whole_run_once(tmp_path: Path) -> None:
    """Counters begin with what happened before the meter provider was set."""
    out, _ = run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    work(trace, range(20))
    trace.flush()
    set_providers()
    work(trace, range(20, 30))
    trace.close()
    data = json.loads(reader.get_metrics_data().to_json())
    for metric in data["resource_metrics"][0]["scope_metrics"][0]["metrics"]:
        if metric["name"] in ("rl.tokens", "rl.trace.events", "rl.batch_age"):
            print(metric["name"], [point["value"] for point in metric["data"]["data_points"]])
    """,
        cwd=tmp_path,
    )
    assert sorted(out.splitlines()) == [
        "rl.batch_age [1.0]",
        "rl.tokens [150]",
        "rl.trace.events [151]",
    ]


def test_a_log_that_is_open_before_its_provider_is_drained_before_it_shuts_down(
    tmp_path: Path,
) -> None:
    """Without a close: the interpreter's exit ends the log first, then the provider."""
    out, _ = run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    work(trace, range(3))
    trace.flush()
    set_providers()
    import atexit
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    class Printing(SpanExporter):
        def export(self, spans):
            for span in spans:
                print(span.name)
            return SpanExportResult.SUCCESS
    from opentelemetry import trace as tracing
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    tracing.get_tracer_provider().add_span_processor(BatchSpanProcessor(Printing()))
    work(trace, range(3, 5))
    trace.flush()  # by now the provider was found
    work(trace, range(5, 7))
    """,
        cwd=tmp_path,
    )
    assert sorted(out.split()) == ["rl.rollout.attempt"] * 7 + ["rl.rollout.group"] * 7 + ["rl.run"]
