"""A live run, and a replay of the file that it wrote, are the same spans."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import assume, given
from support.logs import SAMPLES, any_logs, simulations, tangled_logs, temporary_log
from support.spans import PlainSpan, as_multiset, live_spans, replayed_spans

from otel_rollout_trace import read_events
from otel_rollout_trace.events import Event


def _one_run_after_the_other(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event["run"])


@given(any_logs())
def test_a_replay_makes_the_spans_of_the_live_run(events: list[Event]) -> None:
    """Ids, times, attributes, events, links and statuses, for any log of one run."""
    with temporary_log() as path:
        live = live_spans(path, events)
        assert replayed_spans(path) == live


@given(simulations() | tangled_logs().map(_one_run_after_the_other))
def test_a_replay_of_a_resumed_log_makes_the_spans_of_all_its_live_runs(
    events: list[Event],
) -> None:
    """Each run alone shows what the whole file does: links, and counts carried over."""
    assume(events)
    with temporary_log() as path:
        live: list[PlainSpan] = []
        for _, of_run in groupby(events, key=lambda event: event["run"]):
            live += live_spans(path, list(of_run))
        assert replayed_spans(path) == sorted(live, key=repr)


@given(simulations() | tangled_logs().map(_one_run_after_the_other))
def test_a_replay_of_one_run_makes_the_spans_it_has_in_the_whole_file(
    events: list[Event],
) -> None:
    """`replay(run=...)` differs from a replay of everything in what it leaves out only."""
    assume(events)
    with temporary_log(events) as path:
        runs = {event["run"] for event in events}
        apart = [span for run in runs for span in replayed_spans(path, run=run)]
        assert sorted(apart, key=repr) == replayed_spans(path)


def _event(run: str, number: float, name: str, **fields: object) -> Event:
    return {"t": 1_790_000_000 + number, "run": run * 32, "event": name, **fields}


# What one run must know of the others in its file.
_RESUMED = {
    "an attempt of which the log has only the end": [
        _event("a", 0, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=3),
        _event("b", 1, "attempt_resumed", group_id="g2", attempt_id="a2", resumed_from="a1"),
    ],
    "an attempt that a later run has": [
        _event("a", 0, "attempt_resumed", group_id="g1", attempt_id="a1", resumed_from="a2"),
        _event("b", 1, "attempt_dispatched", group_id="g2", attempt_id="a2"),
    ],
    "an id that the resuming run uses itself": [
        _event("a", 0, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event("b", 1, "attempt_dispatched", group_id="g2", attempt_id="a1"),
        _event("b", 2, "attempt_resumed", group_id="g2", attempt_id="a2", resumed_from="a1"),
    ],
    "counts that a later run has": [
        _event("a", 0, "step_trained", step=1, trained_version=2, group_ids=["g1"]),
        _event("b", 1, "group_published", group_id="g1", tokens_by_version={"1": 5}),
    ],
    "counts that two runs have": [
        _event("a", 0, "group_published", group_id="g1", tokens_by_version={"1": 5}),
        _event("b", 1, "step_trained", step=1, trained_version=2, group_ids=["g1"]),
        _event("b", 2, "group_published", group_id="g1", tokens_by_version={"0": 9}),
        _event("b", 3, "step_trained", step=2, trained_version=2, group_ids=["g1"]),
    ],
}


@pytest.mark.parametrize("events", _RESUMED.values(), ids=_RESUMED)
def test_what_a_run_knows_of_others_is_the_same_by_all_ways(
    events: list[Event], tmp_path: Path
) -> None:
    """Live, replayed alone, and replayed with the whole file."""
    path = tmp_path / "log.jsonl"
    live: list[PlainSpan] = []
    for run, of_run in groupby(events, key=lambda event: event["run"]):
        live += live_spans(path, list(of_run), run=run)
    whole = replayed_spans(path)
    alone = [span for run in ("a", "b") for span in replayed_spans(path, run=run * 32)]
    assert sorted(live, key=repr) == whole
    assert sorted(alone, key=repr) == whole


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_emitted_live_is_the_sample_replayed(path: Path, tmp_path: Path) -> None:
    """Whole files: every run of each emitted under its own id, into one new file."""
    copy = tmp_path / "log.jsonl"
    live: list[PlainSpan] = []
    for run, of_run in groupby(read_events(path), key=lambda event: event["run"]):
        live += live_spans(copy, list(of_run), run=run)
    written = list(read_events(copy, strict=True))
    assert replayed_spans(copy) == sorted(live, key=repr)
    assert as_multiset(read_events(path)) <= as_multiset(written)
