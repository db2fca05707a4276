"""The price of a stop, where traces are looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from opentelemetry.sdk.trace import ReadableSpan
from support.logs import simulations, temporary_log
from support.spans import Seen

from otel_rollout_trace import read_events, replay
from otel_rollout_trace.cost import cost_of
from otel_rollout_trace.events import Event

DATA = Path(__file__).parent / "data"


def _prices(path: Path) -> list[tuple[str, int, dict[str, object]]]:
    """Each ``rl.restore`` event: the run it is on, its time, its figures."""
    seen = Seen()
    replay(path, tracer_provider=seen.provider)
    return [
        (
            str((span.attributes or {})["rl.run.id"]),
            event.timestamp,
            {
                name.removeprefix("rl.restore."): list(value) if isinstance(value, tuple) else value
                for name, value in (event.attributes or {}).items()
            },
        )
        for span in _segments(seen)
        for event in span.events
        if event.name == "rl.restore"
    ]


def _segments(seen: Seen) -> list[ReadableSpan]:
    return [span for span in seen.spans if span.name == "rl.run"]


def test_the_run_that_made_up_for_the_stops_of_the_sample_says_what_they_cost() -> None:
    """Both, since the second run was stopped before it had."""
    path = DATA / "killed_and_restored.jsonl"
    expected = json.loads((DATA / "killed_and_restored.cost.json").read_text())
    runs = list(dict.fromkeys(event["run"] for event in read_events(path)))
    found = _prices(path)
    assert [run for run, _, _ in found] == [runs[2], runs[2]]
    assert [figures.pop("run") for _, _, figures in found] == runs[:2]
    for (_, time, figures), stop in zip(found, expected, strict=True):
        assert figures == stop
        assert time / 1e9 == pytest.approx(stop["stopped_at"] + stop["caught_up_s"])


@given(simulations())
def test_every_stop_that_was_made_up_for_by_a_restored_run_is_priced_once(
    events: list[Event],
) -> None:
    """With the figures that the log has by then."""
    with temporary_log(events) as path:
        found = _prices(path)
    restored = {event["run"] for event in events if event["event"] == "checkpoint_restored"}
    cost = cost_of(events)
    due = {
        stop.run: stop
        for stop in cost.stops
        if stop.caught_up_s is not None
        and any(
            step.run in restored
            and step.t == pytest.approx(stop.stopped_at + (stop.caught_up_s or 0.0), abs=1e-6)
            for step in cost.steps
        )
    }
    assert sorted(str(figures["run"]) for _, _, figures in found) == sorted(due)
    for _, _, figures in found:
        stop = due[str(figures["run"])]
        assert figures["downtime_s"] == stop.downtime_s
        assert figures["restored_step"] == stop.restored_step
        assert figures["caught_up_s"] == stop.caught_up_s
