"""Two runs side by side: whether they did the same work.

What stays the same from run to run is a row: a prompt (``prompt_id``) and one of its
generations (``generation_index``). Of each row the last try that counts is compared:
the last that was sealed, else the last of all. The same work is the same rows with the
same outcome, tokens and reward, and the same steps. How long things took and how stale
batches were is told as well; it depends on machines and moments, and is no work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from .events import Event, EventRow, Vocabulary
from .lifecycle import Attempt, Lifecycle, Listener, Step

__all__ = ["Difference", "Row", "Side", "compare", "read_side"]

Key: TypeAlias = tuple[str, str]
"""A row: prompt and generation, as text."""


class Row(NamedTuple):
    """The try of a row that counts.

    Attributes:
        outcome: sealed, refused, abandoned or interrupted.
        tokens: its tokens; None where not counted.
        reward: its reward as the log has it.
        duration_s: how long it took, in seconds; None where the log lacks its start.
    """

    outcome: str
    tokens: int | None
    reward: Any
    duration_s: float | None


@dataclass
class Side:
    """What is compared of a log, or of one run of it.

    Attributes:
        rows: the rows.
        ages: batch age by step; a step that was trained again has the later one.
        attempts: how many tries, by outcome.
        tokens: the counted tokens of all tries.
        unnamed: tries without a prompt or a generation, which belong to no row.
        started_at, ended_at: times of the first and the last event.
    """

    rows: dict[Key, Row] = field(default_factory=dict)
    ages: dict[int, float | None] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    unnamed: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0

    def totals(self) -> dict[str, Any]:
        """Its sums, by name."""
        sealed = [row for row in self.rows.values() if row.outcome == "sealed"]
        rewards = [row.reward for row in sealed if _is_number(row.reward)]
        return {
            "rows": len(self.rows),
            "rows_sealed": len(sealed),
            "rows_tokens": sum(row.tokens or 0 for row in sealed),
            "reward_mean": sum(rewards) / len(rewards) if rewards else None,
            "attempts": sum(self.attempts.values()),
            "attempts_by_outcome": dict(sorted(self.attempts.items())),
            "tokens": self.tokens,
            "steps": len(self.ages),
            "duration_s": self.ended_at - self.started_at,
            "attempts_without_row": self.unnamed,
        }


class Pair(NamedTuple):
    """A row that both sides have and that differs.

    Attributes:
        prompt_id, generation_index: which row.
        a, b: it, on each side.
        what: which of outcome, tokens and reward differ.
    """

    prompt_id: str
    generation_index: str
    a: Row
    b: Row
    what: tuple[str, ...]


class StepPair(NamedTuple):
    """A step on both sides; an age is None where it has none.

    Attributes:
        step: the step.
        in_a, in_b: whether that side trained it.
        a, b: its batch age there.
    """

    step: int
    in_a: bool
    in_b: bool
    a: float | None
    b: float | None


@dataclass
class Difference:
    """What differs between two sides.

    Attributes:
        same: whether they did the same work.
        rows: rows that differ, in the order of the first side.
        only_a, only_b: rows that one side has only.
        steps: every step of either side, in ascending order.
        rows_same: how many rows are the same.
        a, b: each side's totals.
    """

    same: bool
    rows: list[Pair]
    only_a: list[Key]
    only_b: list[Key]
    steps: list[StepPair]
    rows_same: int
    a: dict[str, Any]
    b: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""

        def named(keys: list[Key]) -> list[dict[str, str]]:
            return [{"prompt_id": key[0], "generation_index": key[1]} for key in keys]

        return {
            "same": self.same,
            "a": self.a,
            "b": self.b,
            "rows_same": self.rows_same,
            "rows": [
                {**pair._asdict(), "a": pair.a._asdict(), "b": pair.b._asdict()}
                for pair in self.rows
            ],
            "only_a": named(self.only_a),
            "only_b": named(self.only_b),
            "steps": [pair._asdict() for pair in self.steps],
        }


def compare(a: Side, b: Side) -> Difference:
    """What differs between two sides."""
    pairs = []
    for key, ours in a.rows.items():
        theirs = b.rows.get(key)
        if theirs is None:
            continue
        what = tuple(_differing(ours, theirs))
        if what:
            pairs.append(Pair(*key, ours, theirs, what))
    only_a = [key for key in a.rows if key not in b.rows]
    only_b = [key for key in b.rows if key not in a.rows]
    numbers = sorted(a.ages.keys() | b.ages.keys())
    steps = [StepPair(n, n in a.ages, n in b.ages, a.ages.get(n), b.ages.get(n)) for n in numbers]
    return Difference(
        same=not (pairs or only_a or only_b) and a.ages.keys() == b.ages.keys(),
        rows=pairs,
        only_a=only_a,
        only_b=only_b,
        steps=steps,
        rows_same=len(a.rows) - len(only_a) - len(pairs),
        a=a.totals(),
        b=b.totals(),
    )


def _differing(a: Row, b: Row) -> Iterator[str]:
    for name in ("outcome", "tokens", "reward"):
        ours, theirs = getattr(a, name), getattr(b, name)
        if ours != theirs:
            yield name


def read_side(
    events: Iterable[Event], *, run: str | None = None, vocabulary: Vocabulary | None = None
) -> Side:
    """What is compared of a log.

    Args:
        events: the events of the whole log, in the order written.
        run: the run to compare; None for all together. Counts of groups that were
            carried over to it are found in the lines of the others.
        vocabulary: which words mean which row.
    """
    reader = _SideReader(run)
    lifecycle = Lifecycle([reader], vocabulary=vocabulary)
    lifecycle.feed_all(events)
    lifecycle.close()
    side = reader.side
    side.rows = {
        key: row for key, (_, row) in sorted(reader.tries.items(), key=lambda each: _order(each[0]))
    }
    return side


def _order(key: Key) -> tuple[tuple[int, str], ...]:
    # Numbers as numbers, without leaving out ids of other kinds.
    return tuple((len(part) if part.isdigit() else 64, part) for part in key)


class _SideReader(Listener):
    def __init__(self, run: str | None) -> None:
        self.side = Side()
        #: Rows, each with what makes its try count: sealed, and when it began.
        self.tries: dict[Key, tuple[tuple[bool, int], Row]] = {}
        self._run = run
        self._begun = False

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        """See `Listener`."""
        if self._run in (None, run):
            if not self._begun:
                self.side.started_at, self._begun = event["t"], True
            self.side.ended_at = event["t"]

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        side = self.side
        if self._run not in (None, attempt.run):
            return
        side.attempts[attempt.outcome] += 1
        side.tokens += attempt.tokens or 0
        prompt, generation = (
            self._named(attempt, "prompt_id"),
            self._named(attempt, "generation_index"),
        )
        if prompt is None and attempt.group is not None:
            prompt = attempt.group.prompt_id
        if prompt is None or generation is None:
            side.unnamed += 1
            return
        key = (_text(prompt), _text(generation))
        counts = (attempt.outcome == "sealed", attempt.started)
        before = self.tries.get(key)
        if before is None or counts >= before[0]:
            duration = None
            if attempt.first is not None:
                duration = (attempt.ended - attempt.started) / 1e6
            reward = attempt.last.get("reward") if attempt.last is not None else None
            self.tries[key] = (counts, Row(attempt.outcome, attempt.tokens, reward, duration))

    @staticmethod
    def _named(attempt: Attempt, name: str) -> Any:
        for event in (attempt.first, attempt.last):
            if event is not None and event.get(name) is not None:
                return event[name]
        return None

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        if self._run in (None, step.run) and step.number is not None:
            age = step.batch_age
            if age is not None or step.number not in self.side.ages:
                self.side.ages[step.number] = age


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
