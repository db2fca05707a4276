"""From events to items: what each row of the vocabulary starts, changes or ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ..events import Event, EventRow, Vocabulary, count_of, id_of, micros_of, text_of, version_of
from .carried import Carried, published_of
from .items import (
    TRAINED,
    Attempt,
    Group,
    Item,
    Listener,
    Moment,
    Price,
    Refit,
    Segment,
    Step,
)
from .runs import Run, Runs

__all__ = ["Lifecycle"]

SEGMENT_MOMENTS: Final = 100

# A group's or attempt's own moments: the first and the last so many are shown on
# it, those between on the run. With its refits they stay under the 128 events
# that an SDK's span keeps.
HALF_OF_MOMENTS: Final = 48

# What may be open at once. A log whose groups never end would fill the memory
# otherwise; past the limit the oldest ends as interrupted, and says so.
MOST_ATTEMPTS: Final = 250_000
MOST_GROUPS: Final = 100_000

EVICTED: Final = "too_many_open"

# Earlier than any event: the segment ends with this one.
_NOW: Final = -1

_Handler = Callable[[Run, Event, Any, int], None]


class Lifecycle:
    """Follows the groups, attempts and segments of every run in a log.

    Args:
        listeners: hear what starts and ends, in this order.
        vocabulary: which words mean which row.
        carried: what is known across runs.
        first_segment: the index of a run's first segment, where what was before it is
            in the log no more.
        prices: given a restored run, how many of its events were read, and the step it
            has just trained: the figures of the stops that it has made up for with it.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        vocabulary: Vocabulary | None = None,
        carried: Carried | None = None,
        first_segment: Callable[[str], int] = lambda _: 0,
        prices: Callable[[str, int, int | None], Iterable[Mapping[str, Any]]] = lambda *_: (),
    ) -> None:
        # This one is called for every event: only who wants it.
        wanting = [e for e in listeners if type(e).event_read is not Listener.event_read]
        self._event_read = [each.event_read for each in wanting]
        self._attempt_started = [each.attempt_started for each in listeners]
        self._attempt_ended = [each.attempt_ended for each in listeners]
        self._group_started = [each.group_started for each in listeners]
        self._group_ended = [each.group_ended for each in listeners]
        self._segment_ended = [each.segment_ended for each in listeners]
        self._on_refit = [each.refitted for each in listeners]
        self._on_step = [each.stepped for each in listeners]
        vocabulary = vocabulary or Vocabulary()
        self._carried = carried or Carried(vocabulary=vocabulary)
        self._order = 0
        self._runs = Runs(self._finish, first_segment)
        self._prices = prices
        self._open_attempts = 0
        self._open_groups = 0
        handlers: Mapping[str, _Handler] = {
            "trace_opened": self._opened,
            "group_reserved": self._reserved,
            "group_admitted": self._group_moment,
            "group_sealed": self._group_moment,
            "group_published": self._published,
            "group_discarded": self._discarded,
            "attempt_dispatched": self._dispatched,
            "attempt_resumed": self._dispatched,
            "attempt_sealed": self._attempt_over,
            "attempt_refused": self._attempt_over,
            "attempt_abandoned": self._attempt_over,
            "step_trained": self._trained,
            "weights_synced": self._refitted,
            "checkpoint_published": self._saved,
            "checkpoint_restored": self._restored,
            "trace_gap": self._run_moment,
        }
        self._rows: dict[str, tuple[EventRow | None, _Handler]] = {
            word: (row, handlers[row.name]) for word, row in vocabulary.rows.items()
        }
        self._no_row: tuple[EventRow | None, _Handler] = (None, self._other)

    @property
    def open_attempts(self) -> int:
        """How many attempts are out."""
        return self._open_attempts

    def oldest_attempt(self, run_id: str | None = None) -> Attempt | None:
        """The attempt that has been out longest, in a run or the one written to last."""
        run = self._runs.current if run_id is None else self._runs.get(run_id)
        return next(iter(run.attempts.values()), None) if run is not None else None

    def feed_all(self, events: Iterable[Event]) -> None:
        """`feed` for each event."""
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Take the next event of the log."""
        self._order += 1
        run = self._runs.current
        time = micros_of(event["t"])
        if run is None or run.id != event["run"]:
            run = self._runs.switch(event["run"], time)
        run.last_time = time
        run.events += 1
        row, handle = self._rows.get(event["event"], self._no_row)
        handle(run, event, row, time)
        for tell in self._event_read:
            tell(run.id, event, row)
        if time >= run.segment_ends:
            self._end_segment(run.segment, time)
            run.turn_segment(time)

    def end(self, run_id: str) -> None:
        """End what is open in one run. It may come back: its writer was only slow."""
        self._runs.end(run_id)

    def close(self) -> None:
        """End what is open, each run's at that run's last event."""
        self._runs.end_all()

    # Runs and segments

    def _finish(self, run: Run) -> None:
        time = run.last_time
        for attempt in list(run.attempts.values()):
            self._end_attempt(run, attempt, time)
        for group in list(run.groups.values()):
            self._end_group(run, group, time)
        segment = run.segment
        if segment.moments or run.is_first(segment) or time != segment.started:
            self._end_segment(segment, time)

    def _end_segment(self, segment: Segment, time: int) -> None:
        segment.ended = time
        for tell in self._segment_ended:
            tell(segment)

    def _opened(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        if run.events == 1 and run.is_first(run.segment):
            run.segment.first, run.segment.first_row = event, row
        else:
            self._run_moment(run, event, row, time)

    def _run_moment(self, run: Run, event: Event, row: EventRow | None, time: int) -> None:
        self._add(run, run.segment, Moment(self._order, time, row, event))

    def _saved(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        self._run_moment(run, event, row, time)
        run.segment_ends = _NOW

    def _restored(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        run.version = version_of(event.get("weight_version"))
        run.restored = True
        self._run_moment(run, event, row, time)

    def _refitted(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        refit = Refit(run.id, run.next_refit, self._order, time, event)
        run.version = refit.weight_version
        run.add_refit(refit)
        self._add(run, run.segment, Moment(self._order, time, row, event, refit))
        for tell in self._on_refit:
            tell(refit)

    def _add(self, run: Run, item: Item, moment: Moment) -> None:
        moments = item.moments
        if moments is None:
            moments = item.moments = []
        if item is run.segment:
            moments.append(moment)
            if len(moments) >= SEGMENT_MOMENTS:
                run.segment_ends = _NOW
        elif len(moments) < HALF_OF_MOMENTS:
            moments.append(moment)
        else:
            if item.latest is None:
                item.latest = []
            item.latest.append(moment)
            if len(item.latest) > HALF_OF_MOMENTS:
                item.left_out += 1
                self._add(run, run.segment, item.latest.pop(0))

    # Groups

    def _group_of(self, run: Run, group_id: str | None, time: int) -> Group | None:
        """The open group of that id, begun here if the log has not named it yet.

        None where there is no id, or the group has ended.
        """
        if group_id is None:
            return None
        group = run.groups.get(group_id)
        if group is None and group_id not in run.ended_groups:
            group = self._start_group(run, group_id, time, None, None)
        return group

    def _start_group(
        self, run: Run, group_id: str, time: int, first: Event | None, first_row: EventRow | None
    ) -> Group:
        group = Group(run.id, time, first, first_row, group_id=group_id)
        run.groups[group_id] = group
        self._open_groups += 1
        for tell in self._group_started:
            tell(group)
        if self._open_groups > MOST_GROUPS:
            crowded = next(other for other in self._runs if other.groups)
            oldest = next(iter(crowded.groups.values()))
            oldest.reason = EVICTED
            self._end_group(crowded, oldest, crowded.last_time)
        return group

    def _end_group(self, run: Run, group: Group, time: int) -> None:
        group.ended = time
        del run.groups[group.group_id]
        run.ended_groups.put(group.group_id, None)
        self._open_groups -= 1
        for tell in self._group_ended:
            tell(group)

    def _reserved(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        group_id = id_of(event.get("group_id"))
        if group_id is None or group_id in run.groups or group_id in run.ended_groups:
            self._group_moment(run, event, row, time)
            group = run.groups.get(group_id) if group_id is not None else None
        else:
            group = self._start_group(run, group_id, time, event, row)
        if group is not None:
            group.learn(event)

    def _group_moment(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        group = self._group_of(run, id_of(event.get("group_id")), time)
        if group is None:
            self._run_moment(run, event, row, time)
        else:
            self._add(run, group, Moment(self._order, time, row, event))

    def _published(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        self._group_moment(run, event, row, time)
        group_id = id_of(event.get("group_id"))
        if group_id is None:
            return
        counts = published_of(event, run.version)
        if counts is not None:
            self._carried.publish(group_id, counts)
        group = run.groups.get(group_id)
        if group is not None:
            group.learn(event)
            group.published_at = time
            group.published = counts or group.published

    def _discarded(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        group = self._group_of(run, id_of(event.get("group_id")), time)
        if group is None:
            self._run_moment(run, event, row, time)
            return
        group.last = event
        group.outcome = row.outcome
        group.reason = text_of(event.get("reason"))
        self._end_group(run, group, time)

    def _trained(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        value = event.get("group_ids")
        ids = [id_of(item) for item in value] if isinstance(value, list) else []
        group_ids = [group_id for group_id in ids if group_id is not None]
        # Every group it names exists, if only from here; one named twice ends once.
        named = {group_id: self._group_of(run, group_id, time) for group_id in group_ids}
        step = Step(
            run=run.id,
            time=time,
            event=event,
            number=version_of(event.get("step")),
            trained_version=version_of(event.get("trained_version")),
            groups=[(group_id, self._carried.counts_of(group_id)) for group_id in group_ids],
            ended=[group for group in named.values() if group is not None],
        )
        for group in step.ended:
            group.step = step
            group.outcome = TRAINED
            group.published = self._carried.counts_of(group.group_id)
            if group.group_id in run.groups:  # it may have been evicted for another one
                self._end_group(run, group, time)
        self._add(run, run.segment, Moment(self._order, time, row, event, step))
        if run.restored:
            for figures in self._prices(run.id, run.events, step.number):
                price = Moment(self._order, time, None, event, Price(figures))
                self._add(run, run.segment, price)
        for tell in self._on_step:
            tell(step)
        # Step and group hold each other otherwise: garbage that only the cyclic
        # collector, which training loops like to switch off, would find.
        step.ended.clear()

    # Attempts

    def _dispatched(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        group_id, attempt_id = id_of(event.get("group_id")), id_of(event.get("attempt_id"))
        generation = event.get("generation_index")
        if attempt_id is not None:
            known = run.attempt_of(group_id, attempt_id) or run.has_ended(group_id, attempt_id)
        else:
            known = group_id is None or generation is None
        if known:
            self._other(run, event, row, time)
            return
        self._start_attempt(run, event, row, group_id, attempt_id, time)

    def _start_attempt(
        self,
        run: Run,
        event: Event,
        row: EventRow | None,
        group_id: str | None,
        attempt_id: str | None,
        time: int,
    ) -> Attempt:
        """Begin an attempt with the event of a row, or (None) one that the log ends only."""
        group = self._group_of(run, group_id, time)
        if group is not None:
            group.learn(event)
        attempt = Attempt(
            run.id,
            time,
            event if row is not None else None,
            row,
            group_id=group_id,
            attempt_id=attempt_id or run.name_attempt(group_id, event.get("generation_index")),
            named=attempt_id is not None,
            group=group,
            first_refit=run.next_refit,
        )
        resumed_from = id_of(event.get("resumed_from"))
        if resumed_from is not None:
            attempt.origin = self._carried.origin_of(resumed_from, run.id)
        if group_id is not None and attempt_id is not None:
            self._carried.dispatch(run.id, group_id, attempt_id)
        run.add_attempt(attempt)
        self._open_attempts += 1
        for tell in self._attempt_started:
            tell(attempt)
        if self._open_attempts > MOST_ATTEMPTS:
            crowded = next(other for other in self._runs if other.attempts)
            oldest = next(iter(crowded.attempts.values()))
            oldest.reason = EVICTED
            self._end_attempt(crowded, oldest, crowded.last_time)
        return attempt

    def _attempt_over(self, run: Run, event: Event, row: EventRow, time: int) -> None:
        group_id, attempt_id = id_of(event.get("group_id")), id_of(event.get("attempt_id"))
        attempt = run.find_attempt(group_id, attempt_id, event.get("generation_index"))
        if attempt is None:
            nameless = attempt_id is None and (
                group_id is None or event.get("generation_index") is None
            )
            if nameless or (attempt_id is not None and run.has_ended(group_id, attempt_id)):
                self._other(run, event, row, time)
                return
            attempt = self._start_attempt(run, event, None, group_id, attempt_id, time)
        if attempt.group_id is None:
            attempt.group_id = group_id  # its start did not say
        attempt.last = event
        attempt.outcome = row.outcome
        attempt.reason = text_of(event.get("reason"))
        if attempt.group is not None and row.outcome == "sealed":
            attempt.group.sealed_tokens += count_of(event.get("tokens")) or 0
        self._end_attempt(run, attempt, time)

    def _end_attempt(self, run: Run, attempt: Attempt, time: int) -> None:
        attempt.ended = time
        attempt.refits = run.refits_of(attempt)
        run.remove_attempt(attempt)
        self._open_attempts -= 1
        for tell in self._attempt_ended:
            tell(attempt)

    # Everything else

    def _other(self, run: Run, event: Event, row: EventRow | None, time: int) -> None:
        """Show an event on the attempt it names, else on the group, else on the run."""
        group_id, attempt_id = id_of(event.get("group_id")), id_of(event.get("attempt_id"))
        item: Item | None = None
        if attempt_id is not None:
            item = run.attempt_of(group_id, attempt_id)
        if item is None:
            item = self._group_of(run, group_id, time)
        self._add(run, item or run.segment, Moment(self._order, time, row, event))
