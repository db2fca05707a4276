"""What the spans say: how things ended, what happened to them, and where it is shown."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from support.spans import as_multiset, built_spans, lines_of, plain, traced_spans

from otel_rollout_trace.events import Event
from otel_rollout_trace.spans import attempt_span_id, group_span_id, group_trace_id

_RUN = "a" * 32
_START = 1_790_000_000


def _event(number: float, name: str, /, *, run: str = _RUN, **fields: Any) -> Event:
    return {"t": _START + number, "run": run, "event": name, **fields}


def _reserved(number: float = 0, group: str = "g1") -> Event:
    return _event(number, "group_reserved", group_id=group)


def _dispatched(number: float = 1, attempt: str = "a1", group: str = "g1", **more: Any) -> Event:
    return _event(number, "attempt_dispatched", group_id=group, attempt_id=attempt, **more)


def _refit(number: float, version: int, *calls: tuple[str, int]) -> Event:
    return _event(
        number,
        "weights_synced",
        replaced_version=version - 1,
        weight_version=version,
        calls=[list(call) for call in calls],
    )


def _only(spans: list[ReadableSpan], span_id: int) -> ReadableSpan:
    [span] = [span for span in spans if plain(span).span_id == span_id]
    return span


def _attempt(spans: list[ReadableSpan], attempt: str = "a1", group: str = "g1") -> ReadableSpan:
    return _only(spans, attempt_span_id(_RUN, group, attempt))


def _group(spans: list[ReadableSpan], group: str = "g1") -> ReadableSpan:
    return _only(spans, group_span_id(_RUN, group))


def _on_runs(spans: list[ReadableSpan]) -> list[str]:
    return [event.name for span in spans if span.name == "rl.run" for event in span.events]


def _said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _seconds(nanos: int | None) -> float:
    assert nanos is not None
    return nanos / 1e9 - _START


def _notes(count: int, **fields: Any) -> list[Event]:
    """Events of no row, a millisecond apart, numbered."""
    return [_event(2 + n / 1000, "note", number=n, **fields) for n in range(count)]


def _numbers(span: ReadableSpan) -> list[int]:
    return [
        number
        for event in span.events
        if isinstance(number := (event.attributes or {}).get("rl.field.number"), int)
    ]


class TestHowAttemptsEnd:
    @pytest.mark.parametrize("spans_of", [built_spans, traced_spans])
    @pytest.mark.parametrize(
        ("name", "reason", "outcome", "error"),
        [
            ("attempt_sealed", None, "sealed", None),
            ("attempt_refused", "too_long", "refused", "too_long"),
            ("attempt_abandoned", "timeout", "abandoned", "timeout"),
            ("attempt_refused", None, "refused", "refused"),
            ("attempt_abandoned", None, "abandoned", "abandoned"),
            ("attempt_abandoned", "", "abandoned", "abandoned"),
            (None, None, "interrupted", "interrupted"),
        ],
    )
    def test_outcome_status_and_error(
        self, name: str | None, reason: str | None, outcome: str, error: str | None, spans_of: Any
    ) -> None:
        """Only a sealed one is no error; what has no reason has its outcome for one."""
        events = [_reserved(), _dispatched(), _event(3, "heartbeat")]
        if name is not None:
            fields = {"reason": reason} if reason is not None else {}
            events.insert(2, _event(2, name, group_id="g1", attempt_id="a1", tokens=7, **fields))
        span = _attempt(spans_of(events))
        assert _said(span)["rl.outcome"] == outcome
        assert _said(span).get("error.type") == error
        assert _said(span).get("rl.reason") == reason
        assert span.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)
        assert _seconds(span.end_time) == (2 if name is not None else 3)
        assert _said(span).get("rl.tokens.total") == (7 if name is not None else None)

    def test_a_long_reason_is_whole_and_its_error_type_short(self) -> None:
        """Free text stays readable without making every error a type of its own."""
        reason = "Traceback " * 100
        ended = _event(2, "attempt_abandoned", group_id="g1", attempt_id="a1", reason=reason)
        said = _said(_attempt(built_spans([_dispatched(), ended])))
        assert said["rl.reason"] == reason
        assert reason.startswith(said["error.type"]) and len(said["error.type"]) <= 120

    def test_one_that_was_never_dispatched_is_a_moment_long(self) -> None:
        """The log has its end only; nothing is made up, and the line comes back."""
        events = [_event(5, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=3)]
        spans = built_spans(events)
        span = _attempt(spans)
        assert (_seconds(span.start_time), _seconds(span.end_time)) == (5, 5)
        assert as_multiset(lines_of(spans)) == as_multiset(events)


class TestHowGroupsEnd:
    @pytest.mark.parametrize("spans_of", [built_spans, traced_spans])
    @pytest.mark.parametrize(
        ("end", "outcome", "reason"),
        [
            (
                _event(2, "step_trained", step=1, trained_version=0, group_ids=["g1"]),
                "trained",
                None,
            ),
            (
                _event(2, "group_discarded", group_id="g1", reason="no_signal"),
                "discarded",
                "no_signal",
            ),
            (_event(2, "group_discarded", group_id="g1"), "discarded", None),
            (_event(2, "heartbeat"), "interrupted", None),
        ],
        ids=["trained", "discarded", "discarded without a reason", "interrupted"],
    )
    def test_no_end_of_a_group_is_an_error(
        self, end: Event, outcome: str, reason: str | None, spans_of: Any
    ) -> None:
        """Filtering is normal; why it was discarded is said."""
        span = _group(spans_of([_reserved(), end]))
        said = _said(span)
        assert said["rl.outcome"] == outcome
        assert said.get("rl.reason") == reason
        assert "error.type" not in said
        assert span.status.is_unset
        assert (_seconds(span.start_time), _seconds(span.end_time)) == (0, 2)

    def test_a_step_that_names_a_group_twice_ends_it_once(self) -> None:
        """And one that the log has not named is there for that moment."""
        step = _event(2, "step_trained", step=1, trained_version=0, group_ids=["g1", "g1", "g2"])
        spans = [span for span in built_spans([_reserved(), step]) if "group" in span.name]
        assert len(spans) == 2
        assert {_said(span)["rl.outcome"] for span in spans} == {"trained"}


class TestRefits:
    def test_they_are_on_exactly_the_attempts_that_were_out(self) -> None:
        """With the tokens by then, where the refit counted them."""
        events = [
            _dispatched(0, "before"),
            _event(1, "attempt_sealed", group_id="g1", attempt_id="before", tokens=1),
            _dispatched(1, "counted"),
            _dispatched(1, "uncounted"),
            _refit(2, 1, ("counted", 40), ("before", 9)),
            _dispatched(3, "between"),
            _refit(4, 2, ("counted", 60), ("between", 5)),
            _dispatched(5, "after"),
            _event(6, "attempt_sealed", group_id="g1", attempt_id="counted", tokens=100),
        ]
        spans = built_spans(events)
        seen = {
            name: [
                (_seconds(event.timestamp), (event.attributes or {}).get("rl.tokens.generated"))
                for event in _attempt(spans, name).events
                if event.name == "rl.refit"
            ]
            for name in ("before", "counted", "uncounted", "between", "after")
        }
        assert seen == {
            "before": [],
            "counted": [(2, 40), (4, 60)],
            "uncounted": [(2, None), (4, None)],
            "between": [(4, 5)],
            "after": [],
        }
        assert _on_runs(spans) == ["rl.refit", "rl.refit"]

    def test_tokens_are_split_by_the_version_that_made_them(self) -> None:
        """Before, between and after the cuts; the parts add up."""
        events = [
            _dispatched(weight_version=3),
            _refit(2, 4, ("a1", 40)),
            _refit(3, 5, ("a1", 70)),
            _event(4, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=100),
        ]
        said = _said(_attempt(built_spans(events)))
        assert said["rl.tokens.versions"] == (3, 4, 5)
        assert said["rl.tokens.counts"] == (40, 30, 30)
        assert said["gen_ai.usage.output_tokens"] == 100

    def test_without_a_count_at_every_cut_nothing_is_split(self) -> None:
        """A guess would be a wrong age."""
        events = [
            _dispatched(weight_version=3),
            _refit(2, 4),
            _event(4, "attempt_sealed", group_id="g1", attempt_id="a1", tokens=100),
        ]
        said = _said(_attempt(built_spans(events)))
        assert "rl.tokens.versions" not in said
        assert said["rl.tokens.total"] == 100

    def test_an_interrupted_attempt_has_the_tokens_that_the_last_refit_counted(self) -> None:
        """What the kill cost, as far as the log knows."""
        said = _said(_attempt(built_spans([_dispatched(), _refit(2, 1, ("a1", 40)), _refit(3, 2)])))
        assert said["rl.tokens.total"] == said["gen_ai.usage.output_tokens"] == 40

    def test_thousands_on_a_stuck_attempt_stay_bounded_and_it_says_so(self) -> None:
        """Shown and left out add up; the first and the last are shown; the run has them all."""
        count = 3_000
        events = [_dispatched(), *(_refit(2 + n / 100, n + 1, ("a1", n)) for n in range(count))]
        for spans in (built_spans(events), traced_spans(events)):
            span = _attempt(spans)
            refits = [event for event in span.events if event.name == "rl.refit"]
            assert len(refits) <= 128
            assert len(refits) + _said(span)["rl.events.dropped"] == count
            versions = [(refit.attributes or {})["rl.weight_version"] for refit in refits]
            assert (versions[0], versions[-1]) == (1, count)
            assert versions == sorted(versions)  # type: ignore[type-var] # whole numbers
            assert span.dropped_events == 0
            assert _on_runs(spans).count("rl.refit") == count
            assert as_multiset(lines_of(spans)) == as_multiset(events)


class TestResuming:
    def test_a_resumed_attempt_links_to_the_earlier_runs(self) -> None:
        """By its computed ids, whether or not that attempt has ended."""
        earlier = "b" * 32
        events = [
            _event(
                0, "attempt_dispatched", run=earlier, group_id="old", attempt_id="a0", prompt_id=1
            ),
            _event(1, "attempt_resumed", group_id="g1", attempt_id="a1", resumed_from="a0"),
        ]
        [link] = _attempt(built_spans(events)).links
        assert link.context.trace_id == group_trace_id(earlier, "old")
        assert link.context.span_id == attempt_span_id(earlier, "old", "a0")

    def test_an_attempt_that_the_log_does_not_have_is_not_linked_to(self) -> None:
        """A link into nothing helps nobody; the id is still said."""
        resumed = _event(1, "attempt_resumed", group_id="g1", attempt_id="a1", resumed_from="a0")
        span = _attempt(built_spans([resumed]))
        assert not span.links
        assert _said(span)["rl.field.resumed_from"] == "a0"


class TestWhereEventsAreShown:
    def test_unknown_ones_on_what_they_name(self) -> None:
        """The attempt, else the group, else the run."""
        events = [
            _reserved(),
            _dispatched(),
            _event(2, "tool_called", group_id="g1", attempt_id="a1", tool="search"),
            _event(2, "tool_failed", attempt_id="a1"),
            _event(2, "reward_asked", group_id="g1"),
            _event(2, "reward_given", group_id="g1", attempt_id="unknown"),
            _event(2, "worker_joined", worker=3),
            _event(2, "worker_left", attempt_id="unknown"),
        ]
        spans = built_spans(events)
        assert [event.name for event in _attempt(spans).events] == ["tool_called", "tool_failed"]
        assert [event.name for event in _group(spans).events] == ["reward_asked", "reward_given"]
        assert _on_runs(spans) == ["worker_joined", "worker_left"]
        assert dict(_attempt(spans).events[0].attributes or {})["rl.field.tool"] == "search"

    def test_late_ones_on_the_run(self) -> None:
        """Their attempt and group were sent already; the ids say whose they are."""
        events = [
            _reserved(),
            _dispatched(),
            _event(2, "attempt_sealed", group_id="g1", attempt_id="a1"),
            _event(3, "group_discarded", group_id="g1"),
            _event(4, "note", group_id="g1", attempt_id="a1"),
            _event(5, "group_published", group_id="g1", tokens_by_version={"0": 3}),
            _event(6, "attempt_abandoned", group_id="g1", attempt_id="a1", reason="timeout"),
        ]
        spans = built_spans(events)
        assert _on_runs(spans) == ["note", "group_published", "attempt_abandoned"]
        assert as_multiset(lines_of(spans)) == as_multiset(events)
        [run] = [span for span in spans if span.name == "rl.run"]
        assert all((event.attributes or {})["rl.group.id"] == "g1" for event in run.events)

    def test_an_attempt_without_a_group_is_the_root_of_its_own_trace(self) -> None:
        """It has no parent, and shares the trace with nobody."""
        events = [
            _event(0, "attempt_dispatched", attempt_id="a1"),
            _event(0, "attempt_dispatched", attempt_id="a2"),
            _event(1, "attempt_sealed", attempt_id="a1", tokens=4),
        ]
        for spans in (built_spans(events), traced_spans(events)):
            attempts = [plain(span) for span in spans if span.name == "rl.rollout.attempt"]
            assert len(attempts) == len({span.trace_id for span in attempts}) == 2
            assert [span.parent_id for span in attempts] == [None, None]

    @pytest.mark.parametrize("fields", [{"group_id": "g1"}, {"group_id": "g1", "attempt_id": "a1"}])
    @pytest.mark.parametrize("count", [96, 97, 128, 129, 500])
    def test_more_than_a_span_keeps(self, fields: dict[str, str], count: int) -> None:
        """It says how many it leaves out and keeps both ends; the run has the others."""
        events = [_reserved(), _dispatched(), *_notes(count, **fields)]
        for spans in (built_spans(events), traced_spans(events)):
            span = _attempt(spans) if "attempt_id" in fields else _group(spans)
            numbers = _numbers(span)
            assert len(numbers) + _said(span).get("rl.events.dropped", 0) == count
            assert (numbers[0], numbers[-1]) == (0, count - 1)
            assert numbers == sorted(numbers)
            assert all(len(span.events) <= 128 and not span.dropped_events for span in spans)
            assert as_multiset(lines_of(spans)) == as_multiset(events)

    def test_moments_and_refits_share_a_spans_room(self) -> None:
        """In the order of the log, both ends of each, nothing lost."""
        events = [_dispatched()]
        for number, note in enumerate(_notes(200, group_id="g1", attempt_id="a1")):
            events += [note, _refit(note["t"] - _START, number + 1)]
        for spans in (built_spans(events), traced_spans(events)):
            span = _attempt(spans)
            times = [event.timestamp for event in span.events]
            assert times == sorted(times)
            assert len(times) + _said(span)["rl.events.dropped"] == 400
            assert {event.name for event in span.events} == {"note", "rl.refit"}
            assert as_multiset(lines_of(spans)) == as_multiset(events)


class TestClocks:
    def test_an_end_before_its_start_is_moved_and_said(self) -> None:
        """No span runs backwards, and the line comes back with the time it has."""
        events = [
            _reserved(5),
            _dispatched(6),
            _event(4, "attempt_sealed", group_id="g1", attempt_id="a1"),
            _event(3, "group_discarded", group_id="g1"),
        ]
        spans = built_spans(events)
        for span, start in ((_attempt(spans), 6), (_group(spans), 5)):
            assert _seconds(span.start_time) == _seconds(span.end_time) == start
            assert _said(span)["rl.clock.skewed"] is True
        assert as_multiset(lines_of(spans)) == as_multiset(events)

    def test_others_do_not_say_so(self) -> None:
        """Starting and ending at one time is not backwards."""
        ended = _event(1, "attempt_sealed", group_id="g1", attempt_id="a1")
        spans = built_spans([_reserved(1), _dispatched(1), ended])
        assert all("rl.clock.skewed" not in _said(span) for span in spans)
