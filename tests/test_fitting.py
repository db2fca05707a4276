"""Spans go out in requests that a receiver takes; what is too large says what it lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.span import TraceState
from support.logs import DATA
from support.spans import built_spans, traced_spans

from otel_rollout_trace import read_events
from otel_rollout_trace.events import Event as LogEvent
from otel_rollout_trace.setup.exporters import make_exporter, make_otlp_exporter
from otel_rollout_trace.setup.fitting import MOST_BYTES, FittingExporter
from otel_rollout_trace.setup.providers import CountingExporter
from otel_rollout_trace.setup.quiet import Quiet
from otel_rollout_trace.setup.sizes import origin_bound, span_bound
from otel_rollout_trace.spans import SpanRecord, names
from otel_rollout_trace.spans.batch import BatchSink

MIB = 1024 * 1024
SUCCESS, FAILURE = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
SCOPE = InstrumentationScope("test", "1")
RESOURCE = Resource({"service.name": "test"})


class Requests(SpanExporter):
    """Takes so many requests, and answers those after them with an error.

    Attributes:
        spans: of each request that was taken.
        tries: how many requests there were.
    """

    def __init__(self, takes: int = 1_000_000, *, raises: bool = False) -> None:
        self.spans: list[list[ReadableSpan]] = []
        self.tries = 0
        self._takes = takes
        self._raises = raises

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.tries += 1
        if self.tries > self._takes:
            if self._raises:
                raise OSError("the wire is cut")
            return FAILURE
        self.spans.append(list(spans))
        return SUCCESS

    @property
    def sizes(self) -> list[int]:
        """Of each request that was taken, in bytes."""
        return [encode_spans(spans).ByteSize() for spans in self.spans]

    @property
    def all(self) -> list[ReadableSpan]:
        """The spans of all requests."""
        return [span for spans in self.spans for span in spans]


def span_of(
    attributes: Any = None, *, number: int = 1, resource: Resource = RESOURCE, **parts: Any
) -> ReadableSpan:
    return ReadableSpan(
        parts.pop("name", "rl.rollout.attempt"),
        SpanContext(7, number, is_remote=False),
        resource=resource,
        attributes=attributes,
        start_time=1_700_000_000_000_000_000 + number,
        end_time=1_700_000_001_000_000_000 + number,
        instrumentation_scope=parts.pop("scope", SCOPE),
        **parts,
    )


def sent(span: ReadableSpan, most_bytes: int = MOST_BYTES) -> ReadableSpan:
    """What becomes of a span; the request must be small enough."""
    requests = Requests()
    fitting = FittingExporter(requests, most_bytes=most_bytes)
    assert fitting.export([span]) is SUCCESS
    (arrived,) = requests.all
    assert requests.sizes[0] <= most_bytes
    return arrived


def dropped(span: ReadableSpan) -> Any:
    return (span.attributes or {}).get("rl.attributes.dropped")


def bound_of(spans: Sequence[ReadableSpan]) -> int:
    """At most how large a request with spans of one origin is."""
    return origin_bound(RESOURCE, SCOPE) + sum(map(span_bound, spans))


# The bound

TEXTS = st.text(max_size=40) | st.text(st.characters(max_codepoint=127), max_size=300)
SCALARS = (
    TEXTS
    | st.booleans()
    | st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.binary(max_size=200)
)
VALUES = st.recursive(
    SCALARS | st.lists(st.integers(0, 2**40)) | st.lists(st.text()),
    lambda values: st.lists(values, max_size=6) | st.dictionaries(TEXTS, values, max_size=4),
    max_leaves=12,
)
ATTRIBUTES = st.dictionaries(st.text(min_size=1), VALUES, max_size=6)
STATES = st.lists(st.tuples(st.from_regex(r"\A[a-z]{1,9}\Z"), st.just("v" * 150)), max_size=3)
CONTEXTS = st.builds(
    SpanContext,
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
    trace_state=st.builds(TraceState, STATES),
)
TIMES = st.integers(0, 2**64 - 1)
RESOURCES = st.sampled_from(
    [RESOURCE, Resource({}), Resource({"é" * 99: ["x"] * 9, "n": 1}, "https://example.org/1")]
)
SCOPES = st.sampled_from(
    [None, SCOPE, InstrumentationScope("é" * 99, None, "https://example.org/1", {"n": -1, "": "x"})]
)
SPANS = st.builds(
    ReadableSpan,
    TEXTS,
    CONTEXTS,
    st.none() | CONTEXTS,
    RESOURCES,
    ATTRIBUTES | st.builds(BoundedAttributes, st.integers(0, 3), ATTRIBUTES),
    st.lists(st.builds(Event, TEXTS, st.none() | ATTRIBUTES, TIMES), max_size=4),
    st.lists(st.builds(Link, CONTEXTS, st.none() | ATTRIBUTES), max_size=3),
    st.sampled_from(SpanKind),
    status=st.builds(Status, st.just(StatusCode.ERROR), st.none() | TEXTS),
    start_time=TIMES,
    end_time=TIMES,
    instrumentation_scope=SCOPES,
)


@given(st.lists(SPANS, min_size=1, max_size=2))
@example([span_of({"k" * 200: -1, "n" * 20_000: [True, None, -(2**63)], "": ["x" * 31, ""]})])
@example([span_of({"t": ["界" * 30, "𝄞" * 30], "i": [2**62, 0], "n": [[[]], {}, {"": []}]})])
@example([span_of({"t": "x" * 3_000_000, "b": b"\0" * 200}, events=[Event("e" * 70_000, {}, 1)])])
def test_no_request_is_larger_than_the_sum_of_bounds(spans: list[ReadableSpan]) -> None:
    origins = {
        (id(span.resource), id(span.instrumentation_scope)): origin_bound(
            span.resource, span.instrumentation_scope
        )
        for span in spans
    }
    bound = sum(map(span_bound, spans)) + sum(origins.values())
    assert bound >= encode_spans(spans).ByteSize()
    for span in spans:
        alone = span_bound(span) + origin_bound(span.resource, span.instrumentation_scope)
        assert alone >= encode_spans([span]).ByteSize()


@pytest.mark.parametrize("made", [built_spans, traced_spans])
def test_the_bound_of_ordinary_spans_is_not_far_off(
    made: Callable[[list[LogEvent]], list[ReadableSpan]],
) -> None:
    for span in made(list(read_events(DATA / "steady.jsonl"))):
        assert span_bound(span) <= 2 * encode_spans([span]).ByteSize()


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        "é" * 100_000,
        ["a fair bit of text, more than thirty characters"] * 5_000,
        list(range(100_000)),
        [0.5] * 20_000,
    ],
    ids=["text", "no ASCII", "texts", "ints", "floats"],
)
def test_the_bound_of_a_large_value_is_close(value: Any) -> None:
    span = span_of({"large": value})
    assert span_bound(span) <= 1.25 * encode_spans([span]).ByteSize()


# Batches


def test_nothing_is_sent_of_an_empty_batch() -> None:
    requests = Requests()
    fitting = FittingExporter(requests)
    assert fitting.export([]) is SUCCESS
    assert (requests.tries, fitting.arrived) == (0, 0)


def test_what_fits_goes_out_as_it_is_in_one_request() -> None:
    requests = Requests()
    spans = built_spans(list(read_events(DATA / "steady.jsonl")))
    fitting = FittingExporter(requests)
    assert fitting.export(spans) is SUCCESS
    assert [list(map(id, part)) for part in requests.spans] == [list(map(id, spans))]
    assert fitting.arrived == len(spans)


def test_a_batch_exactly_at_the_limit_is_one_request_and_one_above_two() -> None:
    spans = [span_of({"text": "x" * 100}, number=number) for number in range(1, 11)]
    for most_bytes, parts in ((bound_of(spans), [10]), (bound_of(spans) - 1, [9, 1])):
        requests = Requests()
        FittingExporter(requests, most_bytes=most_bytes).export(spans)
        assert list(map(len, requests.spans)) == parts


def test_a_large_batch_is_split_in_order_into_few_requests() -> None:
    spans = [span_of({"text": "x" * 20_000}, number=number) for number in range(1, 513)]
    requests = Requests()
    fitting = FittingExporter(requests)
    assert fitting.export(spans) is SUCCESS
    assert list(map(id, requests.all)) == list(map(id, spans))
    assert len(requests.sizes) == 3
    assert max(requests.sizes) <= MOST_BYTES
    assert fitting.arrived == 512


LENGTHS = st.integers(0, 6_000)
PLAIN = st.builds(
    lambda texts, events, links, number: span_of(
        {f"field {place}": "x" * length for place, length in enumerate(texts)},
        events=[Event("happened", {"text": "y" * length}, 1) for length in events],
        links=[Link(SpanContext(8, 9, is_remote=False))] * links,
        number=number,
    ),
    st.lists(LENGTHS, max_size=5),
    st.lists(LENGTHS, max_size=5),
    st.integers(0, 150),
    st.integers(1, 2**32),
)


@given(st.lists(PLAIN, max_size=8), st.integers(1_000, 12_000))
def test_every_span_is_sent_once_in_order_in_requests_that_fit(
    spans: list[ReadableSpan], most_bytes: int
) -> None:
    requests = Requests()
    fitting = FittingExporter(requests, most_bytes=most_bytes)
    assert fitting.export(spans) is SUCCESS
    assert [span.context for span in requests.all] == [span.context for span in spans]
    assert fitting.arrived == len(spans)
    assert max(requests.sizes, default=0) <= most_bytes
    for arrived, span in zip(requests.all, spans, strict=True):
        too_large = encode_spans([span]).ByteSize() > most_bytes
        assert (arrived is not span) is too_large
        said = {name for name in arrived.attributes or {} if name.startswith("rl.")}
        assert bool(said) is too_large


def test_where_spans_are_from_counts_too() -> None:
    resources = [Resource({"text": "x" * 3_000, "number": number}) for number in range(4)]
    spans = [span_of({}, resource=resource) for resource in resources]
    requests = Requests()
    FittingExporter(requests, most_bytes=7_000).export(spans)
    assert list(map(len, requests.spans)) == [2, 2]
    assert max(requests.sizes) <= 7_000


# Spans that are too large


def test_one_huge_attribute_is_dropped_and_the_rest_of_the_span_is_the_same() -> None:
    span = ReadableSpan(
        "work",
        SpanContext(1, 2, is_remote=False, trace_state=TraceState([("a", "b")])),
        SpanContext(1, 3, is_remote=True),
        RESOURCE,
        {"small": 1, "huge": "x" * (6 * MIB), "text": "kept"},
        [Event("happened", {"step": 3}, 5)],
        [Link(SpanContext(8, 9, is_remote=False))],
        SpanKind.CLIENT,
        status=Status(StatusCode.ERROR, "failed"),
        start_time=4,
        end_time=6,
        instrumentation_scope=SCOPE,
    )
    arrived = sent(span)
    assert arrived.attributes == {"small": 1, "text": "kept", "rl.attributes.dropped": ("huge",)}
    wire, whole = (encode_spans([each]).resource_spans[0] for each in (arrived, span))
    assert wire.scope_spans[0].spans[0].dropped_attributes_count == 1
    for each in (wire, whole):
        each.scope_spans[0].spans[0].ClearField("attributes")
        each.scope_spans[0].spans[0].ClearField("dropped_attributes_count")
    assert wire == whole


def test_no_more_is_dropped_than_has_to_be_the_largest_first() -> None:
    arrived = sent(span_of({name: name * (size * MIB) for name, size in zip("abc", (2, 3, 1))}))  # noqa: B905 - of one length
    assert dropped(arrived) == ("b",)
    assert set(arrived.attributes or {}) == {"a", "c", "rl.attributes.dropped"}


def test_of_many_medium_attributes_as_many_are_kept_as_fit() -> None:
    arrived = sent(span_of({f"field {number:03}": "x" * 50_000 for number in range(100)}))
    kept = set(arrived.attributes or {}) - {"rl.attributes.dropped"}
    assert len(kept) == MOST_BYTES // 50_050
    assert list(dropped(arrived)) == sorted(dropped(arrived))
    assert kept.isdisjoint(dropped(arrived))
    assert len(kept) + len(dropped(arrived)) == 100


@pytest.mark.parametrize(
    ("value", "is_kept"),
    [
        ("界" * 33_000, True),
        ("界" * 34_000, False),  # of a third as many characters as bytes would fit
        (["text"] * 12_000, True),
        (["text"] * 13_000, False),
        ([0, 0.5] * 6_000, True),  # its bound alone is too large, and it is not
        ([{"depth": [[b"x" * 100]]}] * 1_000, False),
    ],
    ids=["CJK that fits", "CJK", "texts that fit", "texts", "numbers that fit", "nested"],
)
def test_a_large_value_of_any_kind_is_measured_in_bytes(value: Any, is_kept: bool) -> None:
    arrived = sent(span_of({"value": value}), 100_000)
    assert ("value" in (arrived.attributes or {})) is is_kept
    assert dropped(arrived) == (None if is_kept else ("value",))


def test_huge_attributes_of_events_and_links_are_dropped_and_named_on_the_span() -> None:
    events = [
        Event("small", {"a": 1}, 1),
        Event("large", {"text": "x" * (3 * MIB), "b": 2}, 2),
        Event("large", {"text": "x" * (3 * MIB)}, 3),
    ]
    links = [Link(SpanContext(8, 9, is_remote=False), {"why": "y" * (4 * MIB), "c": 3})]
    arrived = sent(span_of({"d": 4}, events=events, links=links))
    assert dropped(arrived) == ("text", "why")
    assert [(event.name, event.timestamp) for event in arrived.events] == [
        ("small", 1),
        ("large", 2),
        ("large", 3),
    ]
    assert [len(str((event.attributes or {}).get("text", ""))) for event in arrived.events] == [
        0,
        0,
        3 * MIB,
    ]
    assert arrived.events[1].attributes == {"b": 2}
    assert arrived.events[1].dropped_attributes == 1
    assert arrived.links[0].attributes == {"c": 3}


def test_what_a_status_says_is_dropped_as_an_attribute() -> None:
    status = Status(StatusCode.ERROR, "x" * (5 * MIB))
    arrived = sent(span_of({"a": 1}, status=status))
    assert arrived.status.status_code is StatusCode.ERROR
    assert arrived.status.description is None
    assert dropped(arrived) == ("status.description",)


def test_of_too_many_events_those_in_the_middle_are_dropped_and_counted() -> None:
    events = [Event("happened", {"step": step}, step) for step in range(3_000)]
    span = span_of({"rl.events.dropped": 20, "text": "x" * 500}, events=events)
    arrived = sent(span, 50_000)
    steps = [event.timestamp for event in arrived.events]
    said = (arrived.attributes or {})["rl.events.dropped"]
    gap = next(place for place, step in enumerate(steps) if step != place)
    assert isinstance(said, int)
    assert steps == [*range(gap), *range(3_000 - len(steps) + gap, 3_000)]
    assert abs(gap - len(steps) // 2) <= 1
    assert len(steps) + said - 20 == 3_000
    assert arrived.dropped_events == 3_000 - len(steps)
    assert encode_spans([arrived]).ByteSize() > 0.95 * 50_000
    assert dropped(arrived) is None


def test_of_too_many_links_the_last_are_dropped_and_counted() -> None:
    links = [Link(SpanContext(8, number, is_remote=False)) for number in range(1, 2_001)]
    arrived = sent(span_of({"a": 1}, links=links, events=[Event("e", {}, 1)]), 50_000)
    kept = [link.context.span_id for link in arrived.links]
    assert kept == list(range(1, len(kept) + 1))
    assert (arrived.attributes or {})["rl.links.dropped"] == 2_000 - len(kept)
    assert arrived.dropped_links == 2_000 - len(kept)


def test_of_very_many_small_attributes_as_many_are_kept_as_fit() -> None:
    arrived = sent(span_of({f"field {number:05}" * 10: "" for number in range(2_000)}), 100_000)
    assert arrived.dropped_attributes == 2_000 - (len(arrived.attributes or {}) - 1)
    assert len(dropped(arrived)) == 128
    assert encode_spans([arrived]).ByteSize() > 0.7 * 100_000


def test_a_huge_name_of_an_attribute_is_not_repeated_in_full() -> None:
    arrived = sent(span_of({"n" * (5 * MIB): 1, "a": 2}))
    assert dropped(arrived) == ("n" * 256,)


def test_a_span_that_nothing_makes_small_enough_is_sent_all_the_same() -> None:
    requests = Requests()
    fitting = FittingExporter(requests, most_bytes=10_000)
    spans = [
        span_of({"a": 1}, number=1),
        span_of({"a": 1}, number=2, name="x" * 20_000),
        span_of({"a": 1}, number=3),
    ]
    assert fitting.export(spans) is SUCCESS
    assert [[span.context.span_id for span in part] for part in requests.spans] == [[1], [2], [3]]


def test_a_span_that_cannot_be_encoded_is_left_to_the_exporter() -> None:
    requests = Requests()
    wrong: Any = 5
    spans = [span_of({"a": 1}), span_of({"a": 1}, name=wrong)]
    assert FittingExporter(requests).export(spans) is SUCCESS
    assert list(map(id, requests.all)) == list(map(id, spans))


def test_what_was_cut_is_said_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    fitting = FittingExporter(Requests(), most_bytes=10_000)
    for field in ("one", "two"):
        fitting.export([span_of({field: "x" * 20_000})])
    (message,) = [record.getMessage() for record in caplog.records]
    assert "rl.rollout.attempt" in message
    assert "(one)" in message


def test_nothing_is_said_where_nothing_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    spans = [span_of({"x": "x" * 4_000}, number=number) for number in range(1, 9)]
    FittingExporter(Requests(), most_bytes=10_000).export(spans)
    assert not caplog.records


# What arrived


def batch(count: int = 10) -> list[ReadableSpan]:
    """Spans of which two fit into a request of 10 000 bytes."""
    ours = InstrumentationScope(names.SCOPE)
    return [
        span_of({"x": "x" * 4_000}, number=number, scope=ours if number % 2 else SCOPE)
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("takes", range(6))
def test_after_a_request_that_fails_none_is_sent_and_what_arrived_is_known(takes: int) -> None:
    requests = Requests(takes)
    fitting = FittingExporter(requests, most_bytes=10_000)
    assert fitting.export(batch()) is (SUCCESS if takes == 5 else FAILURE)
    assert fitting.arrived == len(requests.all) == 2 * takes
    assert requests.tries == min(5, takes + 1)


def test_what_arrived_is_known_after_an_exception_and_is_of_the_latest_export() -> None:
    requests = Requests(2, raises=True)
    fitting = FittingExporter(requests, most_bytes=10_000)
    with pytest.raises(OSError, match="cut"):
        fitting.export(batch())
    assert fitting.arrived == 4
    with pytest.raises(OSError, match="cut"):
        fitting.export(batch())
    assert fitting.arrived == 0


@pytest.mark.parametrize("raises", [False, True])
def test_ours_that_arrived_are_counted_where_others_did_not(raises: bool) -> None:
    counting = CountingExporter(
        FittingExporter(Requests(2, raises=raises), most_bytes=10_000), "there"
    )
    counting.handed = 5
    assert counting.export(batch()) is FAILURE
    assert (counting.sent, counting.unsent()) == (2, 3)
    assert counting.outage.going_on


def test_a_replay_counts_those_of_a_batch_that_arrived() -> None:
    requests = Requests(2)
    sink = BatchSink(FittingExporter(requests, most_bytes=10_000), lambda _: RESOURCE)
    for number in range(1, 11):
        attributes: Any = {names.RUN_ID: "r", "x": "x" * 4_000}
        sink.emit(SpanRecord("work", 7, number, None, 1, 2, attributes, (), (), False))
    sink.flush()
    assert (sink.sent, sink.failed) == (4, 6)


def test_an_exporter_that_does_not_say_what_arrived_counts_as_before() -> None:
    counting = CountingExporter(Requests(0), "there")
    counting.handed = 5
    assert counting.export(batch()) is FAILURE
    assert counting.unsent() == 5


# Where it is


def test_otlp_exporters_of_spans_are_wrapped_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [
        make_otlp_exporter("traces", endpoint="http://localhost:1", protocol="grpc"),
        make_exporter("otlp", "traces", endpoint="http://localhost:1", protocol="http/protobuf"),
        make_exporter("otlp_proto_grpc", "traces"),
        make_exporter("otlp_proto_http", "traces"),
    ]
    others = [make_exporter("console", "traces"), make_otlp_exporter("metrics")]
    assert {type(exporter) for exporter in made} == {FittingExporter}
    assert not any(isinstance(exporter, FittingExporter) for exporter in others)
    for exporter in (*made, others[1]):
        exporter.shutdown()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_what_the_wrapped_exporter_logs_is_kept_back(protocol: str) -> None:
    made = make_otlp_exporter("traces", endpoint="http://localhost:1", protocol=protocol)
    quiet = Quiet(made)
    made.shutdown()
    assert made.force_flush()
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign,assignment] # a list is enough of a handler
    root = logging.getLogger("opentelemetry.exporter")
    root.addHandler(handler)
    try:
        with quiet.watch():
            assert made.export([span_of({"a": 1})]) is FAILURE
    finally:
        root.removeHandler(handler)
    assert "shutdown" in quiet.reason
    assert not said
