"""What is kept of attempts and groups, and until when: memory that does not grow with a log.

Kept one by one is what a later event may still be about: a run that is restored resumes
attempts and trains groups of the runs before it. What no restore of the last two
checkpoints can give back is added up by `Situation`, once there is much of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import accumulate
from typing import Final

from .situations import INTERRUPTED, SEALED, GroupOf, Others, Situation, Sums, Training, Tried

__all__ = ["MOST_ATTEMPTS", "Memory"]

#: Ended attempts that are remembered one by one, at the most (for a moment twice as many).
MOST_ATTEMPTS: Final = 250_000

# Before so many nothing is added up, so that a log of a day stays whole.
ENOUGH_ATTEMPTS: Final = 40_000

_NO_OTHERS: Final[Others] = frozenset()


class Memory:
    """The attempts and groups of all runs.

    Attributes:
        situations: attempts that were added up.
        resumed: attempts that are settled and that others go on from: their tokens
            may have several fates.
    """

    def __init__(self) -> None:
        self.situations: dict[Situation, Sums] = {}
        self.resumed: list[Tried] = []
        self._groups: dict[str, GroupOf] = {}
        self._tried: dict[str, Tried] = {}
        self._groupless = 0
        self._size = 0
        self._limit = ENOUGH_ATTEMPTS

    @property
    def is_full(self) -> bool:
        """Whether it is time to `forget`."""
        return self._size > self._limit

    def name(self, attempt_id: str, tried: Tried) -> None:
        """An attempt has an id, by which another one may go on from it."""
        same = self._tried.get(attempt_id)
        if same is not None:
            tried.before = same if same.run != tried.run else same.before
        self._tried[attempt_id] = tried

    def origin_of(self, tried: Tried, attempt_id: str | None) -> Tried | None:
        """The attempt that another one goes on from: of another run, if there is one."""
        origin = self._tried.get(attempt_id) if attempt_id is not None else None
        while origin is not None and origin.run == tried.run and origin.before is not None:
            origin = origin.before
        return origin

    def add(self, tried: Tried, group_id: str | None, place: int) -> GroupOf:
        """An attempt is of a group (None: of one that the log does not name)."""
        if group_id is None:
            self._groupless += 1
            group_id = f"\0{self._groupless}"
        group = self.group(tried.run, group_id)
        group.attempts.append(tried)
        group.touched = place
        self._size += 1
        return group

    def find(self, group_id: str) -> GroupOf | None:
        """The latest run's group of that id."""
        return self._groups.get(group_id)

    def group(self, run: int, group_id: str) -> GroupOf:
        """A run's own group of that id."""
        group = latest = self._groups.get(group_id)
        while group is not None and group.run != run:
            group = group.before
        if group is None:
            group = self._groups[group_id] = GroupOf(run, latest)
            self._size += 1
        return group

    def meant(self, run: int, group_id: str) -> Iterator[tuple[GroupOf, Others]]:
        """The groups that an event of a run is about, with the generations that it is not.

        Its own; and what a checkpoint carried over to it: of groups of other runs with
        the same id and prompt, the generations that it has not generated (again).
        """
        group = self._groups.get(group_id)
        if group is None:
            return
        if group.before is None:
            yield group, _NO_OTHERS
            return
        chain = sorted(_chain(group), key=lambda each: each.run != run)  # its own one first
        prompt_id = next((each.prompt_id for each in chain if each.prompt_id is not None), None)
        others: set[str | None] = set()
        for each in chain:
            if each.prompt_id is None or each.prompt_id == prompt_id:
                yield each, frozenset(others)
                others.update(tried.generation for tried in each.attempts)

    def train(self, training: Training, group_id: str, place: int) -> None:
        """A step trained a group."""
        for group, others in self.meant(training.run, group_id):
            group.trainings += ((training, others),)
            group.touched = place

    def discard(self, run: int, group_id: str, reason: str, place: int) -> None:
        """A group was discarded."""
        for group, others in self.meant(run, group_id):
            group.discards += ((reason, others),)
            group.touched = place

    def forget(self, horizon: int, is_over: Callable[[int], bool], is_out: Container[int]) -> None:
        """Add up what nothing will be said about any more; past the most, the oldest too.

        Args:
            horizon: the place in the log of the checkpoint before the last.
            is_over: tells of a run, by index, whether it ended before that.
            is_out: tells of an attempt, by ``id()``, whether it is open.
        """
        self._settle(
            [
                group
                for group in self._all()
                if group.touched < horizon
                and (group.trainings or group.discards or is_over(group.run))
            ],
            is_out,
        )
        if self._size > MOST_ATTEMPTS:
            # Trained ones first: the others may still be.
            oldest = sorted(self._all(), key=lambda group: (not group.trainings, group.touched))
            sizes = accumulate(1 + len(group.attempts) for group in oldest)
            surplus = self._size - MOST_ATTEMPTS // 2
            self._settle(
                [group for group, size in zip(oldest, sizes, strict=True) if size <= surplus],
                is_out,
            )
        self._limit = max(ENOUGH_ATTEMPTS, 2 * self._size)

    def forget_all(self) -> None:
        """Add everything up."""
        for group in self._all():
            self._add_up(group)
        self._groups, self._tried = {}, {}

    def _all(self) -> Iterator[GroupOf]:
        for group in self._groups.values():
            yield from _chain(group)

    def _settle(self, groups: list[GroupOf], is_out: Container[int]) -> None:
        settled = set()
        for group in groups:
            for tried in group.attempts:
                if tried.outcome == INTERRUPTED and id(tried) in is_out:
                    break
            else:
                self._add_up(group)
                settled.add(id(group))
        if not settled:
            return
        before, self._groups = self._groups, {}
        for group_id, group in before.items():
            kept = [each for each in _chain(group) if id(each) not in settled]
            for newer, older in zip(kept, [*kept[1:], None], strict=False):
                newer.before = older
            if kept:
                self._groups[group_id] = kept[0]
        self._tried = {
            attempt_id: tried
            for attempt_id, tried in self._tried.items()
            if tried.situation is None
        }
        for tried in self._tried.values():
            if tried.before is not None and tried.before.situation is not None:
                tried.before = None
        self._size = sum(1 + len(group.attempts) for group in self._all())

    def _add_up(self, group: GroupOf) -> None:
        for tried, situation in group.situations():
            tried.situation = situation
            if tried.resumers is not None:
                self.resumed.append(tried)
            else:
                self._sums(situation).add(tried)
        if not group.attempts and group.published:
            alone = Tried(group.run, None, None, interval=group.interval, outcome=SEALED)
            sums = self._sums(group.situation_of(alone))
            sums.tokens += group.published
            sums.held += group.published

    def _sums(self, situation: Situation) -> Sums:
        sums = self.situations.get(situation)
        if sums is None:
            sums = self.situations[situation] = Sums()
        return sums


def _chain(group: GroupOf) -> Iterator[GroupOf]:
    """A group, and those of other runs that had its id before it."""
    found: GroupOf | None = group
    while found is not None:
        yield found
        found = found.before
