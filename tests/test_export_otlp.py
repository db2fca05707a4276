"""OTLP lines: the replay's spans, in the encoding that the Collector reads."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # no types
from hypothesis import given, settings
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from support.logs import DATA, EXAMPLE, any_logs, temporary_log, write_log
from support.wire import spans_of_json

from otel_rollout_trace import read_events
from otel_rollout_trace.events import Event
from otel_rollout_trace.exporting.otlp_json import LONGEST_LINE, OtlpJson
from otel_rollout_trace.replaying import Replayed, replay_into
from otel_rollout_trace.setup.configuring import resource_of_run
from otel_rollout_trace.spans.batch import BatchSink

KILLED = DATA / "killed_and_restored.jsonl"
_IDS = ("traceId", "spanId", "parentSpanId")


Lines = list[dict[str, Any]]


def exported(log: Path, *, metrics: bool = False) -> tuple[Lines, OtlpJson, Replayed]:
    """The lines of a log, what wrote them, and what was found."""
    file = io.BytesIO()
    export = OtlpJson(file, metrics=metrics)
    found = replay_into(log, export, listeners=export.begin(log))
    export.close()
    return [json.loads(line) for line in file.getvalue().splitlines()], export, found


def spans_in(lines: Lines) -> Lines:
    """The spans of all lines, in their order, as they are encoded."""
    return [
        span
        for line in lines
        for of_resource in line.get("resourceSpans", [])
        for of_scope in of_resource["scopeSpans"]
        for span in of_scope["spans"]
    ]


class _Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS


def sent_by_a_replay(log: Path) -> Lines:
    """A replay's spans as the SDK's exporter encodes them, with OTLP's ids in hex."""
    kept = _Kept()
    replay_into(log, BatchSink(kept, lambda _: Resource({})))
    request = encode_spans(kept.spans)
    spans = spans_in([MessageToDict(request, use_integers_for_enums=True)])
    for holder in [*spans, *(link for span in spans for link in span.get("links", []))]:
        holder |= {name: base64.b64decode(holder[name]).hex() for name in _IDS if name in holder}
    return json.loads(json.dumps(spans))  # type: ignore[no-any-return] # of the same type


@settings(max_examples=20)
@given(any_logs().filter(bool))
def test_the_spans_are_those_of_a_replay(events: list[Event]) -> None:
    """To the last digit, through the SDK's own encoder."""
    with temporary_log(events) as path:
        lines, export, found = exported(path)
        assert spans_in(lines) == sent_by_a_replay(path)
    assert export.written["spans"] == found.spans


@pytest.mark.parametrize("path", [EXAMPLE, KILLED], ids=lambda path: path.stem)
def test_they_have_the_resource_and_scope_of_a_replay(path: Path) -> None:
    lines, _, found = exported(path)
    spans = [span for line in lines for span in spans_of_json(line["resourceSpans"])]
    assert len(spans) == found.spans
    opened = {
        event["run"]: event
        for event in read_events(path)
        if event["event"] in ("trace_opened", "run_started", "trace_started")
    }
    for span in spans:
        run = span.attributes["rl.run.id"]
        assert span.resource == dict(resource_of_run(run, opened.get(run, {})).attributes)
        assert span.scope == "otel_rollout_trace"


def test_a_line_is_of_one_run_and_no_longer_than_a_receiver_reads(tmp_path: Path) -> None:
    events = list(read_events(EXAMPLE))
    note = {"run": events[0]["run"], "event": "note", "text": "x" * 300_000}
    many = [*events, *({"t": 1_790_000_009.0 + n, **note} for n in range(8))]
    # Each of the two has a span of its own, of more than a third of a line.
    split = [
        {"t": 1_790_000_020.0 + n, "run": note["run"], "event": "group_discarded"}
        | {"group_id": f"x{n}", "text": "y" * 400_000}
        for n in range(4)
    ]
    path = write_log(tmp_path / "log.jsonl", [*split, *events])
    lines, export, _ = exported(path)
    assert len(lines) > 1
    assert all(len(json.dumps(line)) <= LONGEST_LINE for line in lines)
    assert export.advice == ""
    # One that is longer by itself is written as it is, which is said.
    lines, export, _ = exported(write_log(tmp_path / "long.jsonl", many))
    assert spans_in(lines) == sent_by_a_replay(tmp_path / "long.jsonl")
    assert export.long_lines == 1
    assert "max_log_size" in export.advice


def test_half_a_surrogate_pair_harms_no_other_span(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(EXAMPLE.read_text().replace('"timeout"', '"\\ud800"'))
    lines, _, found = exported(path)
    assert len(spans_in(lines)) == found.spans == 5


def test_with_metrics_the_history_is_in_lines_of_its_own() -> None:
    lines, export, _ = exported(EXAMPLE, metrics=True)
    assert spans_in(lines) == spans_in(exported(EXAMPLE)[0])
    metrics = {
        metric["name"]: metric
        for line in lines
        for of_resource in line.get("resourceMetrics", [])
        for of_scope in of_resource["scopeMetrics"]
        for metric in of_scope["metrics"]
    }
    [point] = [p for p in metrics["rl.batch_age"]["gauge"]["dataPoints"] if "asDouble" in p]
    assert point["asDouble"] == 1.25
    assert point["timeUnixNano"] == "1790000008000000000"
    assert export.written["data points"] > 5
