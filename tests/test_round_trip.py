"""Lines become spans, spans become the same lines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export import SpanExportResult
from support.logs import SAMPLES, any_logs, hostile_logs
from support.spans import as_multiset, built_spans, lines_of, plain, traced_spans

from otel_rollout_trace import JsonlSpanExporter, read_events
from otel_rollout_trace.events import Event


@given(any_logs())
def test_every_event_comes_back_from_the_spans_field_for_field(events: list[Event]) -> None:
    """Nothing is lost, doubled or changed on the way through spans."""
    assert as_multiset(lines_of(built_spans(events))) == as_multiset(events)


@given(any_logs())
def test_the_exporter_writes_the_events_in_time_order(events: list[Event]) -> None:
    """One export gives one file: all events, the earliest first."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.jsonl"
        exporter = JsonlSpanExporter(path)
        assert exporter.export(built_spans(events)) is SpanExportResult.SUCCESS
        exporter.shutdown()
        written = list(read_events(path, strict=True)) if events else []
    assert as_multiset(written) == as_multiset(events)
    times = [event["t"] for event in written]
    assert times == sorted(times)


@given(any_logs())
def test_a_second_round_trip_changes_nothing(events: list[Event]) -> None:
    """What came back goes through once more, and comes back the same."""
    once = sorted(lines_of(built_spans(events)), key=lambda event: event["t"])
    twice = lines_of(built_spans(once))
    assert as_multiset(twice) == as_multiset(once)


@given(any_logs())
def test_both_ways_of_sending_give_the_same_spans(events: list[Event]) -> None:
    """A tracer's span and a built one say the same, in ids, times, attributes, events, links."""
    built = [plain(span) for span in built_spans(events)]
    traced = [plain(span) for span in traced_spans(events)]
    assert traced == built


@given(any_logs())
def test_no_two_different_spans_have_one_id(events: list[Event]) -> None:
    """Backends keep one of two spans under one id, or show both: none is ever sent twice."""
    seen = [(span.trace_id, span.span_id) for span in map(plain, built_spans(events))]
    assert len(set(seen)) == len(seen)


@given(hostile_logs())
def test_every_span_can_be_encoded_as_otlp(events: list[Event]) -> None:
    """One value that protobuf cannot hold costs the attribute, or the whole batch."""
    spans = built_spans(events)
    encoded = [
        span
        for resource in encode_spans(spans).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    for span, sent in zip(spans, encoded, strict=True):
        assert len(sent.attributes) == len(span.attributes or {})
        assert [len(event.attributes) for event in sent.events] == [
            len(event.attributes or {}) for event in span.events
        ]


@given(hostile_logs())
def test_no_span_has_more_events_than_the_sdk_keeps(events: list[Event]) -> None:
    """Past 128 the SDK drops the oldest silently."""
    assert all(len(span.events) <= 128 for span in built_spans(events))


def _event(name: str, **fields: object) -> Event:
    return {"t": 1_790_000_000.5, "run": "a" * 32, "event": name, **fields}


# What looks like something else once it is an attribute.
_LOOK_ALIKES = [
    _event("trace_opened", pid="[1]"),
    _event("trace_gap", lost='{"a": 1}'),
    _event("weights_synced", calls="[]"),
    _event("group_reserved", group_id="g", expected_generations="{}"),
    _event("attempt_resumed", group_id="g", attempt_id="a", resumed_from="[x"),
    _event("step_trained", step=1, trained_version=1, group_ids="[]"),
    _event("step_trained", step=1, trained_version=1, group_ids=["[]", 1]),
    _event("note", text="[1]"),
    _event("note", **{"rl.log.line": "x"}),
    _event("group_published", group_id="g", tokens_by_version={"01": 1, "1": 2}),
    _event("group_published", group_id="g", tokens_by_version={"1": 2.0}),
    _event("group_published", group_id="g", tokens_by_version={"1": True}),
    _event("group_reserved", group_id="g", prompt_id=None),
    _event("group_reserved", group_id=1, weight_version=1.0),
    _event("attempt_sealed", group_id="g", attempt_id="a", tokens=True, reward=2**70),
]


@pytest.mark.parametrize("event", _LOOK_ALIKES, ids=lambda event: event["event"])
def test_a_value_that_looks_like_another_comes_back_as_it_was(event: Event) -> None:
    """Text that looks like JSON, numbers that equal others, and null."""
    assert as_multiset(lines_of(built_spans([event]))) == as_multiset([event])


@pytest.mark.parametrize(
    "event",
    [
        _event("group_published", group_id="g", tokens_by_version={"0": 2**62, "1": 2**62}),
        _event("group_published", group_id="g", tokens_by_version={"1": 2**62, "01": 2**62}),
        _event("note", number=2**64, nothing=None, deep={"a": [None]}),
        _event("attempt_sealed", group_id="g", attempt_id="a", tokens=2**63, reward=2**63),
    ],
    ids=["sum of counts", "counts of one version", "big field", "big tokens"],
)
def test_numbers_too_big_for_otlp_cost_no_attribute(event: Event) -> None:
    """They are shown as something that can be sent."""
    [*spans] = built_spans([event])
    [resource] = encode_spans(spans).resource_spans
    for span, sent in zip(spans, resource.scope_spans[0].spans, strict=True):
        assert len(sent.attributes) == len(span.attributes or {})


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_file_comes_back_whole(path: Path) -> None:
    """Files as they are found: several runs, torn lines, other words."""
    events = list(read_events(path))
    spans = built_spans(events)
    assert as_multiset(lines_of(spans)) == as_multiset(events)
    assert sorted(map(plain, spans)) == sorted(map(plain, traced_spans(events)))
