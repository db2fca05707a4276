"""The follower: reads a log as it grows, and delivers what it tells."""

from __future__ import annotations

import enum
import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..events import Event, NotAnEvent, Vocabulary
from ..journal import LogError, LogReader, decode_line, recover
from ..journal.tail import LogTail, check_followable
from ..lifecycle import Carried, Lifecycle
from ..pricing import Prices
from ..projection import most_events
from ..receipts import Process, Receipts, this_process
from ..spans import SpanRecord, SpanView
from .delivery import Delivery, StoppedError
from .files import FilesRead
from .lock import FollowerLock
from .measuring import RunMetrics
from .writers import Writers

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["Followed", "Follower", "Until"]


class _ReadAgainError(Exception):
    """What was left out has to be read after all."""


logger = logging.getLogger(__name__)

# How often a quiet file is looked at. Asking works on every file system; being told
# does not.
_POLL_S: Final = 0.2

# How often it is asked whether writers are still there.
_LOOK_S: Final = 0.5

# A file that begins with so many bad lines and no event is no log.
_HOPELESS: Final = 10_000


class Until(enum.Enum):
    """When a follower is finished, if nobody stops it."""

    STOPPED = "never"
    WRITERS_GONE = "when nobody writes the log any more, and all is delivered"
    CAUGHT_UP = "when all that the log holds now is delivered"


@dataclass
class Followed:
    """What a follower did so far.

    Attributes:
        events: events read.
        bad_lines: lines passed over, or their beginning.
        sent: spans delivered by it.
        refused: spans that the receiver will not take.
        waiting: spans that were not delivered when it stopped.
        lag: how far it is behind the log, in seconds.
        open_attempts: attempts that are out.
        runs: how many runs it has met.
        over: the runs it found to be over.
        going_on: how many runs go on.
        outage: why nothing arrives; empty while it does.
    """

    events: int = 0
    bad_lines: int = 0
    sent: int = 0
    refused: int = 0
    waiting: int = 0
    lag: float = 0.0
    open_attempts: int = 0
    runs: int = 0
    over: list[str] = field(default_factory=list)
    going_on: int = 0
    outage: str = ""


class Follower:
    """Follows one log.

    It reads from the log's beginning, since what a span says may stand anywhere
    before its end, and sends what the receipts beside the log do not know yet.

    Args:
        log: the log, which need not exist yet.
        exporter: sends spans.
        target: where to, for messages.
        resource: the resource of a run, from its ``trace_opened`` event.
        meter_provider: makes the meter provider of a run with that resource; None
            where metrics are not sent.
        sampled: whether a span record is to be sent at all.
        vocabulary: which words mean which row.
        until: when it is finished.
        begun_only: send only what another process began to send and did not finish.
        silence, processes: see `Writers`.
        awaits: given the runs that were met, whether to wait for another one.
        wait: waits so many seconds; True where it is to stop.
        progress: called with what it did so far, several times a second.
    """

    def __init__(
        self,
        log: Path,
        *,
        exporter: SpanExporter,
        target: str,
        resource: Callable[[str, Event | None], Any],
        meter_provider: Callable[[Any], MeterProvider | None] = lambda _: None,
        sampled: Callable[[SpanRecord], bool] = lambda _: True,
        vocabulary: Vocabulary | None = None,
        until: Until = Until.STOPPED,
        begun_only: bool = False,
        silence: float = 1800.0,
        processes: Mapping[str, Process] | None = None,
        awaits: Callable[[Container[str]], bool] = lambda _: False,
        wait: Callable[[float], bool],
        progress: Callable[[Followed], object] = lambda _: None,
    ) -> None:
        self.log = log
        self.found = Followed()
        self._exporter = exporter
        self._target = target
        self._resource = resource
        self._meter_provider = meter_provider
        self._sampled = sampled
        self._vocabulary = vocabulary or Vocabulary()
        self._until = until
        self._begun_only = begun_only
        self._silence = silence
        self._processes = processes or {}
        self._awaits = awaits
        self._stop = wait
        self._report = progress
        self._first_bad = ""
        self._receipts = Receipts(log)
        self._lock = FollowerLock(self._receipts.directory)

    def run(self) -> Followed:
        """Follow the log until it is finished or told to stop.

        Raises:
            AlreadyFollowedError: if another process follows it.
            LogError: if it cannot be read, or is no rollout log.
            OSError: if nothing can be written beside it.
        """
        check_followable(self.log)
        self._lock.take()
        try:
            while self._follow():
                pass
            if not self.found.events and self._until is Until.CAUGHT_UP:
                raise LogError(
                    f"{self.log}: not a rollout log ({self._first_bad})"
                    if self._first_bad
                    else f"{self.log}: there is nothing in it"
                )
        finally:
            self._lock.release()
        return self.found

    def _follow(self) -> bool:
        """Read the log from its beginning; whether that has to be done again."""
        self._begin()
        again = False
        try:
            again = self._until_finished()
            self._delivery.flush()
        except _ReadAgainError:
            again = True
        except StoppedError:
            pass
        finally:
            self._note_progress()
            self._tail.close()
            self._metrics.close()
        return again

    def _begin(self) -> None:
        self.found.events = self.found.bad_lines = 0
        self._sent_before, self._refused_before = self.found.sent, self.found.refused
        self._receipts = Receipts(self.log)
        self._files = FilesRead(self._receipts.directory)
        self._tail = LogTail(self.log, self._files.earlier())
        if self._tail.cut:
            for receipt in self._receipts.all():
                if not receipt.done:
                    receipt.cut = True
                    self._receipts.save(receipt)
        self._writers = Writers(
            self._receipts.directory, silence=self._silence, known=self._processes
        )
        self._opened: dict[str, Event] = {}
        self._resources: dict[str, Any] = {}
        self._events: Counter[str] = Counter()
        self._next_look = 0.0
        self._last_time = 0.0
        self._delivery = Delivery(
            self._exporter,
            self._target,
            self._resource_of,
            self._receipts,
            sampled=self._sampled,
            sender=this_process(time.time()),
            wait=self._wait,
        )
        self._metrics = RunMetrics(
            lambda run: self._meter_provider(self._resource_of(run)),
            oldest_attempt=self._oldest_attempt,
            is_live=self._is_shown,
        )
        self._carried = Carried(vocabulary=self._vocabulary)
        self._lifecycle = Lifecycle(
            [SpanView(self._delivery.emit, most_events()), self._metrics],
            vocabulary=self._vocabulary,
            carried=self._carried,
            first_segment=self._first_segment,
            prices=Prices(self._from_beginning, self._vocabulary),
        )

    def _until_finished(self) -> bool:
        while True:
            # Asked before reading: whoever was gone by then has written nothing since.
            gone = self._gone()
            lines = self._tail.read()
            self._files.note(self._tail.files)
            for line in lines:
                self._feed(line)
            self._note_progress()
            if not lines:
                self._delivery.flush()
                if gone and self._end_of(gone):
                    return True
                self._note_progress()
                if self._is_finished():
                    return False
            if self._wait(0 if lines else _POLL_S):
                return False

    def _feed(self, line: bytes) -> None:
        if not line or line.isspace():
            return
        found: Event | None
        try:
            found = decode_line(line)
        except NotAnEvent as error:
            found = recover(line)
            self.found.bad_lines += 1
            self._first_bad = self._first_bad or str(error)
            if not self.found.events and self.found.bad_lines >= _HOPELESS:
                raise LogError(f"{self.log}: not a rollout log ({error})") from None
        if found is not None:
            self._take(found)

    def _take(self, event: Event) -> None:
        run = event["run"]
        row = self._vocabulary.row_of(event["event"])
        opened = row is not None and row.name == "trace_opened"
        if opened:
            self._opened.setdefault(run, event)
        if run not in self._events:
            self._meet(run, opened=opened)
        self._events[run] += 1
        self._last_time = event["t"]
        self.found.events += 1
        receipt = self._receipts.of(run)
        if receipt.done:
            if receipt.ended and self._events[run] > receipt.ended[-1]:
                # It was taken to be over too early, and is read again from its beginning.
                receipt.done = False
                self._receipts.save(receipt)
                raise _ReadAgainError
            self._carried.note(event)
            return
        self._writers.heard(run, event, opened=opened)
        self._lifecycle.feed(event)
        if self._events[run] in receipt.ended:
            self._lifecycle.end(run)

    def _meet(self, run: str, *, opened: bool) -> None:
        """A run's first event: is it ours to send?"""
        self.found.runs = max(self.found.runs, len(self._events) + 1)
        on_disk = self._receipts.read(run)
        sender = on_disk.sender if on_disk is not None else None
        if on_disk is not None and on_disk.done:
            return
        others = sender is not None and sender.pid != this_process().pid and sender.runs()
        if others or (self._begun_only and on_disk is None):
            self._delivery.left.add(run)
        else:
            # From here on it is ours, and others can see that.
            receipt = self._receipts.of(run)
            if receipt.cut and not opened:
                receipt.begin_anew()
            receipt.cut = False
            receipt.sender = this_process(time.time())
            self._receipts.save(receipt)

    def _gone(self) -> list[str]:
        """The runs whose writers are gone, looked for now and then."""
        now = time.monotonic()
        if now < self._next_look and self._until is Until.STOPPED:
            return []
        self._next_look = now + _LOOK_S
        return self._writers.gone()

    def _end_of(self, gone: list[str]) -> bool:
        """End the runs whose writers are gone; whether to begin anew for another's run."""
        if set(gone) == set(self._writers.runs):
            self._feed(self._tail.rest())  # nobody will finish that line
        for run in gone:
            if run in self._delivery.left:
                if self._is_handed_over(run):
                    return True
                continue
            if not self._writers.has_closed(run):
                self._metrics.lose(run)
            self._lifecycle.end(run)
            self._delivery.flush()
            if self._delivery.has_waiting(run):
                continue
            self._note_progress()
            self._metrics.end(run)
            self._writers.forget(run)
            receipt = self._receipts.of(run)
            if receipt.sent > self._delivery.number_of(run):
                logger.warning("%s: the receipt of run %s is of another log", self.log, run)
                receipt.begin_anew()
                self._receipts.save(receipt)
                return True
            receipt.done = True
            if self._events[run] not in receipt.ended:
                receipt.ended.append(self._events[run])
            self._receipts.save(receipt)
            self.found.over.append(run)
        return False

    def _from_beginning(self) -> Iterator[Event]:
        for path in self._tail.paths():
            yield from LogReader(path)

    def _first_segment(self, run: str) -> int:
        return self._receipts.of(run).first_segment

    def _is_handed_over(self, run: str) -> bool:
        """Whether a run that another process sent is ours to finish by now."""
        receipt = self._receipts.read(run)
        if receipt is None or receipt.done:
            self._writers.forget(run)
            return False
        return receipt.sender is None or not receipt.sender.runs()

    def _is_finished(self) -> bool:
        if self._until is Until.CAUGHT_UP:
            return True
        if self._until is Until.WRITERS_GONE:
            ours = set(self._writers.runs)
            if self._begun_only:
                ours -= self._delivery.left
            return not ours and not self._awaits(self._events)
        return False

    def _note_progress(self) -> None:
        found = self.found
        found.sent = self._sent_before + self._delivery.sent
        found.refused = self._refused_before + self._delivery.refused
        found.waiting = self._delivery.waiting
        found.open_attempts = self._lifecycle.open_attempts
        found.going_on = len(self._writers.runs)
        outage = self._delivery.outage
        found.outage = (outage.reason or "no answer yet") if outage.going_on else ""
        found.lag = 0.0
        if (self._tail.behind or self._delivery.waiting) and self._last_time:
            found.lag = max(0.0, time.time() - self._last_time)
        self._metrics.lag(found.lag)
        self._report(found)

    def _wait(self, seconds: float) -> bool:
        if seconds and self._delivery.waiting:
            self._note_progress()  # it waits for the receiver
        return self._stop(seconds)

    def _resource_of(self, run: str) -> Any:
        found = self._resources.get(run)
        if found is None:
            found = self._resources[run] = self._resource(run, self._opened.get(run))
        return found

    def _is_shown(self, run: str) -> bool:
        """Whether a run's figures are those of now; of one's own run the last ones are."""
        if run in self._delivery.left or self._receipts.of(run).done:
            return False
        return run in self._processes or self._writers.is_live(run)

    def _oldest_attempt(self, run: str) -> int | None:
        # Read from an export thread while the follower changes it.
        for _ in range(8):
            try:
                attempt = self._lifecycle.oldest_attempt(run)
            except RuntimeError:
                continue
            return None if attempt is None else attempt.started
        return None
