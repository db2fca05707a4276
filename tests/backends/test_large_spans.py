"""Large spans and batches arrive, though receivers take no request of more than 4 MiB."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext
from support.jaeger import Jaeger
from support.otlp_receiver import MOST_BYTES, PROTOCOLS, OtlpReceiver
from support.programs import Finished, run_program
from support.wire import WireSpan

from otel_rollout_trace.setup.exporters import make_otlp_exporter

EMIT_LARGE = Path(__file__).parent / "programs" / "emit_large.py"

MB = 1_000_000
SPANS = 512

pytestmark = pytest.mark.parametrize("protocol", PROTOCOLS)


def batch(service: str, attributes: Sequence[dict[str, Any]]) -> list[ReadableSpan]:
    """A trace of its own, a span for each of the attributes."""
    trace_id = uuid4().int
    resource = Resource({"service.name": service})
    scope = InstrumentationScope("large")
    now = time.time_ns()
    return [
        ReadableSpan(
            f"work {number}",
            SpanContext(trace_id, number, is_remote=False),
            resource=resource,
            attributes=each,
            start_time=now,
            end_time=now + 1_000_000,
            instrumentation_scope=scope,
        )
        for number, each in enumerate(attributes, start=1)
    ]


def export(spans: list[ReadableSpan], endpoint: str, protocol: str) -> int:
    """Export spans at once, which succeeds; how many arrived."""
    exporter = make_otlp_exporter("traces", endpoint=endpoint, protocol=protocol)
    try:
        assert exporter.export(spans) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()
    arrived: int = exporter.arrived
    return arrived


def stored(jaeger: Jaeger, spans: list[ReadableSpan]) -> dict[str, WireSpan]:
    """What Jaeger has of a batch, by name."""
    context = spans[0].context
    assert context is not None
    return {span.name: span for span in jaeger.trace(f"{context.trace_id:032x}")}


# Batches


def large_batch() -> list[ReadableSpan]:
    return batch("large", [{"text": "x" * 20_000, "number": number} for number in range(SPANS)])


@pytest.mark.backend
def test_jaeger_has_every_span_of_a_large_batch(jaeger: Jaeger, protocol: str) -> None:
    spans = large_batch()
    assert export(spans, jaeger.otlp[protocol], protocol) == SPANS
    found = stored(jaeger, spans)
    assert {name: span.attributes["number"] for name, span in found.items()} == {
        span.name: number for number, span in enumerate(spans)
    }
    assert {len(span.attributes["text"]) for span in found.values()} == {20_000}


def test_a_large_batch_arrives_in_order_in_requests_that_fit(
    receiver: OtlpReceiver, protocol: str
) -> None:
    spans = large_batch()
    assert export(spans, receiver.endpoint(protocol), protocol) == SPANS
    assert [span.name for span in receiver.spans] == [span.name for span in spans]
    assert len(receiver.requests["trace"]) == 3
    assert max(request.ByteSize() for request in receiver.requests["trace"]) <= MOST_BYTES
    assert not receiver.refused


# Spans


@pytest.mark.backend
def test_jaeger_has_a_span_without_its_largest_attribute(jaeger: Jaeger, protocol: str) -> None:
    spans = batch("large", [{"a": 1}, {"huge": "é" * (3 * MB), "b": 2}, {"c": 3}])
    assert export(spans, jaeger.otlp[protocol], protocol) == 3
    found = stored(jaeger, spans)
    assert set(found) == {"work 1", "work 2", "work 3"}
    said = found["work 2"].attributes
    assert (said["b"], said["rl.attributes.dropped"]) == (2, ["huge"])
    assert "huge" not in said


def test_a_span_without_its_largest_attribute_arrives_with_the_others(
    receiver: OtlpReceiver, protocol: str
) -> None:
    spans = batch("large", [{"a": 1}, {"huge": "x" * (6 * MB), "b": 2}, {"c": 3}])
    assert export(spans, receiver.endpoint(protocol), protocol) == 3
    assert [span.attributes for span in receiver.spans] == [
        {"a": 1},
        {"b": 2, "rl.attributes.dropped": ["huge"]},
        {"c": 3},
    ]
    assert len(receiver.requests["trace"]) == 1


def test_an_attribute_of_nearly_the_limit_arrives(receiver: OtlpReceiver, protocol: str) -> None:
    spans = batch("large", [{"large": "x" * 3_900_000}])
    assert export(spans, receiver.endpoint(protocol), protocol) == 1
    assert len(receiver.spans[0].attributes["large"]) == 3_900_000


# Live runs


def live(log: Path, endpoint: str, protocol: str, *, groups: int = 4, field: int = 5 * MB) -> Any:
    """A live run with large fields, and what its program printed."""
    said: Finished = run_program(
        [EMIT_LARGE, log, str(groups), str(field)],
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "5",
            # So that all of it is one batch.
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
            "OTEL_METRICS_EXPORTER": "none",
        },
    )
    assert said.status == 0, said.errors
    return json.loads(said.output) | {"said": said.errors}


def names_of(groups: int) -> Counter[str]:
    return Counter({"rl.rollout.attempt": groups, "rl.rollout.group": groups, "rl.run": 1})


def test_all_spans_of_a_live_run_with_large_fields_arrive_and_are_counted(
    tmp_path: Path, receiver: OtlpReceiver, protocol: str
) -> None:
    log = tmp_path / "log.jsonl"
    figures = live(log, receiver.endpoint(protocol), protocol)
    assert Counter(span.name for span in receiver.spans) == names_of(4)
    assert figures["sent"] == figures["handed"] == 9
    assert max(request.ByteSize() for request in receiver.requests["trace"]) <= MOST_BYTES
    assert not receiver.refused
    for span in receiver.spans:
        if span.name == "rl.rollout.attempt":
            assert span.attributes["rl.attributes.dropped"] == ["rl.field.text"]
            (note,) = [event for event in span.events if event.name == "note"]
            assert note.attributes["rl.field.length"] == 5 * MB
            assert "rl.field.text" not in note.attributes
    # The log has it all, and the loss is said once.
    assert log.stat().st_size > 4 * 5 * MB
    assert figures["said"].count("rl.field.text") == 1
    assert figures["said"].count("WARNING") == 1


def test_a_replay_of_a_run_with_large_fields_sends_the_same(
    tmp_path: Path, receiver: OtlpReceiver, protocol: str
) -> None:
    log = tmp_path / "log.jsonl"
    live(log, receiver.endpoint(protocol), protocol)
    sent, receiver.requests["trace"] = receiver.spans, []
    to = ("--endpoint", receiver.endpoint(protocol), "--protocol", protocol)
    said = run_program(["-m", "otel_rollout_trace", "replay", log, "--json", *to])
    assert said.status == 0, said.errors
    (figures,) = json.loads(said.output)
    assert (figures["spans"], figures["not_sent"]) == (9, 0)
    assert sorted(receiver.spans, key=str) == sorted(sent, key=str)


class Once(OtlpReceiver):
    """Takes the first request with spans, and then none."""

    def take(self, signal: str, body: bytes, headers: dict[str, str]) -> bool:
        """See `OtlpReceiver`."""
        taken = super().take(signal, body, headers)
        self.behaviour = "unavailable"
        return taken


def test_where_only_the_first_request_arrives_the_spans_of_the_others_are_counted(
    tmp_path: Path, protocol: str
) -> None:
    # Three megabytes fit into a request, and no two of them: each attempt is in its own.
    with Once() as receiver:
        figures = live(tmp_path / "log.jsonl", receiver.endpoint(protocol), protocol, field=3 * MB)
    assert len(receiver.requests["trace"]) == 1
    assert figures["sent"] == len(receiver.spans) > 0
    missing = figures["handed"] - len(receiver.spans)
    assert missing > 0
    assert f"{missing} span(s) of run" in figures["said"]
