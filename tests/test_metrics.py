"""The metrics are the log's figures, and asking for them changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from support.logs import simulate, simulations, tangled_logs
from support.metrics import Figures

from otel_rollout_trace import batch_age_by_step
from otel_rollout_trace.events import Event
from otel_rollout_trace.lifecycle import Lifecycle
from otel_rollout_trace.metrics import MetricsView, RolloutMetrics, rollout_views
from otel_rollout_trace.metrics.accumulators import OTHER
from otel_rollout_trace.metrics.table import HISTOGRAMS
from otel_rollout_trace.projection import Projection
from otel_rollout_trace.spans import (
    attempt_span_id,
    group_span_id,
    group_trace_id,
)

_RUN = "a" * 32
_START = 1_790_000_000


def _event(number: float, name: str, /, **fields: Any) -> Event:
    return {"t": _START + number, "run": _RUN, "event": name, **fields}


class _Meters:
    """A meter provider, and what its readers show."""

    def __init__(self, readers: int = 1, **settings: Any) -> None:
        self.readers = [InMemoryMetricReader() for _ in range(readers)]
        self.provider = MeterProvider(self.readers, shutdown_on_exit=False, **settings)

    def project(self) -> Projection:
        """A projection of one more log."""
        return Projection(None, self.provider)

    @property
    def figures(self) -> Figures:
        """What the first reader shows now."""
        return Figures.of(self.readers[0])


def _figures_of(events: list[Event], *, close: bool = False, **settings: Any) -> Figures:
    meters = _Meters(**settings)
    projection = meters.project()
    projection.feed_all(events)
    if close:
        projection.close()
    return meters.figures


def _published(number: float, group: str, **counts: int) -> Event:
    by_version = {name.removeprefix("v"): tokens for name, tokens in counts.items()}
    return _event(number, "group_published", group_id=group, tokens_by_version=by_version)


def _trained(number: float, step: int, version: int, *groups: str) -> Event:
    return _event(
        number, "step_trained", step=step, trained_version=version, group_ids=list(groups)
    )


class TestBatchAge:
    @given(simulations() | tangled_logs())
    @hypothesis_settings(max_examples=30)
    def test_at_every_step_it_is_the_one_that_the_file_gives(self, events: list[Event]) -> None:
        """Of the events so far, exactly, a resumed run's included; the parts add up."""
        meters = _Meters()
        projection = meters.project()
        accumulators = RolloutMetrics()
        lifecycle = Lifecycle([accumulators])
        for number, event in enumerate(events):
            projection.feed(event)
            lifecycle.feed(event)
            if event["event"] != "step_trained":
                continue
            # What the step itself gives: an earlier try at it may have had counts.
            before = [each for each in events[:number] if each["event"] != "step_trained"]
            age = batch_age_by_step([*before, event]).get(event["step"])
            assert accumulators.batch_age == age
            figures = meters.figures
            assert figures.value("rl.batch_age") == age
            parts = [
                figures.value(f"rl.batch_age_{part}") for part in ("generation", "queue", "max")
            ]
            if age is None:
                assert parts == [None, None, None]
            else:
                assert parts[0] + parts[1] == pytest.approx(age)
                assert parts[2] >= age
        final = batch_age_by_step(events)
        last = next((e for e in reversed(events) if e["event"] == "step_trained"), None)
        if last is not None and accumulators.batch_age is not None:
            assert accumulators.batch_age == final[last["step"]]

    def test_a_step_without_counts_shows_no_age(self) -> None:
        """Unknown is not 0, and not the step before's."""
        events = [
            _published(0, "g1", v0=5),
            _trained(1, 1, 2, "g1"),
            _trained(2, 2, 2, "unknown"),
        ]
        figures = _figures_of(events)
        for name in ("", "_max", "_generation", "_queue"):
            assert figures.value(f"rl.batch_age{name}") is None
        assert figures.value("rl.batch_age_coverage") == 0
        assert figures.value("rl.step") == 2

    def test_coverage_is_the_share_of_groups_that_are_counted(self) -> None:
        """One of four here; the age is that of its tokens."""
        figures = _figures_of([_published(0, "g1", v1=5), _trained(1, 1, 2, *"abc", "g1")])
        assert figures.value("rl.batch_age_coverage") == 0.25
        assert figures.value("rl.batch_age") == 1

    def test_a_restored_checkpoint_says_what_generation_runs_on(self) -> None:
        """The weights are known before the first refit."""
        restored = _event(0, "checkpoint_restored", step=4, path="/c", weight_version=4)
        assert _figures_of([restored]).value("rl.weight_version") == 4

    @given(simulations())
    @hypothesis_settings(max_examples=30)
    def test_trained_tokens_by_age_add_up(self, events: list[Event]) -> None:
        """To the counted tokens of every group in every step, each at its age."""
        counts = {
            e["group_id"]: e["tokens_by_version"]
            for e in events
            if "published" in e["event"] and "group_id" in e
        }
        expected: Counter[str] = Counter()
        for event in events:
            for group in event["group_ids"] if event["event"] == "step_trained" else ():
                for version, tokens in counts[group].items():
                    expected[str(event["trained_version"] - int(version))] += tokens
        shown = _figures_of(events).by("rl.trained_tokens", "rl.token.age")
        assert shown == +expected

    def test_odd_ages_have_labels_of_their_own(self) -> None:
        """The very old are counted together; negative ones are a bug to be seen."""
        events = [_published(0, "g1", v0=1, v4=2, v5=4, v20=8, v21=16), _trained(1, 1, 20, "g1")]
        assert _figures_of(events).by("rl.trained_tokens", "rl.token.age") == {
            "16+": 3,
            "15": 4,
            "0": 8,
            "<0": 16,
        }


class TestCounters:
    @given(simulations())
    @hypothesis_settings(max_examples=30)
    def test_every_token_has_the_fate_that_the_log_says(self, events: list[Event]) -> None:
        """Counted here from the lines alone, run by run."""
        fates: Counter[str] = Counter()
        for run in dict.fromkeys(event["run"] for event in events):
            of_run = [event for event in events if event["run"] == run]
            sealed: Counter[str] = Counter()
            out: dict[str, int] = {}
            open_groups: set[str] = set()
            published = {
                e["group_id"]: sum(e["tokens_by_version"].values())
                for e in events
                if e["event"] == "group_published"
            }
            for event in of_run:
                name = event["event"]
                if name == "group_reserved":
                    open_groups.add(event["group_id"])
                elif name in ("attempt_dispatched", "attempt_resumed"):
                    out[event["attempt_id"]] = 0
                elif name == "weights_synced":
                    out.update({call: tokens for call, tokens in event["calls"] if call in out})
                elif name == "attempt_sealed":
                    sealed[event["group_id"]] += event["tokens"]
                    del out[event["attempt_id"]]
                elif name in ("attempt_refused", "attempt_abandoned"):
                    fates[name.removeprefix("attempt_")] += event["tokens"]
                    del out[event["attempt_id"]]
                elif name == "group_discarded":
                    fates["discarded"] += sealed[event["group_id"]]
                    open_groups.remove(event["group_id"])
                elif name == "step_trained":
                    for group in event["group_ids"]:
                        fates["trained"] += published[group]
                        open_groups.discard(group)
            fates["interrupted"] += sum(out.values()) + sum(sealed[g] for g in open_groups)
        assert _figures_of(events, close=True).by("rl.tokens", "rl.token.fate") == +fates

    def test_free_text_makes_no_time_series_without_end(self) -> None:
        """After so many reasons, and for long ones, it is `_OTHER`."""
        events = [
            _event(n, "attempt_abandoned", group_id="g", attempt_id=f"a{n}", reason=f"host {n}")
            for n in range(500)
        ]
        events += [_event(500, "group_discarded", group_id="g", reason="x" * 1000)]
        figures = _figures_of(events)
        reasons = figures.by("rl.attempts", "error.type")
        assert len(reasons) <= 51
        assert reasons[OTHER] >= 449
        assert sum(reasons.values()) == 500
        assert figures.by("rl.groups", "rl.reason") == {OTHER: 1}

    def test_ids_are_no_attributes(self) -> None:
        """Each would be a time series of its own."""
        figures = _figures_of(simulate(5), close=True)
        keys = {key for name in figures.points for label in figures.labels(name) for key in label}
        assert keys == {
            "rl.outcome",
            "error.type",
            "rl.reason",
            "rl.token.age",
            "rl.token.fate",
            "rl.checkpoint.action",
        }

    @given(simulations())
    @hypothesis_settings(max_examples=20)
    def test_what_is_open_goes_up_and_down_and_ends_at_0(self, events: list[Event]) -> None:
        """Both of them, for every log."""
        meters = _Meters()
        projection = meters.project()
        projection.feed_all(events)
        dispatched = sum(
            event["event"] in ("attempt_dispatched", "attempt_resumed") for event in events
        )
        ended = sum(
            event["event"] in ("attempt_sealed", "attempt_refused", "attempt_abandoned")
            for event in events
        )
        assert meters.figures.value("rl.active_attempts") == dispatched - ended
        projection.close()
        assert meters.figures.value("rl.active_attempts") == 0
        assert meters.figures.value("rl.open_groups") == 0
        assert meters.figures.value("rl.trace.events") == len(events)

    def test_unsaved_tokens_are_those_since_the_last_checkpoint(self) -> None:
        """What a kill now would cost."""
        events = [
            _event(0, "attempt_sealed", group_id="g", attempt_id="a1", tokens=5),
            _event(1, "checkpoint_published", step=1),
            _event(2, "attempt_sealed", group_id="g", attempt_id="a2", tokens=7),
            _event(3, "attempt_abandoned", group_id="g", attempt_id="a3", tokens=9),
            _event(4, "trace_gap", lost=3),
        ]
        figures = _figures_of(events)
        assert figures.value("rl.unsaved_tokens") == 7
        assert figures.value("rl.trace.dropped_events") == 3
        assert figures.by("rl.checkpoints", "rl.checkpoint.action") == {"published": 1}


class TestReading:
    def test_asking_resets_nothing(self) -> None:
        """Two readers see the same, each as often as it likes."""
        meters = _Meters(readers=2)
        meters.project().feed_all(simulate(1))
        seen = []
        for reader in (meters.readers[0], *meters.readers, meters.readers[1]):
            figures = Figures.of(reader)
            seen.append(
                {
                    name: sorted(
                        (sorted(dict(point.attributes).items()), getattr(point, "value", None))
                        for point in points
                    )
                    for name, points in figures.points.items()
                    if name != "rl.oldest_attempt.age"
                }
            )
        assert seen[0] == seen[1] == seen[2] == seen[3]
        assert len(seen[0]) > 15

    def test_two_logs_through_one_provider_add_up(self, caplog: pytest.LogCaptureFixture) -> None:
        """The instruments are made once, so the SDK has nothing to warn of."""
        meters = _Meters()
        first, second = simulate(1), simulate(2)
        for events in (first, second):
            projection = meters.project()
            projection.feed_all(events)
            projection.close()
        apart = [_figures_of(events, close=True) for events in (first, second)]
        together = meters.figures
        for name, label in (
            ("rl.tokens", "rl.token.fate"),
            ("rl.attempts", "rl.outcome"),
            ("rl.groups", "rl.outcome"),
            ("rl.trace.events", "none"),
        ):
            added = Counter(apart[0].by(name, label)) + Counter(apart[1].by(name, label))
            assert together.by(name, label) == added
        assert together.value("rl.batch_age") == apart[1].value("rl.batch_age")
        assert not caplog.records

    def test_a_callback_does_not_raise(self, caplog: pytest.LogCaptureFixture) -> None:
        """One that did would end the SDK's export thread; the others are shown still."""
        meters = _Meters()
        view = MetricsView(meters.provider, oldest_attempt=lambda: 1 // 0)
        Lifecycle([view.accumulators]).feed_all(simulate(1))
        view.accumulators.batch_age = object()  # type: ignore[assignment] # nothing to show
        view.accumulators.tokens = {0: 1}  # type: ignore[dict-item] # nor this
        figures = meters.figures
        assert figures.value("rl.step") is not None
        assert "rl.oldest_attempt.age" not in figures.points
        assert "rl.tokens" not in figures.points
        assert {record.levelname for record in caplog.records} == {"ERROR"}

    def test_how_long_the_oldest_attempt_has_been_out(self) -> None:
        """By the clock; nothing where none is out."""
        meters = _Meters()
        now = [_START + 100.0]
        started: list[int | None] = [None]
        view = MetricsView(meters.provider, oldest_attempt=lambda: started[0], clock=lambda: now[0])
        assert view.oldest_age() is None
        assert "rl.oldest_attempt.age" not in meters.figures.points
        started[0] = (_START + 40) * 1_000_000
        assert meters.figures.value("rl.oldest_attempt.age") == 60
        now[0] = _START + 1.0
        assert meters.figures.value("rl.oldest_attempt.age") == 0
        view.close()
        assert "rl.oldest_attempt.age" not in meters.figures.points

    def test_the_oldest_attempt_is_the_longest_out(self) -> None:
        """When it ends, the next one is."""
        meters = _Meters()
        projection = meters.project()
        assert projection.metrics is not None
        projection.metrics.clock = lambda: _START + 10.0
        ages = []
        for event in (
            _event(1, "attempt_dispatched", group_id="g", attempt_id="a1"),
            _event(3, "attempt_dispatched", group_id="g", attempt_id="a2"),
            _event(5, "attempt_sealed", group_id="g", attempt_id="a1"),
            _event(6, "attempt_sealed", group_id="g", attempt_id="a2"),
        ):
            projection.feed(event)
            ages.append(meters.figures.value("rl.oldest_attempt.age"))
        assert ages == [9, 9, 7, None]


class TestHistograms:
    _EVENTS = (
        _event(0, "group_reserved", group_id="g1"),
        _event(1, "attempt_dispatched", group_id="g1", attempt_id="a1"),
        _event(3, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=5),
        _published(4, "g1", v0=5),
        _event(5, "weights_synced", weight_version=1, duration_s=0.25, calls=[]),
        _trained(8, 1, 1, "g1"),
    )

    def test_durations_and_ages(self) -> None:
        """Of the attempt, the group, its wait, the refit; and the group's age."""
        figures = _figures_of(list(self._EVENTS))
        sums = {row.name: figures.points[row.name][0].sum for row in HISTOGRAMS}
        assert sums == {
            "rl.attempt.duration": 2,
            "rl.group.duration": 8,
            "rl.group.queue.duration": 4,
            "rl.group.age": 1,
            "rl.refit.duration": 0.25,
        }

    @pytest.mark.parametrize("views", [[], rollout_views()], ids=["advised", "by Views"])
    def test_bounds_fit_rollouts(self, views: list[Any]) -> None:
        """By the instruments' own advice, or the Views, whichever an SDK takes."""
        figures = _figures_of(list(self._EVENTS), views=views)
        for row in HISTOGRAMS:
            [point] = figures.points[row.name]
            assert tuple(point.explicit_bounds) == row.bounds
            assert set(point.attributes) == row.labels

    def test_exemplars_lead_into_the_traces(self) -> None:
        """To the computed ids, whatever span the thread has open."""
        meters = _Meters(exemplar_filter=AlwaysOnExemplarFilter())
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("user")
        with tracer.start_as_current_span("train"):
            meters.project().feed_all(self._EVENTS)
        figures = meters.figures
        trace_id = group_trace_id(_RUN, "g1")
        group = (trace_id, group_span_id(_RUN, "g1"))
        expected = {
            "rl.attempt.duration": (trace_id, attempt_span_id(_RUN, "g1", "a1")),
            "rl.group.duration": group,
            "rl.group.queue.duration": group,
            "rl.group.age": group,
        }
        for name, ids in expected.items():
            [exemplar] = figures.points[name][0].exemplars
            assert (exemplar.trace_id, exemplar.span_id) == ids
        for exemplar in figures.points["rl.refit.duration"][0].exemplars:
            assert not exemplar.trace_id
