"""One run of a log: what is open in it, and what it must remember of what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..recent import Recent
from .items import Attempt, Group, Refit, Segment

__all__ = ["Run", "Runs"]

# Runs that are open at once, and those that are over and may come back.
MOST_RUNS: Final = 1_000
MOST_FINISHED: Final = 10_000

SEGMENT_MICROS: Final = 300 * 1_000_000

# Ids of what has ended are remembered, so that a late event does not begin it
# again: two different spans under one id are never sent. The newest so many.
MOST_ENDED: Final = 50_000

# Refits are kept while an attempt is out that may have seen them. A stuck one
# would keep them all: past this many the oldest moves into the attempts that
# saw it, the first so many of each.
MOST_REFITS: Final = 1_024
MOST_EARLY_REFITS: Final = 64

# So many of the latest keep the counts of every call; older ones of those still out.
WHOLE_REFITS: Final = 16


class Run:
    """A run's state.

    Attributes:
        id: the run's id.
        events: how many events were read.
        last_time: time of the last one, in microseconds.
        version: the weight version generation runs on; None until the log says.
        segment: the segment that is open.
        groups: the open groups, by id, oldest first.
        segment_ends: when it is over, in microseconds; `feed` looks at every event.
        attempts: the open attempts by id, oldest first.
        ended_groups: ids of groups that ended.
        next_refit: the index that the next refit gets.
    """

    def __init__(self, run_id: str, time: int, first_segment: int = 0) -> None:
        self.id = run_id
        self.events = 0
        #: Whether it began from a checkpoint.
        self.restored = False
        self.last_time = time
        self.version: int | None = None
        self._first_segment = first_segment
        self.segment = self._new_segment(time, first_segment)
        self.groups: dict[str, Group] = {}
        self.attempts: dict[str, Attempt] = {}
        self.ended_groups: Recent[None] = Recent(MOST_ENDED)
        self.next_refit = 0
        self._ended_attempts: Recent[str | None] = Recent(MOST_ENDED)
        self._ended_in_groups: Recent[None] = Recent(MOST_ENDED)
        self._tries: Recent[int] = Recent(MOST_ENDED)
        # Ids that are new in each group only; the second of two goes under both ids.
        self._ambiguous = False
        # For events that name group and generation only; made when the first one comes.
        self._by_generation: dict[tuple[str | None, str], list[Attempt]] | None = None
        self._refits: list[Refit] = []

    # Segments

    def is_first(self, segment: Segment) -> bool:
        """Whether a segment is the first that is known."""
        return segment.index == self._first_segment

    def turn_segment(self, time: int) -> None:
        """The next segment begins where the open one ended."""
        self.segment = self._new_segment(time, self.segment.index + 1)

    def _new_segment(self, time: int, index: int) -> Segment:
        self.segment_ends = time + SEGMENT_MICROS
        return Segment(self.id, time, None, None, index=index)

    # Attempts

    def attempt_of(self, group_id: str | None, attempt_id: str) -> Attempt | None:
        """The open attempt of that id, in that group where one is named."""
        attempt = self.attempts.get(attempt_id)
        if attempt is not None and (group_id is None or attempt.group_id in (group_id, None)):
            return attempt
        if self._ambiguous and group_id is not None:
            return self.attempts.get(_both(group_id, attempt_id))
        return None

    def find_attempt(
        self, group_id: str | None, attempt_id: str | None, generation: object
    ) -> Attempt | None:
        """The open attempt an event means, which may name group and generation only."""
        if attempt_id is not None:
            return self.attempt_of(group_id, attempt_id)
        if group_id is None or generation is None:
            return None
        if self._by_generation is None:
            self._by_generation = {}
            for attempt in self.attempts.values():
                self._index(attempt)
        found = self._by_generation.get((group_id, str(generation)))
        return found[-1] if found else None

    def has_ended(self, group_id: str | None, attempt_id: str) -> bool:
        """Whether that attempt was here and has ended."""
        if attempt_id not in self._ended_attempts:
            return False
        if group_id is None or self._ended_attempts.get(attempt_id, None) in (group_id, None):
            return True
        return _both(group_id, attempt_id) in self._ended_in_groups

    def name_attempt(self, group_id: str | None, generation: object) -> str:
        """An id for an attempt that has none: its generation, and which try it is."""
        key = f"{group_id}\0{generation}"
        tries = self._tries.get(key, 0) + 1
        self._tries.put(key, tries)
        return f"generation {generation} try {tries}"

    def add_attempt(self, attempt: Attempt) -> None:
        """An attempt is out."""
        key = attempt.attempt_id
        if key in self.attempts:
            self._ambiguous = True
            key = _both(attempt.group_id, key)
        attempt.key = key
        self.attempts[key] = attempt
        if self._by_generation is not None:
            self._index(attempt)

    def remove_attempt(self, attempt: Attempt) -> None:
        """An attempt has ended."""
        del self.attempts[attempt.key]
        if self._by_generation is not None:
            self._index(attempt, out=False)
        if attempt.named:
            ended = self._ended_attempts
            if attempt.attempt_id in ended:  # an id that several groups use
                before = ended.get(attempt.attempt_id, None)
                self._ended_in_groups.put(_both(before, attempt.attempt_id), None)
                self._ended_in_groups.put(_both(attempt.group_id, attempt.attempt_id), None)
            ended.put(attempt.attempt_id, attempt.group_id)

    def _index(self, attempt: Attempt, *, out: bool = True) -> None:
        if self._by_generation is None or attempt.first is None:
            return
        key = (attempt.group_id, str(attempt.first.get("generation_index")))
        if out:
            self._by_generation.setdefault(key, []).append(attempt)
            return
        found = self._by_generation.get(key, [])
        if attempt in found:
            found.remove(attempt)
        if not found:
            self._by_generation.pop(key, None)

    # Refits

    def add_refit(self, refit: Refit) -> None:
        """The weights were replaced under every attempt that is out."""
        self.next_refit += 1
        refits = self._refits
        refits.append(refit)
        oldest = next(iter(self.attempts.values()), None)
        needed = oldest.first_refit if oldest is not None else self.next_refit
        del refits[: max(0, needed - refits[0].index)]
        if len(refits) > WHOLE_REFITS:
            refits[-WHOLE_REFITS - 1].shrink(self.attempts)
        if len(refits) > MOST_REFITS:
            self._move_into_attempts(refits.pop(0))

    def _move_into_attempts(self, refit: Refit) -> None:
        for attempt in self.attempts.values():
            if attempt.first_refit > refit.index:
                break
            if attempt.early_refits is None:
                attempt.early_refits = []
            if len(attempt.early_refits) < MOST_EARLY_REFITS:
                attempt.early_refits.append((refit, refit.tokens_of(attempt.attempt_id)))
            else:
                attempt.refits_left_out += 1

    def refits_of(self, attempt: Attempt) -> Sequence[tuple[Refit, int | None]]:
        """The refits that an open attempt has seen, with its tokens by then."""
        if attempt.first_refit == self.next_refit:
            return ()
        refits = self._refits
        seen = refits[max(0, attempt.first_refit - refits[0].index) :] if refits else []
        attempt_id = attempt.attempt_id
        return (attempt.early_refits or []) + [
            (refit, refit.tokens_of(attempt_id)) for refit in seen
        ]


class Runs:
    """The runs of a log.

    Args:
        finish: ends what is open in a run.
        first_segment: the index of a run's first segment.

    Attributes:
        current: the run that was written to last, if it is not over.
    """

    def __init__(self, finish: Callable[[Run], None], first_segment: Callable[[str], int]) -> None:
        self._finish = finish
        self._first_segment = first_segment
        # The run that was written to last is last.
        self._open: dict[str, Run] = {}
        # For what they remember: they may come back.
        self._finished: dict[str, Run] = {}
        self.current: Run | None = None

    def __iter__(self) -> Iterator[Run]:
        """The open ones, the quietest first."""
        return iter(self._open.values())

    def get(self, run_id: str) -> Run | None:
        """An open run."""
        return self._open.get(run_id)

    def switch(self, run_id: str, time: int) -> Run:
        """The run of the next event, begun with it if it is new."""
        run = self._open.pop(run_id, None)
        if run is None:
            run = self._finished.pop(run_id, None)
            if run is None:
                run = Run(run_id, time, self._first_segment(run_id))
            else:
                run.turn_segment(time)
        self._open[run_id] = self.current = run
        if len(self._open) > MOST_RUNS:
            self.end(next(iter(self._open)))
        return run

    def end(self, run_id: str) -> None:
        """End what is open in one run."""
        run = self._open.get(run_id)
        if run is None:
            return
        self._finish(run)
        del self._open[run_id]
        if run is self.current:
            self.current = None
        self._finished[run_id] = run
        if len(self._finished) > MOST_FINISHED:
            del self._finished[next(iter(self._finished))]

    def end_all(self) -> None:
        """End what is open in every run."""
        for run_id in list(self._open):
            self.end(run_id)


def _both(group_id: str | None, attempt_id: str) -> str:
    return f"{attempt_id}\0{group_id}"
