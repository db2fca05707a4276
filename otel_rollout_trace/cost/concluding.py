"""From what happened to attempts to what it cost: fates, stops, ledgers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from .figures import (
    IN_FLIGHT,
    NOT_TRAINED,
    TRAINING_UNDONE,
    Cell,
    Cost,
    RunCost,
    StepAge,
    Stop,
    ledger_of,
)
from .situations import INTERRUPTED, SEALED, Situation, Sums, Tried

if TYPE_CHECKING:
    from .reading import RunOf

__all__ = ["conclude"]

# Of several fates a token has the best: it is enough that one run trained it.
_RANKS: Final = {
    fate: rank
    for rank, fate in enumerate(("trained", "waiting", "discarded", "refused", "abandoned", "lost"))
}


def conclude(
    runs: Sequence[RunOf],
    steps: list[StepAge],
    situations: Mapping[Situation, Sums],
    resumed: Sequence[Tried],
) -> Cost:
    """The figures of a log that was read to its end."""
    line = _Line(runs)
    for run in runs:
        for step in run.steps:
            step.undone = not line.holds(run.index, step.step)
    cells = _Cells(runs, line)
    for situation, sums in situations.items():
        fate, reason = line.fate_of(situation)
        again = len(situation.trainings) - 1 if fate == "trained" else 0
        cells.add(
            situation,
            fate,
            reason,
            sums.attempts,
            sums.uncounted,
            sums.tokens,
            again * sums.tokens,
            sums.resumed,
        )
    for tried in resumed:
        cells.add_resumed(tried)
    found = cells.all()
    by_run: dict[str, list[Cell]] = {}
    for cell in found:
        by_run.setdefault(cell.run, []).append(cell)
    return Cost(
        stops=_stops(line, situations, resumed),
        ledger=ledger_of(found),
        runs=[_run_cost(run, line, by_run.get(run.id, [])) for run in runs],
        steps=steps,
        _cells=found,
    )


def _run_cost(run: RunOf, line: _Line, cells: list[Cell]) -> RunCost:
    numbers = [step.step for step in run.steps if step.step is not None]
    following = line.next[run.index]
    return RunCost(
        run=run.id,
        started_at=run.started_at,
        ended_at=run.ended_at,
        restored_step=run.restored,
        followed_by=None if following is None else line.runs[following].id,
        first_step=min(numbers, default=None),
        last_step=max(numbers, default=None),
        ledger=ledger_of(cells),
    )


class _Line:
    """Which run follows which, and which steps hold in the end.

    Attributes:
        runs: the runs, by first event.
        next: for each run the index of the one that follows it; None where none does.
    """

    def __init__(self, runs: Sequence[RunOf]) -> None:
        self.runs = runs
        firsts = [run.first for run in runs]
        self.next: list[int | None] = []
        for run in runs:
            place = bisect_left(firsts, run.last + 1)
            self.next.append(place if place < len(runs) else None)
        # A step holds if no run of those that follow went back to before it.
        self._highest: list[int | None] = [None] * len(runs)
        for index in reversed(range(len(runs))):
            following = self.next[index]
            if following is not None:
                highest = self._highest[following]
                restored = runs[following].restored or 0
                self._highest[index] = restored if highest is None else min(restored, highest)

    def holds(self, run: int, step: int | None) -> bool:
        """Whether a step of a run was not undone by a later restore."""
        highest = self._highest[run]
        return highest is None or (step is not None and step <= highest)

    def fate_of(self, situation: Situation) -> tuple[str, str]:
        """What became of attempts that nothing else goes on from, and why."""
        if situation.outcome not in (SEALED, INTERRUPTED):
            return situation.outcome, situation.reason
        sealed = situation.outcome == SEALED
        if sealed and any(self.holds(each.run, each.step) for each in situation.trainings):
            return "trained", ""
        if situation.discarded is not None:
            return "discarded", situation.discarded
        if self.next[situation.run] is None:
            return "waiting", ""
        if not sealed:
            return "lost", IN_FLIGHT
        return "lost", TRAINING_UNDONE if situation.trainings else NOT_TRAINED


class _Cells:
    """Adds up tokens by run, step, fate and reason."""

    def __init__(self, runs: Sequence[RunOf], line: _Line) -> None:
        self._runs = runs
        self._line = line
        self._labels: dict[int, list[int]] = {}
        self._sums: dict[tuple[int, int, str, str], list[int]] = {}

    def add(self, situation: Situation, fate: str, reason: str, *numbers: int) -> None:
        """Add numbers in the order of `Cell`."""
        key = (situation.run, self._label(situation.run, situation.interval), fate, reason)
        sums = self._sums.setdefault(key, [0, 0, 0, 0, 0])
        for place, number in enumerate(numbers):
            sums[place] += number

    def all(self) -> list[Cell]:
        """The cells, by run and step."""
        ordered = sorted(self._sums.items(), key=lambda item: (item[0][0], item[0][1]))
        return [
            Cell(self._runs[run].id, step, fate, reason, *sums)
            for (run, step, fate, reason), sums in ordered
        ]

    def _label(self, run: int, interval: int) -> int:
        """The step that a run worked towards: the next it trained, or would have."""
        labels = self._labels.get(run)
        if labels is None:
            found = self._runs[run]
            labels = [step.step for step in found.steps if step.step is not None]
            labels.append((labels[-1] if labels else found.restored or 0) + 1)
            self._labels[run] = labels
        return labels[interval]

    def add_resumed(self, tried: Tried) -> None:
        """Add an attempt that others go on from: each of its tokens has its best fate."""
        if tried.situation is None:
            return
        new, brought = tried.split
        start, end = (brought, brought + new) if tried.brought is not None else (0, 0)
        cuts = sorted({start, end, *(cut for cut in _cuts(tried) if start < cut < end)})
        # The attempt itself is what its first token is.
        first = True
        for low, high in zip(cuts, cuts[1:] or cuts, strict=False):
            fate, reason, again = self._best(tried, low)
            self.add(
                tried.situation,
                fate,
                reason,
                int(first),
                int(first and not tried.counted),
                high - low,
                again * (high - low),
                brought if first else 0,
            )
            first = False

    def _best(self, tried: Tried, token: int) -> tuple[str, str, int]:
        """Fate and reason of one token, and how often it was trained after the first time."""
        fates, trainings = [], 0
        for situation in _holders(tried, token):
            fates.append(self._line.fate_of(situation))
            if situation.outcome == SEALED:
                trainings += len(situation.trainings)
        fate, reason = min(fates, key=lambda each: _RANKS[each[0]])
        return fate, reason, trainings - 1 if fate == "trained" else 0


def _later(tried: Tried) -> Iterator[Tried]:
    """An attempt and all that go on from it, directly or not."""
    waiting = [tried]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += each.resumers or ()


def _cuts(tried: Tried) -> set[int]:
    return {each.reach for each in _later(tried)}


def _holders(tried: Tried, token: int) -> Iterator[Situation]:
    """The situations of all attempts that have a token, by its place in the sequence."""
    waiting = [tried]
    while waiting:
        each = waiting.pop()
        if each.situation is not None:
            yield each.situation
        waiting += [further for further in each.resumers or () if further.reach > token]


def _stops(
    line: _Line, situations: Mapping[Situation, Sums], resumed: Sequence[Tried]
) -> list[Stop]:
    found: dict[int, Stop] = {}
    for run in line.runs:
        following = line.next[run.index]
        if following is not None:
            found[run.index] = _stop(run, line.runs[following])
    _catch_up(line, found)
    for situation, sums in situations.items():
        stop = found.get(situation.run)
        if stop is None:
            continue
        if situation.outcome == INTERRUPTED:
            stop.attempts_in_flight += sums.attempts
            stop.in_flight_s += sums.seconds
        elif _is_at_stake(situation, line, stop):
            if any(each.run == line.next[situation.run] for each in situation.trainings):
                stop.attempts_kept += sums.attempts
                stop.tokens_kept += sums.held
            else:
                stop.attempts_lost += sums.attempts
                stop.tokens_lost += sums.held
                stop.generation_s_lost += sums.seconds
    for tried in resumed:
        stop = found.get(tried.run)
        if stop is not None and tried.situation is not None:
            _add_resumed(stop, tried, tried.situation, line)
    for stop in found.values():
        stop.generation_s_lost += stop.in_flight_s
    return list(found.values())


def _is_at_stake(situation: Situation, line: _Line, stop: Stop) -> bool:
    """Whether a sealed attempt was not safe when its run stopped."""
    following = line.next[situation.run]
    return (
        situation.outcome == SEALED
        and situation.discarded is None
        and not any(
            following is not None
            and each.run < following
            and each.step is not None
            and each.step <= stop.restored_step
            for each in situation.trainings
        )
    )


def _add_resumed(stop: Stop, tried: Tried, situation: Situation, line: _Line) -> None:
    if situation.outcome == INTERRUPTED:
        stop.attempts_in_flight += 1
        stop.in_flight_s += tried.seconds
        return
    if not _is_at_stake(situation, line, stop):
        return
    following = line.next[tried.run]
    held = tried.tokens or 0
    heirs = [each for each in tried.resumers or () if each.run == following]
    if any(each.run == following for each in situation.trainings):
        kept = held
    elif heirs:
        kept = max(min(each.reach, held) for each in heirs)
    else:
        stop.attempts_lost += 1
        stop.tokens_lost += held
        stop.generation_s_lost += tried.seconds
        return
    stop.attempts_kept += 1
    stop.tokens_kept += kept
    stop.tokens_lost += held - kept


def _stop(run: RunOf, following: RunOf) -> Stop:
    restored = following.restored or 0
    again = [step for step in run.steps if step.step is not None and step.step > restored]
    return Stop(
        run=run.id,
        next_run=following.id,
        stopped_at=run.ended_at,
        resumed_at=following.started_at,
        downtime_s=following.started_at - run.ended_at,
        restored_step=restored,
        steps_repeated=sorted({step.step for step in again if step.step is not None}),
        tokens_trained_again=sum(step.tokens for step in again),
        first_step_s=following.steps[0].t - following.started_at if following.steps else None,
    )


def _catch_up(line: _Line, stops: Mapping[int, Stop]) -> None:
    """Fill in when a later run had trained a step above a run's last one."""
    numbered = [[step for step in run.steps if step.step is not None] for run in line.runs]
    heights = [list(accumulate((step.step or 0 for step in each), max)) for each in numbered]
    tops = [height[-1] if height else None for height in heights]
    # The highest step from each run on: most runs that never catch up are seen at once.
    ahead = list(accumulate((top if top is not None else -1 for top in reversed(tops)), max))[::-1]
    for index, stop in stops.items():
        top = tops[index]
        last = top if top is not None else line.runs[index].restored or 0
        place = line.next[index]
        if place is None or ahead[place] <= last:
            continue
        for later in range(place, len(line.runs)):
            height = heights[later]
            if height and height[-1] > last:
                step = numbered[later][bisect_left(height, last + 1)]
                stop.caught_up_s = step.t - stop.stopped_at
                break
