"""The thread behind a `RolloutTrace`: it writes lines, then projects the very lines it wrote."""

from __future__ import annotations

import logging
import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from . import closing
from .events import Vocabulary
from .journal import LineMaker, LogWriter
from .live import LiveProjection

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["MOST_QUEUED", "Worker"]

logger = logging.getLogger(__name__)

# Of an event its time, its name and its fields are queued, one after the other.
_ITEMS: Final = 3

#: Items that wait for the thread; the events of more are dropped and counted.
MOST_QUEUED: Final = 250_000 * _ITEMS

# How long events gather before they are written together. A kill loses no more, and
# each write costs as much as encoding a hundred events.
_GATHER_S: Final = 0.02

# Projecting a long backlog must not keep the interpreter from the training code:
# so many lines at a time, with a pause after them.
_SLICE: Final = 64
_SLICE_PAUSE_S: Final = 0.001

# Of events written at once. Appends of whole lines in one call do not mix with those of
# another process that writes the same file.
_BLOCK_ITEMS: Final = 4_096 * _ITEMS

_MARGIN_S: Final = 0.2

_MOST_NOTICES: Final = 1_000


class Worker:
    """Owns a log's queue, file and projection.

    Args:
        writer: appends to the log.
        run: the run's id.
        tracer_provider, meter_provider: where spans and metrics go; None for the
            global ones, once they are set.
        vocabulary: which words mean which row.
        close_timeout: how long `close` may take, in seconds.
        on_open: called on the thread with the run's id, before anything else.
        on_close: called at the end of `close` with the run's id and the seconds
            that are left.
        project: whether this process makes spans and metrics.

    Attributes:
        queue: what ``emit`` appends, as `LineMaker.block` takes it.
        asleep: whether the thread waits to be woken (or was not started yet).
        closed: whether `close` was called.
    """

    def __init__(
        self,
        writer: LogWriter,
        run: str,
        *,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        vocabulary: Vocabulary,
        close_timeout: float,
        on_open: Callable[[str], None] | None,
        on_close: Callable[[str, float], None] | None,
        project: bool,
    ) -> None:
        # A list: it can be taken from by the thousand, and each of the operations used
        # is one step to every other thread. A flat one: what one thread has touched is
        # slow to get at for another, so the less there is the better.
        self.queue: list[Any] = []
        self.asleep = True
        self.closed = False
        self._writer = writer
        self._lines = LineMaker(run)
        self._projection = LiveProjection(
            writer.path,
            run,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            vocabulary=vocabulary,
            enabled=project,
            between=self._write_meanwhile,
        )
        self._run_id = run
        self._on_open = on_open
        self._close_timeout = close_timeout
        self._on_close = on_close
        self._deadline = float("inf")
        # The thread waits to acquire it, and is woken by a release. That may come from a
        # signal handler or a finalizer in the middle of another; an Event's or Condition's
        # `set` and `notify` may not.
        self._wakes = threading.Lock()
        self._wakes.acquire()
        self._flushes: deque[_Flush] = deque()
        self._notices: deque[tuple[str, str]] = deque(maxlen=_MOST_NOTICES)
        self._noticed: set[tuple[str, str]] = set()
        # Counts in one step to every other thread, signal handler and finalizer, and
        # without a frame of its own, at the end of the stack too.
        self._overflows = iter(range(sys.maxsize))
        #: Called for an event that is dropped.
        self.overflow: Callable[[], object] = self._overflows.__next__
        self._overflowed = 0
        self._reported = False
        self._done = False  # nothing is taken from the queue any more
        self._complete = False  # all that was queued is in the file
        self._busy = False  # there was something to write when last looked
        self._next_write = 0.0
        self._claim = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> int:
        """Events that are not in the file and will not be."""
        return self._writer.lost + self._overflow_count - self._overflowed

    @property
    def _overflow_count(self) -> int:
        return sys.maxsize - operator.length_hint(self._overflows)

    # On the caller's threads

    def wake(self) -> None:
        """Have the thread look at the queue; starts it on the first call."""
        if self.closed:
            # Until the thread is done what is queued is its to take.
            if self._done or self._thread is None:
                self._drop_queued()
            return
        # `asleep` is the thread's to change: if this is interrupted, the next one tries again.
        if self._thread is None:
            self._start()
        else:
            self._release()

    def _release(self) -> None:
        if self._wakes.locked():
            try:  # noqa: SIM105 - which costs as much again
                self._wakes.release()
            except RuntimeError:  # another thread was quicker
                pass

    def _drop_queued(self) -> None:
        while self.queue:
            try:
                item = self.queue.pop()
            except IndexError:  # another thread was quicker
                break
            if isinstance(item, bytes):  # the fields: one of an event's items
                self.overflow()

    def notice(self, event: str, field: str) -> None:
        """Have the thread warn, once, that a field was not written as it was."""
        if (event, field) not in self._noticed and len(self._noticed) < _MOST_NOTICES:
            self._noticed.add((event, field))
            self._notices.append((event, field))

    def flush(self, timeout: float | None) -> bool:
        """See `RolloutTrace.flush`."""
        if self.closed:
            return self._done and self._complete
        if self._thread is threading.current_thread():
            return not self.queue
        if self._thread is None and not self.queue:
            return True
        flush = _Flush()
        self._flushes.append(flush)
        self.wake()
        end = None if timeout is None else time.monotonic() + timeout
        while not flush.done.wait(
            0.1 if end is None else min(0.1, max(0.0, end - time.monotonic()))
        ):
            if end is not None and time.monotonic() >= end:
                return False
            if self._thread is None or not self._thread.is_alive():
                return False
        return flush.complete

    def close(self) -> None:
        """See `RolloutTrace.close`."""
        first = not self.closed
        if first:
            self._deadline = time.monotonic() + self._close_timeout
            self.closed = True
            closing.forget(self)
            self._release()
        thread = self._thread
        if thread is None:
            self._drop_queued()
        if thread is None or thread is threading.current_thread():
            return
        thread.join(max(0.0, self._deadline - time.monotonic()))
        if first and thread.is_alive():
            logger.warning(
                "%s: not everything could be written or sent within %g s",
                self._writer.path,
                self._close_timeout,
            )

    def forget(self) -> None:
        """In the child of a fork, where the thread is not: let go of the parent's things."""
        self.closed = self._done = True
        self._writer.close()
        self._projection.forget()

    def _start(self) -> None:
        closing.at_exit(self)
        thread = threading.Thread(target=self._run, name="rollout-trace", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down: no thread starts any more
            return
        if self._thread is None:
            self._thread = thread

    # On the thread

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return  # two started one at the same time
        self._thread = threading.current_thread()
        try:
            self._work()
        finally:
            self._done = self.asleep = True  # so that whoever emits now finds nobody there
            self._drop_queued()  # what came between the last look and this

    def _work(self) -> None:
        if self._on_open is not None:
            try:
                self._on_open(self._run_id)
            except BaseException as error:
                self._report(error)
        while not self.closed:
            self._wait()
            try:
                self._turn()
            except BaseException as error:  # none is known; the next events must not be lost
                self._report(error)
        try:
            self._finish()
        except BaseException as error:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if not self._reported:
            self._reported = True
            logger.error("%s: recording failed (said once)", self._writer.path, exc_info=error)

    def _wait(self) -> None:
        """Sleep until there is something to do, then let a few more events gather."""
        if self._projection.behind:
            self._pause(_SLICE_PAUSE_S)
            return
        # While events keep coming nobody has to wake the thread, which costs whoever
        # emits several times what the event does.
        if not self._busy:
            self.asleep = True
            if not self.queue and not self._flushes and not self.closed:
                timeout = -1.0  # for ever
                if self._writer.failing:
                    timeout = max(0.01, self._writer.next_try - time.monotonic())
                self._pause(timeout)
            self.asleep = False
        if not self._flushes and not self.closed:
            self._pause(_GATHER_S)
        self._busy = bool(self.queue)

    def _pause(self, timeout: float) -> None:
        self._wakes.acquire(timeout=timeout)

    def _turn(self) -> None:
        """Write what is queued, project a slice of what was written, answer flushes."""
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
        try:
            self._advance(to_the_end=bool(flushes))
            for flush in flushes:
                flush.complete = not self._writer.failing
        finally:
            for flush in flushes:
                flush.done.set()

    def _advance(self, *, to_the_end: bool) -> None:
        self._write(now=to_the_end)
        behind = self._projection.behind
        # The further behind, the more at a time: a backlog must not grow for ever.
        left = behind if to_the_end else max(_SLICE, behind // 8)
        while left > 0:
            self._projection.project(min(left, _SLICE))
            left -= _SLICE
            self._write_meanwhile()
        self._warn()

    def _write_meanwhile(self) -> None:
        """What is projected is safe in the file; what was recorded since is not yet."""
        now = time.monotonic()
        if self.queue and now >= self._next_write:
            self._write(now=False)

    def _write(self, *, now: bool) -> None:
        self._next_write = time.monotonic() + _GATHER_S
        queue, queued = self.queue, len(self.queue)
        for first in range(0, queued, _BLOCK_ITEMS):
            events = queue[: min(_BLOCK_ITEMS, queued - first)]
            del queue[: len(events)]
            self._projection.add(self._writer.write(self._lines.block(events), now=now))
        overflowed = self._overflow_count
        if overflowed != self._overflowed:
            self._writer.lose(overflowed - self._overflowed)
            self._overflowed = overflowed
        elif queued or not self._writer.failing:
            if now:
                self._projection.look_for_providers()
            return
        self._projection.add(self._writer.write(b"", now=now))

    def _warn(self) -> None:
        while self._notices:
            event, field = self._notices.popleft()
            logger.warning(
                "emit(%r, %s=...): a log line cannot hold this as it is; "
                "the nearest was written (said once)",
                event,
                field,
            )

    def _finish(self) -> None:
        """The file first, then the spans, then what is on its way to a backend."""
        self._write(now=True)
        while self._writer.failing and time.monotonic() < self._deadline - 0.5:
            time.sleep(0.05)
            self._write(now=True)
        waiting = self._writer.waiting
        self._writer.close()
        self._complete = not waiting
        if waiting:
            logger.warning("%s: %d events could not be written", self._writer.path, waiting)
        while self._projection.behind and time.monotonic() < self._deadline:
            self._projection.project(_SLICE)
        missing = self._projection.behind + self._projection.skipped
        if missing:
            logger.warning(
                "%s: %d events are in the file and were not projected in time; replay it",
                self._writer.path,
                missing,
            )
        else:
            self._projection.close()
        self._warn()
        if self._on_close is not None:
            try:
                # A little is left for the caller, who waits until the same moment.
                left = max(0.0, self._deadline - _MARGIN_S - time.monotonic())
                self._on_close(self._run_id, left)
            except Exception:
                logger.exception("%s: closing failed", self._writer.path)


class _Flush:
    """Someone waits for what was emitted so far."""

    __slots__ = ("complete", "done")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.complete = False
