"""Memory is bounded, whatever never ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.spans import as_multiset, built_spans, lines_of, plain

from otel_rollout_trace.events import Event
from otel_rollout_trace.lifecycle import Attempt, Group, Lifecycle, Listener, runs, tracker

_RUN = "a" * 32


def _event(number: float, name: str, /, *, run: str = _RUN, **fields: Any) -> Event:
    return {"t": 1_790_000_000 + number, "run": run, "event": name, **fields}


class _Watch(Listener):
    """How many are out by what a listener is told."""

    def __init__(self) -> None:
        self.attempts = self.groups = 0

    def attempt_started(self, attempt: Attempt) -> None:
        self.attempts += 1

    def attempt_ended(self, attempt: Attempt) -> None:
        self.attempts -= 1

    def group_started(self, group: Group) -> None:
        self.groups += 1

    def group_ended(self, group: Group) -> None:
        self.groups -= 1


def test_attempts_that_never_end_push_the_oldest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as interrupted, with the reason; no event is lost, no span sent twice."""
    monkeypatch.setattr(tracker, "MOST_ATTEMPTS", 10)
    events = [_event(n, "attempt_dispatched", group_id="g1", attempt_id=f"a{n}") for n in range(25)]
    spans = built_spans(events)
    attempts = [span for span in spans if span.name == "rl.rollout.attempt"]
    errors = [(span.attributes or {})["error.type"] for span in attempts]
    pushed = attempts[: errors.count(tracker.EVICTED)]
    assert [(span.attributes or {})["rl.attempt.id"] for span in pushed] == [
        f"a{n}" for n in range(15)
    ]
    assert {(span.attributes or {})["rl.outcome"] for span in attempts} == {"interrupted"}
    assert {(span.attributes or {})["error.type"] for span in pushed} == {tracker.EVICTED}
    assert all(not span.status.is_unset for span in attempts)
    assert as_multiset(lines_of(spans)) == as_multiset(events)


def test_groups_that_never_end_push_the_oldest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as interrupted, with the reason; what comes for it later is on the run."""
    monkeypatch.setattr(tracker, "MOST_GROUPS", 10)
    events = [_event(n, "group_reserved", group_id=f"g{n}") for n in range(25)]
    events += [
        _event(30, "group_sealed", group_id="g0"),
        _event(31, "step_trained", step=1, trained_version=0, group_ids=["g1", "g24"]),
    ]
    spans = built_spans(events)
    groups = {
        (span.attributes or {})["rl.group.id"]: dict(span.attributes or {})
        for span in spans
        if span.name == "rl.rollout.group"
    }
    assert len(groups) == 25
    for number in range(15):
        said = groups[f"g{number}"]
        assert (said["rl.outcome"], said["rl.reason"]) == ("interrupted", tracker.EVICTED)
    assert groups["g24"]["rl.outcome"] == "trained"
    assert "rl.reason" not in groups["g23"]
    ids = [plain(span).span_id for span in spans]
    assert len(ids) == len(set(ids))
    assert as_multiset(lines_of(spans)) == as_multiset(events)


def test_what_is_open_is_bounded_over_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that nobody writes to any more gives way first."""
    monkeypatch.setattr(tracker, "MOST_ATTEMPTS", 10)
    monkeypatch.setattr(tracker, "MOST_GROUPS", 10)
    watch = _Watch()
    lifecycle = Lifecycle([watch])
    for number in range(100):
        run = f"{number // 20:032x}"
        lifecycle.feed(
            _event(
                number,
                "attempt_dispatched",
                run=run,
                group_id=f"g{number}",
                attempt_id=f"a{number}",
            )
        )
        assert watch.attempts <= 10
        assert watch.groups <= 10
    lifecycle.close()
    assert watch.attempts == watch.groups == 0


def test_a_step_that_names_more_groups_than_may_be_open_ends_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest of its own groups is pushed out while it is being read."""
    monkeypatch.setattr(tracker, "MOST_GROUPS", 3)
    ids = [f"g{n}" for n in range(8)]
    events = [_event(0, "step_trained", step=1, trained_version=0, group_ids=ids)]
    watch = _Watch()
    lifecycle = Lifecycle([watch])
    lifecycle.feed_all(events)
    assert watch.groups == 0
    spans = built_spans(events)
    assert len({plain(span).span_id for span in spans}) == len(spans) == 9
    assert as_multiset(lines_of(spans)) == as_multiset(events)


def test_ended_ids_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are: a late event begins none of them again."""
    monkeypatch.setattr(runs, "MOST_ENDED", 5)
    events: list[Event] = []
    for number in range(30):
        events += [
            _event(number, "attempt_dispatched", group_id=f"g{number}", attempt_id=f"a{number}"),
            _event(number, "attempt_sealed", group_id=f"g{number}", attempt_id=f"a{number}"),
            _event(number, "group_discarded", group_id=f"g{number}"),
        ]
    late = [
        _event(31, "attempt_sealed", group_id=f"g{number}", attempt_id=f"a{number}")
        for number in range(25, 30)
    ]
    spans = built_spans(events + late)
    assert len({plain(span).span_id for span in spans}) == len(spans) == 61
    assert as_multiset(lines_of(spans)) == as_multiset(events + late)


def test_a_run_pushed_out_ends_and_goes_on_without_a_span_sent_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Segments count on; what had ended, or was interrupted, does not begin again."""
    monkeypatch.setattr(runs, "MOST_RUNS", 2)
    events = [
        _event(n, "attempt_dispatched", run=run * 32, group_id="g1", attempt_id="a1")
        for n, run in enumerate("abc")
    ]
    events.append(_event(4, "attempt_sealed", run="a" * 32, group_id="g1", attempt_id="a1"))
    spans = built_spans(events)
    ids = [(span.trace_id, span.span_id) for span in map(plain, spans)]
    assert len(ids) == len(set(ids))
    assert as_multiset(lines_of(spans)) == as_multiset(events)
