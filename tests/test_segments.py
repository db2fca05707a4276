"""The spans of a run: short stretches of it, one after the other, that lose nothing."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from opentelemetry.sdk.trace import ReadableSpan
from support.logs import any_logs, simulations
from support.spans import as_multiset, built_spans, lines_of, plain, traced_spans

from otel_rollout_trace.events import Event, micros_of
from otel_rollout_trace.spans import run_span_id, run_trace_id

_RUN = "a" * 32
_START = 1_790_000_000


def _event(number: float, name: str, /, **fields: Any) -> Event:
    return {"t": _START + number, "run": _RUN, "event": name, **fields}


def _segments(events: list[Event], run: str = _RUN) -> list[ReadableSpan]:
    return [
        span
        for span in built_spans(events)
        if span.name == "rl.run" and (span.attributes or {})["rl.run.id"] == run
    ]


def _from_to(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None and span.end_time is not None
    return span.start_time / 1e9 - _START, span.end_time / 1e9 - _START


def test_a_segment_turns_at_100_events() -> None:
    """Well under the 128 that an SDK's span keeps."""
    segments = _segments([_event(n, "note", number=n) for n in range(250)])
    assert [len(span.events) for span in segments] == [100, 100, 50]
    assert [_from_to(span) for span in segments] == [(0, 99), (99, 199), (199, 249)]


def test_a_segment_turns_after_five_minutes_of_the_logs_time() -> None:
    """At the first event from then on, whatever it is about, which is still in it."""
    events = [
        _event(0, "trace_opened", pid=1),
        _event(299.999, "group_reserved", group_id="g1"),
        _event(300, "group_admitted", group_id="g1"),
        _event(301, "note"),
        _event(10_000, "note"),
        _event(10_001, "note"),
    ]
    segments = _segments(events)
    assert [_from_to(span) for span in segments] == [(0, 300), (300, 10_000), (10_000, 10_001)]
    assert [len(span.events) for span in segments] == [0, 2, 1]


@pytest.mark.parametrize("name", ["checkpoint_published", "checkpoint_saved"])
def test_a_segment_turns_at_a_published_checkpoint(name: str) -> None:
    """It is the last event in it; what a kill would cost begins there."""
    events = [_event(0, "note"), _event(1, name, step=1, path="/c"), _event(2, "note")]
    first, second = _segments(events)
    assert (_from_to(first), _from_to(second)) == ((0, 1), (1, 2))
    assert first.events[-1].name == "rl.checkpoint.published"
    assert len(second.events) == 1


def test_a_restored_checkpoint_turns_none() -> None:
    """A run begins with it."""
    events = [_event(0, "trace_opened", pid=1), _event(1, "checkpoint_restored", step=1)]
    assert len(_segments(events)) == 1


@pytest.mark.parametrize(
    "events",
    [
        [_event(n, "note", number=n) for n in range(100)],
        [_event(0, "note"), _event(1, "checkpoint_published", step=1)],
        [_event(0, "note"), _event(300, "note")],
    ],
    ids=["100 events", "checkpoint", "five minutes"],
)
def test_an_empty_last_one_is_not_sent(events: list[Event]) -> None:
    """The run's last event turned the segment; nothing came after."""
    [segment] = _segments(events)
    assert segment.end_time == round(events[-1]["t"] * 10**9)


def test_a_run_of_one_event_has_a_segment() -> None:
    """A process that only opened its log is there."""
    [segment] = _segments([_event(0, "trace_opened", pid=7)])
    assert _from_to(segment) == (0, 0)
    assert (segment.attributes or {})["rl.field.pid"] == 7


def test_the_last_one_ends_at_the_runs_last_event() -> None:
    """Also where that event is shown elsewhere."""
    events = [_event(0, "trace_opened", pid=1), _event(7, "group_reserved", group_id="g1")]
    [segment] = _segments(events)
    assert _from_to(segment) == (0, 7)


def _check(events: list[Event], spans: list[ReadableSpan]) -> None:
    runs = [span for span in spans if span.name == "rl.run"]
    by_run = groupby(
        sorted(runs, key=lambda span: str((span.attributes or {})["rl.run.id"])),
        key=lambda span: str((span.attributes or {})["rl.run.id"]),
    )
    found = {run: list(of_run) for run, of_run in by_run}
    assert found.keys() == {event["run"] for event in events}
    for run, of_run in found.items():
        indexes = [(span.attributes or {})["rl.segment.index"] for span in of_run]
        assert indexes == list(range(len(of_run)))
        for index, span in enumerate(map(plain, of_run)):
            assert (span.trace_id, span.span_id) == (
                run_trace_id(run, index),
                run_span_id(run, index),
            )
        assert all(len(span.events) <= 100 for span in of_run)


@given(any_logs())
def test_indexes_count_up_and_ids_are_computed(events: list[Event]) -> None:
    """For every log, through a tracer and built without one."""
    _check(events, built_spans(events))
    _check(events, traced_spans(events))


@given(simulations())
def test_each_starts_where_the_last_ended(events: list[Event]) -> None:
    """From the run's first event to its last, without a gap; nothing is lost."""
    spans = built_spans(events)
    for run in {event["run"] for event in events}:
        times = [micros_of(event["t"]) * 1000 for event in events if event["run"] == run]
        segments = [
            span
            for span in spans
            if span.name == "rl.run" and (span.attributes or {})["rl.run.id"] == run
        ]
        assert segments[0].start_time == times[0]
        assert segments[-1].end_time == times[-1]
        for before, after in pairwise(segments):
            assert before.end_time == after.start_time
        for segment in segments:
            inside = [event.timestamp for event in segment.events]
            assert all(
                (segment.start_time or 0) <= time <= (segment.end_time or 0) for time in inside
            )
    assert as_multiset(lines_of(spans)) == as_multiset(events)
