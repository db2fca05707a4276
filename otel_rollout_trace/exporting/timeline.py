"""A log as a timeline: which track everything is drawn on, whatever the format.

A run has a track for its steps, one for its refits, one for what else happened to
it, its counters, and lanes. A lane is a group at a time, with the group's attempts
on tracks below it; lanes are used again, so that there are as many as groups were
open at once, and not one for each of the twenty thousand attempts of a day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ..events import clamped, id_of, text_of
from ..journal import LogReader
from ..lifecycle import Attempt, Group, Listener, Refit, Segment, Step
from ..spans import SpanRecord, names
from ..spans.fields import AttributeValue
from .exports import Pairing
from .lanes import Lane, Lanes

__all__ = ["Canvas", "Slice", "Timeline"]

# How the children of a run's track are ordered.
_STEPS, _REFITS, _EVENTS, _COUNTERS, _LANES, _STRAYS = 0, 1, 2, 3, 100, 1_000_000

# Thousands of attempts may start at once. Of values that follow each other faster than
# this, in microseconds, some are left out; each that is not is right at its time.
_COUNTER_MICROS: Final = 1_000

# Ids of attempts that a later one resumes: an arrow is drawn for so many.
_MOST_RESUMED: Final = 200_000

_LONGEST_NAME: Final = 80

#: What gives a line back exactly is for programs.
_NOT_SHOWN: Final = frozenset({names.LOG_START, names.LOG_END, names.LOG_LINE})

Details = Mapping[str, AttributeValue]


class Slice(NamedTuple):
    """Something that lasted.

    Attributes:
        name: what is written on it; slices of one name are of one colour.
        category: what it is.
        started, ended: in microseconds.
        details: shown when it is selected.
        moments: ``(time, name, details)`` of what happened meanwhile.
        flow_out: an arrow of this id goes out from it; None for none.
        flows_in: arrows of these ids end at it.
    """

    name: str
    category: str
    started: int
    ended: int
    details: Details
    moments: Sequence[tuple[int, str, Details]] = ()
    flow_out: int | None = None
    flows_in: Sequence[int] = ()


class Canvas(Protocol):
    """A format that timelines can be drawn in. Times are in microseconds."""

    written: Counter[str]

    def run(self, name: str) -> int:
        """A track that others are below; its id."""

    def track(self, parent: int, name: str, rank: int) -> int:
        """A track below another one, in the order of ranks; its id."""

    def counter(self, parent: int, name: str, unit: str, rank: int) -> int:
        """A track of values; its id."""

    def slice(self, track: int, drawn: Slice) -> None:
        """Draw what lasted."""

    def instant(self, track: int, time: int, name: str, details: Details) -> None:
        """Draw what happened."""

    def value(self, counter: int, time: int, value: float) -> None:
        """The value from then on."""

    def close(self) -> None:
        """Nothing comes any more."""


class Timeline(Pairing):
    """Draws runs, groups and attempts, steps and refits, and their figures.

    Args:
        canvas: draws.
    """

    def __init__(self, canvas: Canvas) -> None:
        super().__init__()
        self._canvas = canvas
        self._runs: dict[str, _RunTracks] = {}
        # By identity: ids are unique among what is open in one run only.
        self._groups: dict[int, _Place] = {}
        self._attempts: dict[int, tuple[_Place | None, Lanes[int], Lane[int]]] = {}
        self._resumed: Container[str] = ()
        self.written = canvas.written
        self.advice = ""

    def begin(self, log: Path) -> Sequence[Listener]:
        """See `Export`. Which attempts are resumed later is looked up first."""
        resumed: set[str] = set()
        for event in LogReader(log, containing=("resumed_from",)):
            attempt_id = id_of(event.get("resumed_from"))
            if attempt_id is not None and len(resumed) < _MOST_RESUMED:
                resumed.add(attempt_id)
        self._resumed = resumed
        return (self,)

    def flush(self) -> None:
        """See `Export`."""
        for run in self._runs.values():
            run.settle()

    def close(self) -> None:
        """See `Export`."""
        self._canvas.close()

    # Places

    def group_started(self, group: Group) -> None:
        """See `Listener`."""
        run = self._of(group.run)
        self._groups[id(group)] = _Place(run.lanes.take(group.started))
        run.groups.add(1, group.started)

    def attempt_started(self, attempt: Attempt) -> None:
        """See `Listener`."""
        run = self._of(attempt.run)
        place = self._groups.get(id(attempt.group)) if attempt.group is not None else None
        lanes = run.strays if place is None else place.lane.what.attempts
        if place is not None:
            place.out += 1
        self._attempts[id(attempt)] = (place, lanes, lanes.take(attempt.started))
        run.attempts.add(1, attempt.started)

    def attempt_over(self, attempt: Attempt, span: SpanRecord) -> None:
        """See `Pairing`."""
        run = self._of(attempt.run)
        run.attempts.add(-1, attempt.ended)
        place, lanes, lane = self._attempts.pop(id(attempt))
        drawn = _drawn(span, f"{attempt.outcome}: {attempt.reason}", "attempt")
        if attempt.attempt_id in self._resumed:
            drawn = drawn._replace(flow_out=span.span_id)
        self._canvas.slice(lane.what, drawn)
        self.written["attempts"] += 1
        lanes.give_back(lane, drawn.ended)
        if place is not None:
            place.out -= 1
            self._leave(run, place, attempt.group)

    def group_over(self, group: Group, span: SpanRecord) -> None:
        """See `Pairing`."""
        run = self._of(group.run)
        run.groups.add(-1, group.ended)
        place = self._groups[id(group)]
        label = f"prompt {text_of(group.prompt_id)}" if group.prompt_id is not None else "group"
        drawn = _drawn(span, label, f"group,{group.outcome}")
        self._canvas.slice(place.lane.what.track, drawn)
        self.written["groups"] += 1
        place.ended = drawn.ended
        self._leave(run, place, group)

    def _leave(self, run: _RunTracks, place: _Place, group: Group | None) -> None:
        """Give a group's lane back once it has ended and none of its attempts is out."""
        if place.ended is not None and not place.out:
            del self._groups[id(group)]
            run.lanes.give_back(place.lane, place.ended)

    # What happened

    def segment_over(self, segment: Segment, span: SpanRecord) -> None:
        """See `Pairing`. Steps and refits have tracks of their own."""
        run = self._of(segment.run)
        if segment.first is not None:
            name = segment.first["event"]
            self._instant(run.events, segment.started, name, _shown(span.attributes))
        for event in span.events:
            if event.name not in (names.STEP_EVENT, names.REFIT_EVENT):
                self._instant(run.events, event.time // 1000, event.name, _shown(event.attributes))

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        run = self._of(step.run)
        details: dict[str, AttributeValue] = {"groups": len(step.groups)}
        details[names.TOKENS_TOTAL] = clamped(step.tokens)
        if step.trained_version is not None:
            details[names.TRAINED_VERSION] = step.trained_version
        age = step.batch_age
        if age is not None:
            details[names.BATCH_AGE] = age
            self._value(run.batch_age, step.time, age)
        for field, value in step.event.items():
            if type(value) in (int, float, str, bool) and field not in _SAID_OF_STEPS:
                large = type(value) is int and not -(2**63) <= value < 2**63
                details[names.FIELD_PREFIX + field] = str(value) if large else value
        number = "" if step.number is None else f" {step.number}"
        self._instant(run.steps, step.time, f"step{number}", details)
        self.written["steps"] += 1

    def refitted(self, refit: Refit) -> None:
        """See `Listener`."""
        run = self._of(refit.run)
        details: dict[str, AttributeValue] = {}
        if refit.replaced_version is not None:
            details[names.REPLACED_VERSION] = refit.replaced_version
        name = "refit"
        if refit.weight_version is not None:
            details[names.WEIGHT_VERSION] = refit.weight_version
            name = f"refit v{refit.weight_version}"
            self._value(run.version, refit.time, refit.weight_version)
        if refit.duration is not None:
            details[names.REFIT_DURATION] = refit.duration
        self._instant(run.refits, refit.time, name, details)
        self.written["refits"] += 1

    def _instant(self, track: int, time: int, name: str, details: Details) -> None:
        self._canvas.instant(track, time, name[:_LONGEST_NAME], details)

    def _value(self, counter: int, time: int, value: float) -> None:
        self._canvas.value(counter, time, value)
        self.written["counter values"] += 1

    def _of(self, run_id: str) -> _RunTracks:
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = _RunTracks(self._canvas, run_id)
        return run


_SAID_OF_STEPS: Final = frozenset({"t", "run", "event", "step", "trained_version"})


class _GroupLane(NamedTuple):
    track: int
    attempts: Lanes[int]


class _Place:
    """Where a group is drawn.

    Attributes:
        lane: the lane.
        out: how many of its attempts are out.
        ended: when it ended; None while it is open.
    """

    __slots__ = ("ended", "lane", "out")

    def __init__(self, lane: Lane[_GroupLane]) -> None:
        self.lane = lane
        self.out = 0
        self.ended: int | None = None


class _RunTracks:
    """The tracks of a run."""

    def __init__(self, canvas: Canvas, run: str) -> None:
        self._canvas = canvas
        root = canvas.run(f"run {run[:_LONGEST_NAME]}")
        self.steps = canvas.track(root, "steps", _STEPS)
        self.refits = canvas.track(root, "refits", _REFITS)
        self.events = canvas.track(root, "events", _EVENTS)
        self.batch_age = canvas.counter(root, "batch age", "updates", _COUNTERS)
        self.attempts = _Level(canvas, root, "attempts in flight", _COUNTERS + 1)
        self.groups = _Level(canvas, root, "groups open", _COUNTERS + 2)
        self.version = canvas.counter(root, "weight version", "", _COUNTERS + 3)
        self.lanes: Lanes[_GroupLane] = Lanes(lambda number: self._lane(root, number))
        self.strays = Lanes(
            lambda number: canvas.track(root, "attempts without a group", _STRAYS + number)
        )

    def _lane(self, root: int, number: int) -> _GroupLane:
        name = f"groups, lane {number + 1}"
        track = self._canvas.track(root, name, _LANES + number)
        # Of one name: viewers show these as one track of as many rows as are needed.
        attempts = Lanes(lambda below: self._canvas.track(track, "attempts", below))
        return _GroupLane(track, attempts)

    def settle(self) -> None:
        """Write the values that wait."""
        self.attempts.settle()
        self.groups.settle()


class _Level:
    """How many there are, as a counter."""

    def __init__(self, canvas: Canvas, root: int, name: str, rank: int) -> None:
        self._canvas = canvas
        self._track = canvas.counter(root, name, "", rank)
        self._level = 0
        self._waits: int | None = None
        self._written = -_COUNTER_MICROS

    def add(self, change: int, time: int) -> None:
        """So many more from then on."""
        waits = self._waits
        # One that another follows at once is left out.
        over = waits is not None and (time < waits or time - self._written >= _COUNTER_MICROS)
        if over and waits != time:
            self.settle()
        self._level += change
        self._waits = time

    def settle(self) -> None:
        """Write the value that waits."""
        if self._waits is not None:
            self._canvas.value(self._track, self._waits, self._level)
            self._canvas.written["counter values"] += 1
            self._written, self._waits = self._waits, None


def _drawn(span: SpanRecord, name: str, category: str) -> Slice:
    """A span as a slice. Where a clock stepped back, its moments are moved inside it."""
    started, ended = span.started // 1000, span.ended // 1000
    return Slice(
        name.removesuffix(": ")[:_LONGEST_NAME],
        category,
        started,
        ended,
        _shown(span.attributes),
        [
            (min(max(event.time // 1000, started), ended), event.name, _shown(event.attributes))
            for event in span.events
        ],
        flows_in=[span_id for _, span_id in span.links],
    )


def _shown(attributes: Details) -> Details:
    if _NOT_SHOWN.isdisjoint(attributes):
        return attributes
    return {name: value for name, value in attributes.items() if name not in _NOT_SHOWN}
