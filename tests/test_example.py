"""The small log that is worked through by hand, figure for figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from support.logs import EXAMPLE
from support.metrics import Figures
from support.spans import Seen, emit_all

from otel_rollout_trace import RolloutTrace, batch_age_by_step, read_events, replay

_START = 1_790_000_000
_RUN = "5f0c1e7a9b3d4c2e8a6f0b1d2c3e4f50"


class _Shown:
    """The example, as a backend got it."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    @property
    def figures(self) -> Figures:
        return Figures.of(self.reader)

    def span(self, span_id: str) -> ReadableSpan:
        """The only span of that id."""
        [span] = [
            span
            for span in self.seen.spans
            if f"{span.get_span_context().span_id:016x}" == span_id  # type: ignore[union-attr] # ended
        ]
        return span


@pytest.fixture(params=["live", "replayed"])
def shown(request: pytest.FixtureRequest, tmp_path: Path) -> _Shown:
    shown = _Shown()
    if request.param == "replayed":
        replay(EXAMPLE, tracer_provider=shown.seen.provider, meter_provider=shown.meters)
        return shown
    events = list(read_events(EXAMPLE))
    with RolloutTrace(
        tmp_path, tracer_provider=shown.seen.provider, meter_provider=shown.meters, run=_RUN
    ) as trace:
        # The recorder's own first line is written now, not when the example was.
        emit_all(trace, events[1:])
    return shown


def _seconds(nanos: int) -> float:
    return (nanos - _START * 10**9) / 1e9


def _from_to(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None and span.end_time is not None
    return _seconds(span.start_time), _seconds(span.end_time)


def _events(span: ReadableSpan) -> list[tuple[str, float]]:
    return [(event.name, _seconds(event.timestamp)) for event in span.events]


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    ("span_id", "name", "times", "outcome", "error"),
    [
        ("3e31d9f57b8b36ce", "rl.rollout.group", (0.5, 8), "trained", None),
        ("6a8b7e0088455953", "rl.rollout.attempt", (1, 4), "sealed", None),
        ("d4bad8bc7778e529", "rl.rollout.attempt", (1.25, 3), "abandoned", "timeout"),
        ("cd59f665fb07d92b", "rl.rollout.attempt", (3.25, 5), "sealed", None),
    ],
)
def test_the_groups_trace(
    shown: _Shown,
    span_id: str,
    name: str,
    times: tuple[float, float],
    outcome: str,
    error: str | None,
) -> None:
    """Ids, parents, times, outcomes and statuses of the group and its three attempts."""
    span = shown.span(span_id)
    context = span.get_span_context()
    assert context is not None
    assert f"{context.trace_id:032x}" == "32efd1092b96a4574918caba0e94281c"
    assert span.name == name
    assert _from_to(span) == times
    assert _attributes(span)["rl.outcome"] == outcome
    assert _attributes(span).get("error.type") == error
    assert span.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)
    if name == "rl.rollout.group":
        assert span.parent is None
    else:
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == "3e31d9f57b8b36ce"


def test_the_attempts_refits(shown: _Shown) -> None:
    """Each attempt has the refits it saw, with the tokens it had by then."""
    a1, a2, a3 = map(shown.span, ("6a8b7e0088455953", "d4bad8bc7778e529", "cd59f665fb07d92b"))
    for span, generated in ((a1, 40), (a2, 30)):
        assert _events(span) == [("rl.refit", 2)]
        assert dict(span.events[0].attributes or {}) == {
            "rl.weight_version.replaced": 0,
            "rl.weight_version": 1,
            "rl.tokens.generated": generated,
            "rl.refit.duration": 0.25,
        }
    assert _events(a3) == []


def test_the_attempts_attributes(shown: _Shown) -> None:
    """What the log says of an attempt, and its tokens split where the refit cut them."""
    assert _attributes(shown.span("6a8b7e0088455953")) == {
        "rl.run.id": _RUN,
        "rl.group.id": "g1",
        "rl.attempt.id": "a1",
        "rl.prompt.id": 17,
        "rl.generation.index": 0,
        "rl.weight_version": 0,
        "rl.outcome": "sealed",
        "rl.reward": 1.0,
        "rl.tokens.total": 100,
        "rl.tokens.versions": (0, 1),
        "rl.tokens.counts": (40, 60),
        "gen_ai.usage.output_tokens": 100,
    }
    a2 = _attributes(shown.span("d4bad8bc7778e529"))
    assert a2["rl.reason"] == "timeout"
    assert a2["rl.tokens.total"] == 55
    assert "rl.reward" not in a2


def test_the_groups_events_and_attributes(shown: _Shown) -> None:
    """Admission, seal, publication and step, and the group's own batch age."""
    group = shown.span("3e31d9f57b8b36ce")
    assert _events(group) == [
        ("rl.group.admitted", 0.75),
        ("rl.group.sealed", 5.5),
        ("rl.group.published", 6),
        ("rl.step", 8),
    ]
    assert dict(group.events[3].attributes or {}) == {
        "rl.step": 3,
        "rl.weight_version.trained": 2,
        "rl.batch_age": 1.25,
    }
    assert _attributes(group) == {
        "rl.run.id": _RUN,
        "rl.group.id": "g1",
        "rl.prompt.id": 17,
        "rl.field.expected_generations": 2,
        "rl.weight_version": 0,
        "rl.outcome": "trained",
        "rl.step": 3,
        "rl.batch_age": 1.25,
        "rl.tokens.total": 160,
        "rl.tokens.versions": (0, 1),
        "rl.tokens.counts": (40, 120),
    }


def test_the_run_segment() -> None:
    """One segment, from the first event to the last, with the refits and the step."""
    shown = _Shown()
    replay(EXAMPLE, tracer_provider=shown.seen.provider)
    run = shown.span("bbbae74916f813af")
    context = run.get_span_context()
    assert context is not None
    assert f"{context.trace_id:032x}" == "c78d424fc86493b9e5a715542f0b165d"
    assert (run.name, run.parent, _from_to(run)) == ("rl.run", None, (0, 8))
    assert _events(run) == [("rl.refit", 2), ("rl.refit", 7), ("rl.step", 8)]
    step = dict(run.events[2].attributes or {})
    assert step["rl.group.ids"] == ("g1",)
    assert step["rl.field.loss"] == 0.125
    assert step["rl.batch_age"] == 1.25
    assert len(shown.seen.spans) == 5


def test_the_metrics(shown: _Shown) -> None:
    """The batch age and its parts, and where every token went."""
    figures = shown.figures
    assert figures.value("rl.batch_age") == 1.25
    assert figures.value("rl.batch_age_max") == 2
    assert figures.value("rl.batch_age_generation") == 0.25
    assert figures.value("rl.batch_age_queue") == 1.0
    assert figures.value("rl.batch_age_coverage") == 1
    assert figures.by("rl.trained_tokens", "rl.token.age") == {"1": 120, "2": 40}
    assert figures.by("rl.tokens", "rl.token.fate") == {"trained": 160, "abandoned": 55}
    assert figures.by("rl.attempts", "rl.outcome") == {"sealed": 2, "abandoned": 1}
    assert figures.by("rl.groups", "rl.outcome") == {"trained": 1}
    assert figures.value("rl.weight_version") == 2
    assert figures.value("rl.step") == 3
    assert figures.value("rl.active_attempts") == figures.value("rl.open_groups") == 0
    assert figures.value("rl.trace.events") == 14


def test_the_batch_age() -> None:
    """(40 (2 - 0) + 120 (2 - 1)) / 160."""
    assert batch_age_by_step(read_events(EXAMPLE)) == {3: 1.25}


def test_what_a_replay_reports() -> None:
    """The tally of the example: 215 tokens generated = 160 trained + 55 abandoned."""
    found = replay(EXAMPLE)
    assert (found.events, found.bad_lines, found.runs, found.spans) == (14, 0, 1, 5)
    assert found.attempts == {"sealed": 2, "abandoned": 1}
    assert found.groups == {"trained": 1}
    assert found.tokens == {"trained": 160, "abandoned": 55}
    assert found.batch_age == {3: 1.25}
