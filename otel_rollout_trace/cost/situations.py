"""What is remembered of attempts and their groups until it is clear what became of them.

Attempts to which the same has happened count alike, so those that nobody will ask for
any more are only added up, by `Situation`. A long log leaves many of both, and none in a
cycle: the garbage collector need not look at them again and again (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["GroupOf", "Others", "Situation", "Sums", "Training", "Tried"]

SEALED: Final = "sealed"
INTERRUPTED: Final = "interrupted"

_ALL: Final = 2**63


#: Generations of a group, as text; None for one of which the log gives no index.
Others: TypeAlias = frozenset[str | None]


class Training(msgspec.Struct, frozen=True, gc=False):
    """A step of a run; ``step`` is None where the log gives no number."""

    run: int
    step: int | None


class Situation(msgspec.Struct, frozen=True, gc=False):
    """What happened to an attempt, as far as its fate depends on it.

    Attributes:
        run: index of the run that generated it.
        interval: how many steps that run had trained when it ended.
        outcome: how it ended.
        reason: why.
        trainings: the steps that trained its group with it in it, in the order of the log.
        discarded: why its group was discarded; None where it was not.
    """

    run: int
    interval: int
    outcome: str
    reason: str
    trainings: tuple[Training, ...]
    discarded: str | None


class Sums(msgspec.Struct, eq=False, gc=False):
    """Attempts of one situation.

    Attributes:
        attempts: how many.
        uncounted: those without a count of tokens.
        tokens: tokens they generated.
        resumed: tokens they brought along.
        held: tokens that their ends say they had, those they brought along included.
        seconds: how long they took.
    """

    attempts: int = 0
    uncounted: int = 0
    tokens: int = 0
    resumed: int = 0
    held: int = 0
    seconds: float = 0.0

    def add(self, tried: Tried) -> None:
        """Add one."""
        self.attempts += 1
        self.seconds += tried.seconds
        self.held += tried.tokens or 0
        if tried.tokens is not None and tried.brought == 0:
            self.tokens += tried.tokens
            return
        new, brought = tried.split
        self.uncounted += not tried.counted
        self.tokens += new
        self.resumed += brought


class Tried(msgspec.Struct, eq=False, gc=False):
    """An attempt, open or ended.

    Attributes:
        run: index of its run.
        started: when, in seconds; None where the log does not say.
        generation: its generation index as text; None where the log does not say.
        brought: tokens it was resumed with; None where it was resumed and the log does
            not say with how many, so that nobody can tell which of its tokens are new.
        interval: see `Situation`.
        outcome, reason: how it ended, and why.
        tokens: its tokens; None where not counted.
        seconds: how long it took.
        resumers: attempts that go on from it.
        before: an attempt of another run that had the same id.
        situation: what happened to it, once that is settled.
    """

    run: int
    started: float | None
    generation: str | None
    brought: int | None = 0
    interval: int = 0
    outcome: str = INTERRUPTED
    reason: str = ""
    tokens: int | None = None
    seconds: float = 0.0
    resumers: list[Tried] | None = None
    before: Tried | None = None
    situation: Situation | None = None

    @property
    def known(self) -> int:
        """How many tokens it is known to have had, those it brought along included.

        Where its end says it, that; else what it began with, a refit counted, or the
        attempts that go on from it say to have of it.
        """
        if self.tokens is not None and self.outcome != INTERRUPTED:
            return self.tokens
        later = [each.brought or 0 for each in self.resumers or ()]
        return max(self.tokens or 0, self.brought or 0, *later)

    @property
    def reach(self) -> int:
        """How many tokens it has of the attempt that it goes on from."""
        return _ALL if self.brought is None else min(self.brought, self.known)

    @property
    def split(self) -> tuple[int, int]:
        """``(tokens it generated, tokens it brought along)``, as far as they are known."""
        if self.brought is None:
            return 0, 0
        known = self.known
        brought = min(self.brought, known)
        return known - brought, brought

    @property
    def counted(self) -> bool:
        """Whether all its tokens are known, and which of them are new."""
        return self.tokens is not None and self.brought is not None


class GroupOf(msgspec.Struct, eq=False, gc=False):
    """The attempts of one group that one run generated, and what happened to the group.

    Attributes:
        run: index of the run.
        before: the group of another run that had the same id.
        prompt_id: its prompt.
        attempts: what was tried.
        published: its counted tokens, once published.
        interval: how many steps the run had trained when it was published.
        trainings: steps that trained it, with the generations that they had from elsewhere.
        discards: why it was discarded, with the generations that this is not about.
        touched: the place in the log of the last event about it.
    """

    run: int
    before: GroupOf | None
    prompt_id: Any = None
    attempts: list[Tried] = []  # a Struct copies it for each
    published: int | None = None
    interval: int = 0
    trainings: tuple[tuple[Training, Others], ...] = ()
    discards: tuple[tuple[str, Others], ...] = ()
    touched: int = 0

    def situations(self) -> Iterator[tuple[Tried, Situation]]:
        """Its attempts, each with what happened to it."""
        # Mostly the same to all of them: a tuple made for each takes most of the time.
        made: dict[tuple[int, str, str], Situation] = {}
        alike = not any(others for _, others in (*self.trainings, *self.discards))
        for tried in self.attempts:
            key = (tried.interval, tried.outcome, tried.reason)
            situation = made.get(key) if alike else None
            if situation is None:
                situation = made[key] = self.situation_of(tried)
            yield tried, situation

    def situation_of(self, tried: Tried) -> Situation:
        """What happened to one attempt of it."""
        trainings = [step for step, others in self.trainings if _is_about(tried, others)]
        discards = [reason for reason, others in self.discards if _is_about(tried, others)]
        return Situation(
            tried.run,
            tried.interval,
            tried.outcome,
            tried.reason,
            tuple(trainings),
            discards[0] if discards else None,
        )


def _is_about(tried: Tried, others: Others) -> bool:
    if not others:
        return True
    return tried.generation is not None and tried.generation not in others
