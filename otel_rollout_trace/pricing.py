"""The price of a stop, worked out when a restored run has made up for it.

What a stop cost is complete once a later run has trained a step above the last one of
the run that was stopped. Then, and only then, the log is read once more up to that
step; so it costs nothing while runs go on, and a live run, a replay and a follower,
which all read the same lines, find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from .cost import Cost, Stop
from .cost.reading import CostReader
from .events import Event, Vocabulary
from .journal import LogError

__all__ = ["Prices"]

#: The log is read once more for each restored run. Of so many, the first of a log; the
#: `cost` command prices all of them.
MOST_PRICED: Final = 8

# Events that are read without letting anything else come between.
_SLICE: Final = 256

# Times are to the microsecond; their sums are not.
_SAME_TIME_S: Final = 1e-5


class Prices:
    """Finds the stops that a run has made up for; see `Lifecycle`.

    Args:
        read: gives the events of the log from its beginning.
        vocabulary: which words mean which row.
        between: called now and then where reading the log takes long.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[Event]],
        vocabulary: Vocabulary | None = None,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._read = read
        self._vocabulary = vocabulary
        self._between = between
        # By run, in the order asked for: the step that has to be passed before anything
        # is made up for.
        self._above: dict[str, float] = {}

    def __call__(self, run: str, events: int, step: int | None) -> list[Mapping[str, Any]]:
        """The figures of the stops that this step of a restored run made up for.

        Args:
            run: the run's id.
            events: how many of its events there were, that of the step included.
            step: the step's number.
        """
        if step is None or step <= self._above.get(run, -1.0):
            return []
        if run not in self._above and len(self._above) >= MOST_PRICED:
            return []
        try:
            reader = CostReader(self._vocabulary)
            reader.feed_all(self._until(run, events))
            cost = reader.conclude()
        except LogError:
            return []
        restored = [each.run for each in cost.runs if each.restored_step is not None]
        if run in restored[MOST_PRICED:]:
            self._above[run] = float("inf")
            return []
        last_steps = {each.run: each.last_step for each in cost.runs}
        open_steps = [last_steps[stop.run] for stop in cost.stops if stop.caught_up_s is None]
        self._above[run] = min((s for s in open_steps if s is not None), default=float("inf"))
        time = cost.steps[-1].t if cost.steps else 0.0
        return [
            {"run": stop.run, **stop.to_dict()}
            for stop in _made_up_for(cost, time)
            if cost.steps[-1].run == run
        ]

    def _until(self, run: str, events: int) -> Iterator[Event]:
        left = events
        for number, event in enumerate(self._read()):
            if not number % _SLICE:
                self._between()
            yield event
            if event["run"] == run:
                left -= 1
                if not left:
                    return


def _made_up_for(cost: Cost, time: float) -> list[Stop]:
    return [
        stop
        for stop in cost.stops
        if stop.caught_up_s is not None
        and abs(stop.stopped_at + stop.caught_up_s - time) < _SAME_TIME_S
    ]
