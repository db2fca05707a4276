"""Reading a log for its cost: who generated what, who trained it, and where runs end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

from ..events import Event, EventRow, Vocabulary, count_of, id_of, text_of, version_of
from ..lifecycle import Attempt, Carried, Refit, Step
from ..lifecycle.carried import published_of
from ..lifecycle.runs import Run
from ..recent import Recent
from .concluding import conclude
from .figures import Cost, StepAge
from .remembering import MOST_ATTEMPTS, Memory
from .situations import SEALED, Training, Tried

__all__ = ["CostReader", "cost_of"]

_RESUMED: Final = "attempt_resumed"

_MOST_PATHS: Final = 1_000

# A reason made of free text would give every attempt a row of its own.
_MOST_REASONS: Final = 50
_LONGEST_REASON: Final = 80
OTHER: Final = "_OTHER"


def cost_of(events: Iterable[Event], *, vocabulary: Vocabulary | None = None) -> Cost:
    """What the stops of a log cost, and what became of all its tokens.

    Args:
        events: the events of one log, in the order written, read once.
        vocabulary: which words mean which row.
    """
    reader = CostReader(vocabulary)
    reader.feed_all(events)
    return reader.conclude()


class Out(Attempt, eq=False, kw_only=True, gc=False):
    """An attempt that is out, with what will be remembered of it."""

    tried: Tried


class RunOf:
    """A run of the log.

    Attributes:
        index: its place among the runs, by first event.
        id: its id.
        state: which of its attempts are open, and which ids have ended.
        counted: tokens of open attempts by the last refit that counted them.
        first, last: the places in the log of its first and its last event.
        started_at, ended_at: their times.
        steps: its trained steps.
        restored: the step it restored; None without a restore.
        interval: how many steps with a number it has trained.
    """

    def __init__(self, index: int, run_id: str, place: int, t: float) -> None:
        self.index = index
        self.id = run_id
        self.state = Run(run_id, 0)
        self.counted: dict[str, int] = {}
        self.first = self.last = place
        self.started_at = self.ended_at = t
        self.steps: list[StepAge] = []
        self.restored: int | None = None
        self.interval = 0


class _Saved(NamedTuple):
    place: int
    run: int


class CostReader:
    """Takes the events of a log in the order written; `conclude` gives what they cost.

    Args:
        vocabulary: which words mean which row.
    """

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        vocabulary = vocabulary or Vocabulary()
        handlers: dict[str, Callable[[RunOf, Event, EventRow], None]] = {
            "attempt_dispatched": self._dispatched,
            "attempt_resumed": self._dispatched,
            "attempt_sealed": self._ended,
            "attempt_refused": self._ended,
            "attempt_abandoned": self._ended,
            "group_published": self._published,
            "group_discarded": self._discarded,
            "step_trained": self._trained,
            "weights_synced": self._refitted,
            "checkpoint_published": self._saved,
            "checkpoint_restored": self._restored,
        }
        self._handlers = {
            word: (row, handlers[row.name])
            for word, row in vocabulary.rows.items()
            if row.name in handlers
        }
        self._runs: dict[str, RunOf] = {}
        self._steps: list[StepAge] = []
        self._memory = Memory()
        self._carried = Carried(vocabulary=vocabulary)
        self._last_saves: deque[_Saved] = deque(maxlen=2)
        self._paths: Recent[int] = Recent(_MOST_PATHS)
        self._newest_saved = 0
        self._reasons: dict[str, str] = {}
        self._place = 0

    def feed_all(self, events: Iterable[Event]) -> None:
        """Take the next events of the log."""
        place, find = self._place, self._handlers.get
        run: RunOf | None = None
        run_id, t = "", 0.0
        for event in events:
            place += 1
            if event["run"] != run_id or run is None:
                if run is not None:
                    run.last, run.ended_at = place - 1, t
                run_id = event["run"]
                run = self._runs.get(run_id)
                if run is None:
                    run = RunOf(len(self._runs), run_id, place, event["t"])
                    self._runs[run_id] = run
            t = event["t"]
            handled = find(event["event"])
            if handled is not None:
                self._place = run.last = place
                run.ended_at = t
                handled[1](run, event, handled[0])
        if run is not None:
            run.last, run.ended_at = place, t
        self._place = place

    def conclude(self) -> Cost:
        """The figures. Nothing can be fed afterwards."""
        for run in self._runs.values():
            self._interrupt(run)
        memory = self._memory
        memory.forget_all()
        return conclude(list(self._runs.values()), self._steps, memory.situations, memory.resumed)

    # Attempts. Which of them an event means, and which have ended, is `Run`'s to say.

    def _dispatched(self, run: RunOf, event: Event, row: EventRow) -> None:
        group_id, attempt_id = id_of(event.get("group_id")), id_of(event.get("attempt_id"))
        state = run.state
        if attempt_id is not None:
            known = state.attempt_of(group_id, attempt_id) or state.has_ended(group_id, attempt_id)
        else:
            known = group_id is None or event.get("generation_index") is None
        if not known:
            self._start(run, event, row, group_id, attempt_id)

    def _start(
        self,
        run: RunOf,
        event: Event,
        row: EventRow | None,
        group_id: str | None,
        attempt_id: str | None,
    ) -> Out:
        generation = event.get("generation_index")
        tried = Tried(
            run.index,
            event["t"] if row is not None else None,
            None if generation is None else str(generation),
        )
        memory = self._memory
        resumed_from = id_of(event.get("resumed_from"))
        if resumed_from is not None or (row is not None and row.name == _RESUMED):
            self._resume(tried, event, resumed_from)
        if attempt_id is not None:
            memory.name(attempt_id, tried)
        if group_id is not None:
            group = memory.add(tried, group_id, self._place)
            if group.prompt_id is None:
                group.prompt_id = event.get("prompt_id")
        out = Out(
            run.id,
            0,
            event if row is not None else None,
            row,
            group_id=group_id,
            attempt_id=attempt_id or run.state.name_attempt(group_id, generation),
            named=attempt_id is not None,
            group=None,
            first_refit=0,
            tried=tried,
        )
        run.state.add_attempt(out)
        if memory.is_full:
            self._forget()
        return out

    def _resume(self, tried: Tried, event: Event, resumed_from: str | None) -> None:
        """Connect an attempt with the one that it goes on from, if the log has that."""
        tried.brought = count_of(event.get("tokens"))
        origin = self._memory.origin_of(tried, resumed_from)
        if origin is None:
            return
        if origin.resumers is None:
            origin.resumers = [tried]
        else:
            origin.resumers.append(tried)

    def _ended(self, run: RunOf, event: Event, row: EventRow) -> None:
        group_id, attempt_id = id_of(event.get("group_id")), id_of(event.get("attempt_id"))
        state, generation = run.state, event.get("generation_index")
        out = cast("Out | None", state.find_attempt(group_id, attempt_id, generation))
        if out is None:
            nameless = attempt_id is None and (group_id is None or generation is None)
            if nameless or (attempt_id is not None and state.has_ended(group_id, attempt_id)):
                return
            out = self._start(run, event, None, group_id, attempt_id)
        tried = out.tried
        out.last = event
        tried.outcome = row.outcome
        tried.tokens = out.tokens
        tried.interval = run.interval
        if tried.started is not None:
            tried.seconds = event["t"] - tried.started
        if row.outcome != SEALED:
            tried.reason = self._reason(event)
        if out.group_id is None:
            out.group_id = group_id  # its start did not say
            self._memory.add(tried, group_id, self._place)
        if run.counted:
            run.counted.pop(out.key, None)
        state.remove_attempt(out)

    def _reason(self, event: Event) -> str:
        reason = text_of(event.get("reason"))
        if reason not in self._reasons:
            if len(self._reasons) >= _MOST_REASONS or len(reason) > _LONGEST_REASON:
                return OTHER
            self._reasons[reason] = reason
        return self._reasons[reason]

    def _interrupt(self, run: RunOf) -> None:
        """Count what is open in a run as ended with it."""
        for attempt in run.state.attempts.values():
            tried = cast("Out", attempt).tried
            tried.tokens = run.counted.get(attempt.key)
            tried.interval = run.interval
            tried.seconds = run.ended_at - (tried.started or 0.0)
            if attempt.group_id is None:
                self._memory.add(tried, None, self._place)
        run.counted = {}
        run.state = Run(run.id, 0)

    # Groups and steps

    def _published(self, run: RunOf, event: Event, row: EventRow) -> None:
        group_id = id_of(event.get("group_id"))
        counts = published_of(event, run.state.version)
        if group_id is None or counts is None:
            return
        self._carried.publish(group_id, counts)
        group = self._memory.find(group_id)
        if group is None:
            group = self._memory.group(run.index, group_id)
        if not group.attempts:
            # A log without attempts: the group's counts stand for theirs.
            group.published = counts.tokens
            group.interval = run.interval
        group.touched = self._place

    def _discarded(self, run: RunOf, event: Event, row: EventRow) -> None:
        group_id = id_of(event.get("group_id"))
        if group_id is not None:
            self._memory.discard(run.index, group_id, self._reason(event), self._place)

    def _trained(self, run: RunOf, event: Event, row: EventRow) -> None:
        value = event.get("group_ids")
        ids = [id_of(item) for item in value] if isinstance(value, list) else []
        group_ids = [group_id for group_id in ids if group_id is not None]
        step = Step(
            run=run.id,
            time=0,
            event=event,
            number=version_of(event.get("step")),
            trained_version=version_of(event.get("trained_version")),
            groups=[(group_id, self._carried.counts_of(group_id)) for group_id in group_ids],
            ended=[],
        )
        training = Training(run.index, step.number)
        for group_id in dict.fromkeys(group_ids):
            self._memory.train(training, group_id, self._place)
        age, queue = step.batch_age, step.batch_age_queue
        trained = StepAge(
            run=run.id,
            step=step.number,
            t=event["t"],
            trained_version=step.trained_version,
            tokens=step.tokens,
            batch_age=age,
            batch_age_generation=None if age is None or queue is None else age - queue,
            batch_age_queue=queue,
            coverage=len(step.counted) / len(group_ids) if group_ids else None,
        )
        run.steps.append(trained)
        self._steps.append(trained)
        if step.number is not None:
            run.interval += 1

    # Weights and checkpoints

    def _refitted(self, run: RunOf, event: Event, row: EventRow) -> None:
        refit = Refit(run.id, 0, 0, 0, event)
        run.state.version = refit.weight_version
        for attempt in run.state.attempts.values():
            tokens = refit.tokens_of(attempt.attempt_id)
            if tokens is not None:
                run.counted[attempt.key] = tokens

    def _saved(self, run: RunOf, event: Event, row: EventRow) -> None:
        self._last_saves.append(_Saved(self._place, run.index))
        step, path = version_of(event.get("step")), id_of(event.get("path"))
        if step is not None:
            self._newest_saved = step
            if path is not None:
                self._paths.put(path, step)

    def _restored(self, run: RunOf, event: Event, row: EventRow) -> None:
        run.state.version = version_of(event.get("weight_version"))
        if run.steps:
            return  # a run that goes back by itself has not stopped
        step = version_of(event.get("step"))
        if step is None:
            # What was published under that path; else the newest is the best guess.
            step = self._paths.get(id_of(event.get("path")) or "", self._newest_saved)
        run.restored = step

    # Memory

    def _forget(self) -> None:
        horizon = self._last_saves[0].place if len(self._last_saves) == 2 else 0
        over = {run.index for run in self._runs.values() if run.last < horizon}
        for run in self._runs.values():
            if run.index in over or len(run.state.attempts) > MOST_ATTEMPTS:
                self._interrupt(run)
        out = {
            id(cast("Out", attempt).tried)
            for run in self._runs.values()
            for attempt in run.state.attempts.values()
        }
        self._memory.forget(horizon, over.__contains__, out)
