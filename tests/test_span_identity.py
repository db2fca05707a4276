"""Every span's id can be computed, and is its own."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from opentelemetry import trace as api
from opentelemetry.trace import SpanContext
from support.logs import any_logs
from support.spans import PlainSpan, as_multiset, built_spans, lines_of, plain

from otel_rollout_trace import attempt_context
from otel_rollout_trace.events import Event
from otel_rollout_trace.spans import (
    attempt_span_id,
    group_span_id,
    group_trace_id,
    run_span_id,
    run_trace_id,
)

_RUN = "a" * 32


def _event(number: float, name: str, **fields: object) -> Event:
    return {"t": 1_790_000_000 + number, "run": _RUN, "event": name, **fields}


def _spans(events: list[Event]) -> list[PlainSpan]:
    return [plain(span) for span in built_spans(events)]


def _sha(text: str, size: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[: 2 * size], 16)


def test_ids_are_the_beginnings_of_hashes() -> None:
    """As the specification has them, for anyone to compute."""
    assert group_trace_id("r", "g") == _sha("r/g", 16)
    assert group_span_id("r", "g") == _sha("r/g/group", 8)
    assert attempt_span_id("r", "g", "a") == _sha("r/g/a", 8)
    assert run_trace_id("r", 3) == _sha("r/segment/3", 16)
    assert run_span_id("r", 3) == _sha("r/segment/3/run", 8)


def test_other_processes_reach_an_attempt_by_its_ids_alone() -> None:
    """Their spans hang under the attempt's, in its trace."""
    context = attempt_context(_RUN, "g", "a")
    parent: SpanContext = api.get_current_span(context).get_span_context()
    assert (parent.trace_id, parent.span_id) == (
        group_trace_id(_RUN, "g"),
        attempt_span_id(_RUN, "g", "a"),
    )
    assert parent.is_remote and parent.trace_flags.sampled
    unsampled = attempt_context(_RUN, "g", "a", sampled=False)
    assert not api.get_current_span(unsampled).get_span_context().trace_flags.sampled


@given(any_logs())
def test_groups_and_runs_are_roots_and_attempts_their_groups_children(events: list[Event]) -> None:
    """Each in the trace that its ids say; an attempt without a group is a root of its own."""
    spans = _spans(events)
    groups = {(span.trace_id, span.span_id) for span in spans if span.name == "rl.rollout.group"}
    for span in spans:
        if span.name != "rl.rollout.attempt":
            assert span.parent_id is None
        elif span.parent_id is not None:
            assert (span.trace_id, span.parent_id) in groups


# Logs in which something comes back that had ended.
_AGAIN = {
    "an attempt dispatched again after its end": [
        _event(0, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event(1, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=5),
        _event(2, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event(3, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=7),
    ],
    "an attempt id that another group used in between": [
        _event(0, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event(1, "attempt_sealed", group_id="g1", attempt_id="a1"),
        _event(2, "attempt_dispatched", group_id="g2", attempt_id="a1"),
        _event(3, "attempt_sealed", group_id="g2", attempt_id="a1"),
        _event(4, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event(5, "attempt_sealed", group_id="g1", attempt_id="a1"),
    ],
    "a group reserved again after it was discarded": [
        _event(0, "group_reserved", group_id="g1"),
        _event(1, "group_discarded", group_id="g1", reason="stale"),
        _event(2, "group_reserved", group_id="g1"),
        _event(3, "group_published", group_id="g1", tokens_by_version={"0": 3}),
    ],
    "attempts known by their generation only, of a group that has ended": [
        _event(0, "attempt_dispatched", group_id="g1", generation_index=0),
        _event(1, "group_discarded", group_id="g1", reason="stale"),
        _event(2, "attempt_dispatched", group_id="g1", generation_index=0),
        _event(3, "attempt_sealed", group_id="g1", generation_index=0, tokens=3),
        _event(4, "attempt_sealed", group_id="g1", generation_index=0, tokens=3),
    ],
    "one attempt in two groups at once": [
        _event(0, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event(1, "attempt_dispatched", group_id="g2", attempt_id="a1"),
        _event(2, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=1),
        _event(3, "attempt_sealed", group_id="g2", attempt_id="a1", tokens=2),
        _event(4, "attempt_sealed", attempt_id="a1", tokens=3),
    ],
    "an attempt that names its group late": [
        _event(0, "attempt_dispatched", attempt_id="a1"),
        _event(1, "attempt_sealed", attempt_id="a1", group_id="g1", tokens=1),
        _event(2, "attempt_sealed", attempt_id="a1", group_id="g1", tokens=1),
    ],
    "a group that is called like its attempt": [
        _event(0, "attempt_dispatched", attempt_id="1"),
        _event(1, "attempt_dispatched", attempt_id="1", group_id="1"),
        _event(2, "group_discarded", group_id="1"),
    ],
}


@pytest.mark.parametrize("events", _AGAIN.values(), ids=_AGAIN)
def test_what_comes_back_after_its_end_is_no_second_span(events: list[Event]) -> None:
    """One span for each id, and no event lost."""
    spans = built_spans(events)
    ids = [(span.trace_id, span.span_id) for span in map(plain, spans)]
    assert len(set(ids)) == len(ids)
    assert as_multiset(lines_of(spans)) == as_multiset(events)
