"""Batch age: cuts, counts, and ages by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import DATA, simulations

from otel_rollout_trace import (
    BATCH_AGE_TOKENS_METRIC,
    BATCH_AGE_VERSION_SUM_METRIC,
    ROLLOUT_TRACE_FILENAME,
    RefitCuts,
    batch_age_by_step,
    batch_age_group_metrics,
    pop_batch_age,
    read_events,
    tokens_by_version,
)
from otel_rollout_trace.events import Event, Vocabulary


def _published(group_id: Any, counts: Any, **fields: Any) -> Event:
    return {
        "t": 1.0,
        "run": "r",
        "event": "group_published",
        "group_id": group_id,
        "tokens_by_version": counts,
        **fields,
    }


def _trained(step: Any, version: Any, *group_ids: Any) -> Event:
    return {
        "t": 2.0,
        "run": "r",
        "event": "step_trained",
        "step": step,
        "trained_version": version,
        "group_ids": list(group_ids),
    }


def test_the_constants_are_the_references() -> None:
    """Programs look for these very names."""
    assert BATCH_AGE_TOKENS_METRIC == "batch_age/trained_tokens"
    assert BATCH_AGE_VERSION_SUM_METRIC == "batch_age/token_version_sum"
    assert ROLLOUT_TRACE_FILENAME == "rollout_trace.jsonl"


class TestRefitCuts:
    def test_a_call_without_a_refit_counts_under_its_version(self) -> None:
        """Nothing cut it."""
        assert RefitCuts().tokens_by_version([("c", 3, 10)]) == {3: 10}

    def test_tokens_before_a_cut_are_the_old_versions_and_those_after_it_the_new_ones(
        self,
    ) -> None:
        """Generation goes on across a refit."""
        cuts = RefitCuts()
        cuts.record(0, 1, [("c", 40)])
        assert cuts.tokens_by_version([("c", 0, 100)]) == {0: 40, 1: 60}

    def test_each_later_refit_cuts_again(self) -> None:
        """Three refits, four parts, one of them empty."""
        cuts = RefitCuts()
        cuts.record(0, 1, [("c", 10)])
        cuts.record(1, 2, [("c", 10)])
        cuts.record(2, 5, [("c", 70)])
        assert cuts.tokens_by_version([("c", 0, 100)]) == {0: 10, 2: 60, 5: 30}

    def test_a_cut_past_the_calls_length_is_clipped_to_it(self) -> None:
        """The call ended where it ended."""
        cuts = RefitCuts()
        cuts.record(0, 1, [("c", 150)])
        cuts.record(1, 2, [("c", 200)])
        assert cuts.tokens_by_version([("c", 0, 100)]) == {0: 100}

    def test_a_cut_that_goes_back_adds_no_tokens(self) -> None:
        """Counts stay whole where a later refit saw fewer tokens than an earlier one."""
        cuts = RefitCuts()
        cuts.record(0, 1, [("c", 60)])
        cuts.record(1, 2, [("c", 50)])
        assert cuts.tokens_by_version([("c", 0, 100)]) == {0: 60, 2: 40}

    def test_counting_a_call_forgets_it(self) -> None:
        """Asked again, nothing is known of its cuts."""
        cuts = RefitCuts()
        cuts.record(0, 1, [("c", 40), ("d", 1)])
        cuts.tokens_by_version([("c", 0, 100)])
        assert len(cuts) == 1
        assert cuts.tokens_by_version([("c", 0, 100)]) == {0: 100}

    def test_calls_of_one_group_are_added_up_in_order_of_version(self) -> None:
        """A group's calls began on different versions."""
        cuts = RefitCuts()
        cuts.record(1, 2, [("c", 5), ("d", 7)])
        assert list(cuts.tokens_by_version([("d", 1, 10), ("e", 2, 4), ("c", 1, 10)]).items()) == [
            (1, 12),
            (2, 12),
        ]

    def test_calls_may_come_as_a_mapping_or_as_pairs(self) -> None:
        """As the controller has them, or as JSON has them."""
        mapping, pairs = RefitCuts(), RefitCuts()
        mapping.record(0, 1, {"c": 40})
        pairs.record(0, 1, [["c", 40]])
        assert mapping.tokens_by_version([("c", 0, 90)]) == pairs.tokens_by_version([["c", 0, 90]])

    def test_forget_before_drops_calls_whose_first_refit_replaced_an_older_version(self) -> None:
        """Their group is too old to train; one cut first at that version stays."""
        cuts = RefitCuts()
        cuts.record(1, 2, [("old", 4)])
        cuts.record(2, 3, [("old", 6), ("new", 9)])
        cuts.forget_before(2)
        assert len(cuts) == 1
        assert cuts.tokens_by_version([("new", 2, 10)]) == {2: 9, 3: 1}
        assert cuts.tokens_by_version([("old", 1, 10)]) == {1: 10}

    @given(
        st.lists(st.integers(0, 120), max_size=6),
        st.integers(0, 100),
    )
    def test_no_token_is_lost_or_counted_twice(self, seen: list[int], total: int) -> None:
        """However the refits cut a call, its parts add up to it, and none is empty."""
        cuts = RefitCuts()
        for version, tokens in enumerate(seen):
            cuts.record(version, version + 1, [("c", tokens)])
        counts = cuts.tokens_by_version([("c", 0, total)])
        assert sum(counts.values()) == total
        assert all(tokens > 0 for tokens in counts.values())
        assert list(counts) == sorted(counts)


class TestGroupMetrics:
    def test_a_groups_counts_are_two_sums(self) -> None:
        """Tokens, and tokens each times its version."""
        assert batch_age_group_metrics({2: 30, 5: 10}) == {
            BATCH_AGE_TOKENS_METRIC: 40,
            BATCH_AGE_VERSION_SUM_METRIC: 110,
        }

    def test_versions_may_be_text(self) -> None:
        """As JSON has them."""
        assert batch_age_group_metrics({"2": 30, "5": 10}) == batch_age_group_metrics(
            {2: 30, 5: 10}
        )

    def test_no_counts_are_no_metrics(self) -> None:
        """Unknown is not zero."""
        assert batch_age_group_metrics({}) == {}

    def test_the_age_of_sequences_by_name_is_taken_and_both_sums_removed(self) -> None:
        """One number a group under each name; what else is there stays."""
        metrics: dict[str, Any] = {
            BATCH_AGE_TOKENS_METRIC: [100, 60],
            BATCH_AGE_VERSION_SUM_METRIC: [60, 60],
            "reward": [1.0, 0.0],
        }
        assert pop_batch_age(metrics, 2) == 1.25
        assert metrics == {"reward": [1.0, 0.0]}

    def test_the_age_of_mappings_by_group_is_taken_and_both_sums_removed(self) -> None:
        """A mapping for each group; one without counts adds nothing."""
        groups: list[dict[str, Any]] = [
            {**batch_age_group_metrics({0: 40, 1: 60}), "reward": 1.0},
            {"reward": 0.5},
            batch_age_group_metrics({1: 60}),
        ]
        assert pop_batch_age(groups, 2) == 1.25
        assert groups == [{"reward": 1.0}, {"reward": 0.5}, {}]

    def test_plain_numbers_count_as_one_group(self) -> None:
        """Sums that were added up already."""
        metrics: dict[str, Any] = {
            BATCH_AGE_TOKENS_METRIC: 160,
            BATCH_AGE_VERSION_SUM_METRIC: 120,
        }
        assert pop_batch_age(metrics, 2) == 1.25
        assert metrics == {}

    @pytest.mark.parametrize(
        "metrics",
        [{}, {BATCH_AGE_TOKENS_METRIC: [0], BATCH_AGE_VERSION_SUM_METRIC: [0]}, {"reward": 1}],
    )
    def test_without_tokens_there_is_no_age(self, metrics: dict[str, Any]) -> None:
        """None, which is not 0."""
        assert pop_batch_age(metrics, 2) is None
        assert BATCH_AGE_TOKENS_METRIC not in metrics

    def test_a_negative_age_is_shown(self) -> None:
        """Tokens from a version that was not there yet: a bug somewhere, to be seen."""
        assert pop_batch_age([batch_age_group_metrics({5: 10})], 3) == -2

    @given(
        st.lists(st.dictionaries(st.integers(-3, 30), st.integers(0, 10**7), max_size=4)),
        st.integers(0, 40),
    )
    def test_the_metrics_and_the_log_tell_one_age(
        self, groups: list[dict[int, int]], trained_version: int
    ) -> None:
        """What training computes on the way is what the file gives, exactly."""
        events = [
            _published(f"g{number}", {str(version): n for version, n in counts.items()})
            for number, counts in enumerate(groups)
        ]
        events.append(_trained(1, trained_version, *(f"g{n}" for n in range(len(groups)))))
        age = pop_batch_age([batch_age_group_metrics(counts) for counts in groups], trained_version)
        assert batch_age_by_step(events) == ({} if age is None else {1: age})


class TestByStep:
    @pytest.mark.parametrize("name", ["steady", "killed_and_restored"])
    def test_samples_have_the_ages_worked_out_beside_them(self, name: str) -> None:
        """Another program's figures, to the last digit printed."""
        ages = batch_age_by_step(read_events(DATA / f"{name}.jsonl"))
        printed = [f"step {step}: batch age {age:.3f}" for step, age in ages.items()]
        assert printed == (DATA / f"{name}.batch_age.txt").read_text().splitlines()

    def test_rolled_out_and_trained_without_a_refit_between_is_age_zero(self) -> None:
        """Zero is an age."""
        assert batch_age_by_step([_published("g", {"4": 7}), _trained(1, 4, "g")]) == {1: 0.0}

    def test_a_step_without_counted_tokens_has_no_age(self) -> None:
        """Groups never published, without counts, or with none: not 0."""
        events = [
            _published("empty", {}),
            _published("zero", {"1": 0}),
            _trained(1, 4, "unknown"),
            _trained(2, 4, "empty"),
            _trained(3, 4, "zero"),
            _trained(4, 4),
        ]
        assert batch_age_by_step(events) == {}

    def test_uncounted_groups_of_a_step_are_left_out_of_its_mean(self) -> None:
        """The age is that of the tokens that are known."""
        assert batch_age_by_step([_published("g", {"1": 9}), _trained(1, 4, "g", "x")]) == {1: 3.0}

    def test_versions_of_an_event_in_memory_may_be_numbers(self) -> None:
        published = _published("g", {"3": 10})
        published["tokens_by_version"] = {3: 10}
        assert batch_age_by_step([published, _trained(1, 4, "g")]) == {1: 1.0}

    def test_negative_ages_are_shown(self) -> None:
        """Not clamped."""
        assert batch_age_by_step([_published("g", {"6": 9}), _trained(1, 4, "g")]) == {1: -2.0}

    def test_a_step_trained_again_keeps_the_later_value(self) -> None:
        """After a resume it is the repeated one that counts."""
        events = [
            _published("g", {"1": 9}),
            _published("h", {"3": 9}),
            _trained(7, 4, "g"),
            _trained(7, 4, "h"),
        ]
        assert batch_age_by_step(events) == {7: 1.0}

    def test_a_repetition_without_counts_does_not_erase_the_age(self) -> None:
        """It has no value to keep."""
        events = [_published("g", {"1": 9}), _trained(7, 4, "g"), _trained(7, 4, "x")]
        assert batch_age_by_step(events) == {7: 3.0}

    def test_a_group_carried_over_has_its_counts_in_an_earlier_run(self) -> None:
        """It is trained without being published again."""
        events = [_published("g", {"1": 9}), _trained(7, 4, "g") | {"run": "s"}]
        assert batch_age_by_step(events) == {7: 3.0}

    def test_the_last_publication_of_a_group_counts(self) -> None:
        """A group published again has new counts."""
        events = [_published("g", {"1": 9}), _published("g", {"3": 1}), _trained(1, 4, "g")]
        assert batch_age_by_step(events) == {1: 1.0}
        assert tokens_by_version(events[:2]) == {"g": {3: 1}}

    def test_steps_come_in_ascending_order(self) -> None:
        """In the order of the steps, not of the lines."""
        events = [_published("g", {"1": 9}), _trained(9, 4, "g"), _trained(2, 4, "g")]
        assert list(batch_age_by_step(events)) == [2, 9]

    def test_ids_and_versions_may_be_numbers_or_text(self) -> None:
        """Other writers' files: a group 7 is the group "7"."""
        events = [_published(7, {"1": 4.0, "v2": 5, "2": None}), _trained("3", 4.0, "7")]
        assert batch_age_by_step(events) == {3: 3.0}
        assert tokens_by_version(events) == {"7": {1: 4}}

    def test_words_of_ones_own_are_understood(self) -> None:
        """Synonyms of the vocabulary, and added ones."""
        events = [
            _published("g", {"1": 9}) | {"event": "group_buffered"},
            _trained(1, 4, "g") | {"event": "optimised"},
        ]
        vocabulary = Vocabulary({"optimised": "step_trained"})
        assert batch_age_by_step(events, vocabulary=vocabulary) == {1: 3.0}
        assert batch_age_by_step(events) == {}

    @given(simulations())
    def test_the_age_is_the_formula(self, events: list[Event]) -> None:
        """The sum over groups and versions, written out plainly."""
        counts = {
            event["group_id"]: event["tokens_by_version"]
            for event in events
            if event["event"] == "group_published"
        }
        expected: dict[int, float] = {}
        for event in events:
            if event["event"] == "step_trained":
                pairs = [
                    (tokens, event["trained_version"] - int(version))
                    for group_id in event["group_ids"]
                    for version, tokens in counts.get(group_id, {}).items()
                ]
                total = sum(tokens for tokens, _ in pairs)
                if total:
                    expected[event["step"]] = sum(n * age for n, age in pairs) / total
        assert batch_age_by_step(iter(events)) == pytest.approx(expected)
        assert expected

    def test_a_file_of_another_kind_has_no_ages(self, tmp_path: Path) -> None:
        """An empty file is an empty answer."""
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"")
        assert batch_age_by_step(read_events(path)) == {}
