"""What stops cost: every figure of the sample, and a slow second opinion on any log."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import second_opinion
from support.commands import Command, check_golden
from support.logs import DATA, EXAMPLE, any_logs, simulate, simulations, write_log

from otel_rollout_trace import batch_age_by_step, cost_of
from otel_rollout_trace.cost import FATES, Cost, Ledger, remembering
from otel_rollout_trace.events import SYNONYMS, Event, Vocabulary
from otel_rollout_trace.journal import LogReader
from otel_rollout_trace.lifecycle import Attempt, Lifecycle, Listener, Step

KILLED = DATA / "killed_and_restored.jsonl"
EXPECTED: list[dict[str, Any]] = json.loads((DATA / "killed_and_restored.cost.json").read_text())

_A, _B, _C = ("a" * 32, "b" * 32, "c" * 32)


def roughened(events: list[Event], seed: int) -> list[Event]:
    """The same log with counts missing, kills in the middle, other words and repeats."""
    rng = random.Random(seed)
    words = {name: [w for w, row in SYNONYMS.items() if row == name] for name in SYNONYMS.values()}
    runs: dict[str, list[Event]] = {}
    for event in events:
        runs.setdefault(event["run"], []).append(event)
    rough: list[Event] = []
    for run in runs.values():
        kept = run[: rng.randrange(1, len(run) + 1)] if rng.random() < 0.7 else run
        for line in kept:
            event = dict(line)
            name = event["event"]
            if "tokens" in event and rng.random() < 0.1:
                del event["tokens"]
            if name == "checkpoint_restored" and rng.random() < 0.2:
                continue
            rough.append(event)
            if name in ("attempt_sealed", "attempt_abandoned") and rng.random() < 0.1:
                rough.append(event | {"tokens": 7})
            if rng.random() < 0.05:
                ids: Event = {k: event[k] for k in ("group_id", "attempt_id") if k in event}
                rough.append({"t": event["t"], "run": event["run"], "event": "note", **ids})
            if name == "group_published" and rng.random() < 0.1:
                discarded = {"group_id": event["group_id"], "reason": "stale"}
                rough.append(event | {"event": "group_discarded"} | discarded)
    return [
        event | {"event": rng.choice(words[event["event"]])}
        if event["event"] in words and words[event["event"]] and rng.random() < 0.1
        else event
        for event in rough
    ]


def rough_logs() -> st.SearchStrategy[list[Event]]:
    """Logs of runs one after another, as real ones are."""
    return st.builds(
        lambda seed, **sizes: roughened(simulate(seed, **sizes), seed),
        seed=st.integers(0, 2**32),
        runs=st.integers(1, 4),
        steps=st.integers(1, 4),
        generations=st.integers(1, 3),
        groups=st.integers(1, 3),
    )


def _in_one_vocabulary(events: list[Event]) -> list[Event]:
    return [event | {"event": SYNONYMS.get(event["event"], event["event"])} for event in events]


def _numbers(ledger: Ledger) -> Counter[str]:
    found = Counter(ledger.tokens)
    found["uncounted"] = ledger.uncounted_attempts
    found["repeated"] = ledger.repeated
    return found


class TestSample:
    def test_every_figure_of_both_stops(self) -> None:
        """Exactly, floats included, by the same names."""
        assert cost_of(LogReader(KILLED)).to_dict()["stops"] == EXPECTED

    def test_the_ledger_of_the_worked_example(self) -> None:
        """215 generated = 160 trained + 55 abandoned."""
        cost = cost_of(LogReader(EXAMPLE))
        assert cost.ledger.total == 215
        assert {fate: n for fate, n in cost.ledger.tokens.items() if n} == {
            "trained": 160,
            "abandoned": 55,
        }
        [waste] = cost.ledger.waste
        assert (waste.fate, waste.reason, waste.attempts, waste.tokens) == (
            "abandoned", "timeout", 1, 55,
        )  # fmt: skip
        [step] = cost.steps
        assert (step.batch_age, step.batch_age_generation, step.batch_age_queue) == (1.25, 0.25, 1)
        assert (step.coverage, step.undone, cost.stops) == (1.0, False, [])

    @pytest.mark.parametrize("name", ["steady", "killed_and_restored", "other_words"])
    def test_it_agrees_with_the_other_commands(self, name: str) -> None:
        """The batch age of each step is that of ``batch-age``."""
        path = DATA / f"{name}.jsonl"
        ages = {n: step.batch_age for n, step in cost_of(LogReader(path)).ages().items()}
        assert ages == batch_age_by_step(LogReader(path))


class TestSecondOpinion:
    @given(simulations(max_runs=4))
    def test_of_logs_as_a_controller_writes_them(self, events: list[Event]) -> None:
        """Stops, and the ledger of each run and step."""
        _agrees(events)

    @given(rough_logs())
    def test_of_logs_as_real_ones_are(self, events: list[Event]) -> None:
        """With kills in the middle, counts missing, events twice, other words."""
        _agrees(events)


def _agrees(events: list[Event]) -> None:
    cost, plain = cost_of(events), _in_one_vocabulary(events)
    assert cost.to_dict()["stops"] == second_opinion.stops(plain)
    expected = second_opinion.ledgers(plain)
    for place, run in enumerate(cost.runs):
        of_run = Counter[str]()
        for (whose, step), sums in expected.items():
            if whose == place:
                found = _numbers(cost.ledger_of(run=run.run, first=step, last=step))
                assert found == sums, (place, step)
                of_run += sums
        assert _numbers(run.ledger) == of_run
    assert _numbers(cost.ledger) == sum(expected.values(), Counter())


class _Heard(Listener):
    """What a lifecycle says of the same log."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[str] = Counter()
        self.ages: list[tuple[float | None, float | None, int]] = []

    def attempt_ended(self, attempt: Attempt) -> None:
        self.outcomes[attempt.run, attempt.outcome] += 1
        if attempt.outcome != "interrupted":
            self.tokens[attempt.run] += attempt.tokens or 0

    def stepped(self, step: Step) -> None:
        self.ages.append((step.batch_age, step.batch_age_queue, step.tokens))


class TestAnyLog:
    @given(any_logs())
    def test_the_ledger_closes(self, events: list[Event]) -> None:
        """For the file, for its runs, and for any ranges of steps that share none."""
        cost = cost_of(events)
        _closes(cost)
        json.dumps(cost.to_dict(), allow_nan=False)

    @given(rough_logs(), st.lists(st.integers(0, 12), min_size=1, max_size=3))
    def test_ranges_of_steps_add_up(self, events: list[Event], cuts: list[int]) -> None:
        """Whatever they are cut at, in the file and in each run."""
        cost = cost_of(events)
        _closes(cost)
        ends = [None, *sorted(set(cuts)), None]
        for run in (None, *(run.run for run in cost.runs)):
            parts = [
                cost.ledger_of(run=run, first=None if low is None else low + 1, last=high)
                for low, high in pairwise(ends)
            ]
            assert sum((_numbers(part) for part in parts), Counter()) == +_numbers(
                cost.ledger_of(run=run)
            )

    @given(any_logs())
    def test_attempts_and_steps_are_those_of_the_lifecycle(self, events: list[Event]) -> None:
        """Which attempts there are, how they end, and how old batches are, is one notion."""
        heard = _Heard()
        lifecycle = Lifecycle([heard])
        lifecycle.feed_all(events)
        lifecycle.close()
        cost = cost_of(events)
        assert sum(cost.ledger.attempts.values()) == sum(heard.outcomes.values())
        by_run: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (run, outcome), number in heard.outcomes.items():
            by_run[run][outcome] += number
        for found in cost.runs:
            assert sum(found.ledger.attempts.values()) == sum(by_run[found.run].values())
        ages = [(step.batch_age, step.batch_age_queue, step.tokens) for step in cost.steps]
        assert ages == heard.ages

    @given(simulations(max_runs=4))
    def test_what_the_attempts_say_is_what_is_generated_and_what_was_resumed(
        self, events: list[Event]
    ) -> None:
        """A token that a resumed attempt brought along is counted once."""
        cost = cost_of(events)
        said = sum(
            event["tokens"]
            for event in events
            if event["event"] in ("attempt_sealed", "attempt_refused", "attempt_abandoned")
        )
        interrupted = sum(sums.total() for sums in _interrupted(events).values())
        assert cost.ledger.total + cost.ledger.resumed == said + interrupted


def _interrupted(events: list[Event]) -> dict[str, Counter[str]]:
    """Tokens of attempts without an end, as far as refits or later attempts count them."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    ended = {event["attempt_id"] for event in events if "reward" in event or "reason" in event
             if "attempt_id" in event}  # fmt: skip
    for event in events:
        for call, tokens in event.get("calls", ()):
            if call not in ended:
                found["x"][call] = max(found["x"][call], tokens)
        if event["event"] == "attempt_resumed" and event["resumed_from"] not in ended:
            origin = event["resumed_from"]
            found["x"][origin] = max(found["x"][origin], event["tokens"])
    return found


def _closes(cost: Cost) -> None:
    ledger = cost.ledger
    assert tuple(ledger.tokens) == FATES
    assert all(number >= 0 for number in ledger.tokens.values())
    assert ledger.total == sum(ledger.tokens.values())
    assert round(10 * sum(ledger.percent().values())) == (1000 if ledger.total else 0)
    assert sum((_numbers(run.ledger) for run in cost.runs), Counter()) == +_numbers(ledger)
    for each in (ledger, *(run.ledger for run in cost.runs)):
        for fate in ("refused", "abandoned", "discarded", "lost"):
            rows = [waste for waste in each.waste if waste.fate == fate]
            assert sum(waste.tokens for waste in rows) == each.tokens[fate]
            assert sum(waste.attempts for waste in rows) == each.attempts[fate]


def _log(*lines: tuple[str, str, dict[str, Any]]) -> list[Event]:
    """Events a second apart."""
    return [
        {"t": 1_790_000_000.0 + second, "run": run, "event": event, **fields}
        for second, (run, event, fields) in enumerate(lines)
    ]


def _sealed(run: str, group: object, attempt: object, tokens: int | None, **more: Any) -> Any:
    ids = {"group_id": group, "attempt_id": attempt}
    counted = {} if tokens is None else {"tokens": tokens}
    return [
        (run, "attempt_dispatched", {**ids, "prompt_id": 1, "generation_index": 0, **more}),
        (run, "attempt_sealed", {**ids, **counted}),
    ]


def _trained(run: str, step: int, *groups: object) -> tuple[str, str, dict[str, Any]]:
    return (run, "step_trained", {"step": step, "trained_version": 0, "group_ids": list(groups)})


def _fates(events: list[Event]) -> dict[str, int]:
    return {fate: n for fate, n in cost_of(events).ledger.tokens.items() if n}


class TestHardCases:
    def test_a_group_that_was_carried_over_is_kept(self) -> None:
        """The next run trained it, and generated nothing for it."""
        events = _log(*_sealed(_A, "g", "a", 50), _trained(_B, 1, "g"))
        [stop] = cost_of(events).stops
        assert (stop.attempts_kept, stop.tokens_kept, stop.attempts_lost) == (1, 50, 0)
        assert _fates(events) == {"trained": 50}

    def test_a_group_that_was_generated_again_is_lost(self) -> None:
        """Though its id is the same, as where ids are numbers that begin anew."""
        events = _log(*_sealed(_A, 1, 1, 50), *_sealed(_B, 1, 1, 60), _trained(_B, 1, 1))
        [stop] = cost_of(events).stops
        assert (stop.attempts_kept, stop.attempts_lost, stop.tokens_lost) == (0, 1, 50)
        assert _fates(events) == {"trained": 60, "lost": 50}

    def test_a_group_of_which_a_part_was_generated_again(self) -> None:
        """Generation by generation."""
        events = _log(
            *_sealed(_A, "g", "a0", 50),
            *_sealed(_A, "g", "a1", 70, generation_index=1),
            *_sealed(_B, "g", "b1", 10, generation_index=1),
            _trained(_B, 1, "g"),
        )
        [stop] = cost_of(events).stops
        assert (stop.tokens_kept, stop.tokens_lost) == (50, 70)
        assert _fates(events) == {"trained": 60, "lost": 70}

    def test_a_token_that_three_runs_had_is_counted_once(self) -> None:
        """Resumed from the same checkpoint twice: what was trained in the end is trained."""
        resume = {"group_id": "h", "resumed_from": "a", "tokens": 50}
        events = _log(
            *_sealed(_A, "g", "a", 50),
            (_B, "attempt_resumed", {**resume, "attempt_id": "b"}),
            (_B, "attempt_sealed", {"group_id": "h", "attempt_id": "b", "tokens": 50}),
            (_C, "attempt_resumed", {**resume, "attempt_id": "c", "group_id": "i"}),
            (_C, "attempt_sealed", {"group_id": "i", "attempt_id": "c", "tokens": 55}),
            _trained(_C, 1, "i"),
        )
        cost = cost_of(events)
        assert _fates(events) == {"trained": 55}
        assert (cost.ledger.total, cost.ledger.resumed) == (55, 100)
        assert [stop.attempts_kept for stop in cost.stops] == [1, 0]
        assert [run.ledger.total for run in cost.runs] == [50, 0, 5]

    def test_an_attempt_resumed_from_its_middle_is_kept_in_part(self) -> None:
        """What it had generated beyond the checkpoint is lost."""
        events = _log(
            *_sealed(_A, "g", "a", 50),
            (_B, "attempt_resumed",
             {"group_id": "h", "attempt_id": "b", "resumed_from": "a", "tokens": 20}),
            (_B, "attempt_sealed", {"attempt_id": "b", "tokens": 35}),
            _trained(_B, 1, "h"),
        )  # fmt: skip
        [stop] = cost_of(events).stops
        assert (stop.attempts_kept, stop.tokens_kept, stop.tokens_lost) == (1, 20, 30)
        assert _fates(events) == {"trained": 35, "lost": 30}

    def test_a_step_trained_three_times_is_trained_once(self) -> None:
        """And reported as repeated twice."""
        events = _log(
            *_sealed(_A, "g", "a", 50),
            *(_trained(run, 5, "g") for run in (_A, _B, _C)),
        )
        cost = cost_of(events)
        assert (cost.ledger.tokens["trained"], cost.ledger.repeated) == (50, 100)
        assert [step.undone for step in cost.steps] == [True, True, False]

    def test_runs_that_write_at_once_are_no_stops_of_each_other(self) -> None:
        """Each is followed by the first run that begins after its end."""
        events = _log(
            *_sealed(_A, "g", "a", 50),
            *_sealed(_B, "h", "b", 60),
            _trained(_A, 1, "g", "h"),
            (_C, "checkpoint_restored", {"step": 1}),
        )
        cost = cost_of(events)
        assert [(stop.run, stop.next_run) for stop in cost.stops] == [(_A, _C), (_B, _C)]
        assert sum(stop.attempts_lost for stop in cost.stops) == 0
        assert _fates(events) == {"trained": 110}
        assert cost_of(events[:-1]).stops == []

    def test_without_a_restore_everything_is_repeated(self) -> None:
        """A start from scratch is a restore of step 0."""
        events = _log(
            *_sealed(_A, "g", "a", 50), _trained(_A, 1, "g"), _trained(_A, 2), (_B, "x", {})
        )
        [stop] = cost_of(events).stops
        assert (stop.restored_step, stop.steps_repeated, stop.tokens_lost) == (0, [1, 2], 50)
        assert stop.first_step_s is stop.caught_up_s is None

    def test_a_restore_without_a_step_is_found_by_its_path(self) -> None:
        """As the checkpoint that was published there."""
        events = _log(
            (_A, "checkpoint_published", {"step": 4, "path": "/x/4"}),
            (_A, "checkpoint_published", {"step": 8, "path": "/x/8"}),
            (_B, "checkpoint_restored", {"path": "/x/4"}),
        )
        assert cost_of(events).stops[0].restored_step == 4

    def test_what_has_no_count_is_no_nought(self) -> None:
        """It is said how many there are, of each fate."""
        events = _log(*_sealed(_A, "g", "a", None), *_sealed(_A, "h", "b", 5), _trained(_A, 1, "g"))
        ledger = cost_of(events).ledger
        assert (ledger.total, ledger.uncounted["trained"], ledger.uncounted_attempts) == (5, 1, 1)

    def test_a_log_without_attempts_is_counted_by_its_groups(self) -> None:
        """The fewest events that a log can have."""
        published = {"group_id": "g", "tokens_by_version": {"0": 40, "1": 2}}
        events = _log((_A, "group_published", published), _trained(_A, 1, "g"))
        assert _fates(events) == {"trained": 42}

    def test_an_attempt_that_goes_on_elsewhere_in_its_run_is_no_waste(self) -> None:
        """Only what it did beyond that is."""
        events = _log(
            (_A, "attempt_dispatched", {"group_id": "g", "attempt_id": "a"}),
            (_A, "attempt_abandoned", {"attempt_id": "a", "tokens": 30, "reason": "moved"}),
            (_A, "attempt_resumed",
             {"group_id": "g", "attempt_id": "b", "resumed_from": "a", "tokens": 20}),
            (_A, "attempt_sealed", {"attempt_id": "b", "tokens": 50}),
            _trained(_A, 1, "g"),
        )  # fmt: skip
        assert _fates(events) == {"trained": 50, "abandoned": 10}

    def test_own_words_are_understood(self) -> None:
        """By a vocabulary of one's own."""
        events = _log(*_sealed(_A, "g", "a", 5))
        events[1]["event"] = "done"
        assert cost_of(events, vocabulary=Vocabulary({"done": "attempt_sealed"})).ledger.total == 5


class TestMemory:
    @given(simulations(max_runs=4))
    def test_what_is_added_up_early_changes_nothing(self, events: list[Event]) -> None:
        """Nothing that a restored run could still have is forgotten."""
        whole = cost_of(events).to_dict()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remembering, "ENOUGH_ATTEMPTS", 2)
            assert cost_of(events).to_dict() == whole

    @given(any_logs())
    def test_past_the_most_it_still_closes(self, events: list[Event]) -> None:
        """Where more is open than is remembered, fates may be wrong, sums are not."""
        whole = cost_of(events)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remembering, "ENOUGH_ATTEMPTS", 2)
            patch.setattr(remembering, "MOST_ATTEMPTS", 4)
            small = cost_of(events)
        _closes(small)
        assert sum(small.ledger.attempts.values()) == sum(whole.ledger.attempts.values())

    def test_a_long_log_takes_no_more_memory_than_a_short_one(self) -> None:
        """Apart from its steps; here in a run without end that saves now and then."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remembering, "ENOUGH_ATTEMPTS", 1_000)
            short, long = (_peak_of(_endless(steps)) for steps in (100, 800))
        assert long - short < 700 * 4_000


def _peak_of(events: Iterator[Event]) -> int:
    tracemalloc.start()
    try:
        cost_of(events)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _endless(steps: int) -> Iterator[Event]:
    """A run that trains 16 attempts a step."""
    t = 1_790_000_000.0

    def line(event: str, **fields: Any) -> Event:
        nonlocal t
        t += 0.5
        return {"t": t, "run": _A, "event": event, **fields}

    for step in range(1, steps + 1):
        for group in range(4):
            group_id = f"{step:08x}{group:08x}"
            ids = [f"{group_id}{attempt}" for attempt in range(4)]
            for attempt_id in ids:
                yield line("attempt_dispatched", group_id=group_id, attempt_id=attempt_id)
            for attempt_id in ids:
                yield line("attempt_sealed", group_id=group_id, attempt_id=attempt_id, tokens=9)
        groups = [f"{step:08x}{group:08x}" for group in range(4)]
        yield line("step_trained", step=step, trained_version=step, group_ids=groups)
        if not step % 10:
            yield line("checkpoint_published", step=step, path=f"/{step}")


class TestCommand:
    @pytest.mark.parametrize("name", ["example", "steady", "killed_and_restored", "other_words"])
    def test_the_report_is_the_golden_one(self, name: str) -> None:
        """In eighty columns, without a terminal."""
        ended = Command("cost", f"{name}.jsonl", cwd=DATA)
        assert (ended.status, ended.err) == (0, "")
        assert max(map(len, ended.out.splitlines())) <= 80
        assert "\x1b" not in ended.out
        assert "nan" not in ended.out.lower()
        check_golden(f"cost_{name}.txt", ended.out)

    def test_a_part_of_it(self) -> None:
        """Of one run, and of a range of steps."""
        ended = Command(
            "cost", "killed_and_restored.jsonl", "--run", "a2", "--steps", "6:7", cwd=DATA
        )
        assert ended.status == 0
        check_golden("cost_of_a_part.txt", ended.out)

    def test_json_has_the_figures(self) -> None:
        """By the names of the definition."""
        shown = json.loads(Command("cost", "--json", KILLED).out)
        assert shown["stops"] == EXPECTED
        ledger = shown["ledger"]
        assert sum(ledger[fate] for fate in FATES) == ledger["total"] == 169_838
        assert sum(run["ledger"]["total"] for run in shown["runs"]) == ledger["total"]
        assert len(shown["steps"]) == 20
        assert shown["bad_lines"] == 2
        part = json.loads(Command("cost", "--json", KILLED, "--steps", "5:7").out)
        rest = [
            json.loads(Command("cost", "--json", KILLED, "--steps", s).out) for s in (":4", "8:")
        ]
        assert sum(each["ledger"]["total"] for each in (part, *rest)) == ledger["total"]

    def test_the_sample_in_the_package(self) -> None:
        """Has two stops."""
        assert Command("cost", "--sample").out.startswith("sample.jsonl.gz: 2 stops in 3 runs")

    def test_without_block_characters(self) -> None:
        """Where the terminal has ASCII only."""
        out = Command("cost", KILLED, PYTHONUTF8="0", PYTHONIOENCODING="ascii").out
        assert "####" in out
        assert out.isascii()

    def test_markup_in_a_log_is_text(self, tmp_path: Path) -> None:
        """Whatever is made of brackets elsewhere."""
        run, reason = "[b]ab", "[red]x[/red] :fire:"
        ids = {"group_id": "g", "attempt_id": "a"}
        lines = [
            {"t": 1_790_000_000, "run": run, "event": "attempt_dispatched", **ids},
            {"t": 1_790_000_001, "run": run, "event": "attempt_refused", "reason": reason, **ids},
            {"t": 1_790_000_002, "run": "[i]", "event": "trace_opened"},
        ]
        ended = Command("cost", write_log(tmp_path / "log.jsonl", lines))
        assert ended.status == 0, ended.err
        assert reason in ended.out
        assert "[b]ab, followed by [i]" in ended.out

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--steps", "5:x"), "'5:x' is not like A:B"),
            (("--steps", ":"), "':' is not like A:B"),
            (("--steps", "7:5"), "'7:5' ends before it begins"),
            (("--run", "zz"), "no run begins with 'zz'"),
            (("--synonym", "x"), "'x' is not like WORD=EVENT"),
            (("--sample",), "not both"),
        ],
    )
    def test_bad_arguments_are_one_line(self, arguments: tuple[str, ...], reason: str) -> None:
        """On standard error, with exit status 2."""
        assert reason in Command("cost", KILLED, *arguments).refused()

    def test_bad_files_are_one_line(self, tmp_path: Path) -> None:
        """As for every other command."""
        (tmp_path / "no.jsonl").write_text("Training started.\n")
        assert "not a rollout log" in Command("cost", tmp_path / "no.jsonl").refused()
        assert "No such file" in Command("cost", tmp_path / "none.jsonl").refused()


def test_many_stops_are_a_page(tmp_path: Path) -> None:
    """The last ten; the others are counted."""
    events = simulate(3, runs=14, steps=1)
    ended = Command("cost", write_log(tmp_path / "log.jsonl", events))
    assert "The last 10 stops; --json has 3 earlier ones." in ended.out
    assert "Stop 3:" not in ended.out
    assert "Stop 13:" in ended.out
