"""`RolloutTrace`: what training code calls.

``emit`` encodes the event, which is the snapshot of its fields, and queues the
line. Everything else happens on one daemon thread: see `otel_rollout_trace.worker`.
"""

from __future__ import annotations

import math
import os
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .events import HEADER, MAX_SECONDS, Vocabulary, micros_of
from .journal import LogWriter
from .values import Degraded, number_of
from .worker import MOST_QUEUED, Worker

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from typing_extensions import Self

__all__ = ["ROLLOUT_TRACE_FILENAME", "RolloutTrace"]

ROLLOUT_TRACE_FILENAME: Final = "rollout_trace.jsonl"
"""What the log is called in a run's directory."""

_encode: Final = msgspec.json.Encoder(enc_hook=number_of).encode
_now_ns: Final = time.time_ns
_PLAIN: Final = frozenset({str, int, bool})
_L: Final = ord("l")


def log_path(path: str | os.PathLike[str] | None) -> Path:
    """The log that a path means.

    Args:
        path: the file, or the directory it is in; None for the environment's
            ``OTEL_ROLLOUT_TRACE_PATH``, and without it the working directory.
    """
    given = path or os.environ.get("OTEL_ROLLOUT_TRACE_PATH") or ROLLOUT_TRACE_FILENAME
    found = Path(given)
    if os.path.isdir(found) or os.fspath(given).endswith(("/", os.sep)):
        found /= ROLLOUT_TRACE_FILENAME
    # A process that changes its directory later goes on writing the same file.
    return found.absolute()


class RolloutTrace:
    """Records what happens to a run's rollouts, in a log file and as OpenTelemetry.

    Spans and metrics go to the tracer and meter providers that are set, given
    here or globally, as with any instrumentation; without any, only the file is
    written. `otel_rollout_trace.configure` sets providers up and returns one of
    these.

    Args:
        path: the log; a directory gets a ``rollout_trace.jsonl`` in it. None makes
            every call a no-op; such an object holds no lock, thread or file, and
            can be pickled.
        tracer_provider: where spans go; the global one by default.
        meter_provider: where metrics go; the global one by default.
        synonyms: other words for events of the log, as ``{word: event}``.
        close_timeout: how long `close` may take, in seconds.
        on_open: called with the run's id before anything is written, not on the
            caller's thread.
        on_close: called at the end of `close` with the run's id and the seconds
            that are left.
        project: whether this process makes spans and metrics; otherwise it only
            writes the file.
        run: the run's id, where something else needs it before; new by default.
        opened: more fields for ``trace_opened``.

    Raises:
        ValueError: for synonyms that mean no event.

    Example:
        >>> trace = RolloutTrace("rollout_trace.jsonl")
        >>> trace.emit("group_reserved", group_id="g1", prompt_id=17)
        >>> trace.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        synonyms: Mapping[str, str] | None = None,
        close_timeout: float = 5.0,
        on_open: Callable[[str], None] | None = None,
        on_close: Callable[[str, float], None] | None = None,
        project: bool = True,
        run: str | None = None,
        opened: Mapping[str, Any] | None = None,
    ) -> None:
        self._worker: Worker | None = None
        self._make: Callable[[], Worker]
        self.path: Path | None = None
        #: The run's id: 32 hex digits, new for each process that opens the log.
        self.run = ""
        if path is None:
            return
        vocabulary = Vocabulary(synonyms)
        self.path = log_file = log_path(path)
        self.run = run or uuid.uuid4().hex
        self._make = lambda: Worker(
            LogWriter(log_file, gap_line=self._gap_line),
            self.run,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            vocabulary=vocabulary,
            close_timeout=close_timeout,
            on_open=on_open,
            on_close=on_close,
            project=project,
        )
        self._worker = self._make()
        _open_traces.add(self)
        self.emit("trace_opened", pid=os.getpid(), **(opened or {}))

    @property
    def enabled(self) -> bool:
        """Whether events are recorded: a path was given."""
        return self._worker is not None

    @property
    def dropped(self) -> int:
        """How many events were lost so far; their number is in the log too, as ``trace_gap``."""
        return self._worker.lost if self._worker is not None else 0

    def emit(self, event: str | None = None, /, **fields: Any) -> None:
        """Record that something happened. Never raises and never blocks.

        Args:
            event: what happened, a name of the vocabulary or any other.
            fields: what belongs to it. Values that JSON lacks become the nearest
                that it has, with one warning each. ``t`` sets the time of
                something that happened earlier, in seconds since the epoch.
        """
        worker = self._worker
        if worker is None:
            return
        try:
            now = _now_ns()
            encoded = _encode(fields)
            if type(event) is not str or not event:
                raise ValueError
            if "t" in fields or "run" in fields or "event" in fields:  # the header's
                raise ValueError
            # A NaN is written as null, and wants a warning. Most lines have no "l" at
            # all, which is far quicker to find out than that they have no null.
            if _L in encoded and encoded.rfind(b"null") >= 0 and any(map(_lossy, fields.values())):
                raise ValueError
            item = (now, event, encoded)
        except Exception:
            try:
                item = self._odd_item(event, fields)
            except Exception:  # at the end of the stack, say: even that takes a few calls
                worker.overflow()
                return
        queue = worker.queue
        if len(queue) < MOST_QUEUED:
            queue += item  # one step to every other thread
        else:
            worker.overflow()
        if worker.asleep:
            try:  # noqa: SIM105 - which takes frames, at the end of the stack
                worker.wake()
            except Exception:  # a later event wakes it
                pass

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was emitted before is written and projected.

        Args:
            timeout: how long to wait at most, in seconds; None waits as long as it takes.

        Returns:
            Whether it is. False where the disk does not take it, or time ran out.
        """
        return self._worker.flush(timeout) if self._worker is not None else True

    def close(self) -> None:
        """Write and project what is left, end what is open, and stop.

        Returns within the close timeout, whatever disk and collector do. What
        could not be sent is counted, said once, and can be replayed from the file.
        """
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._worker is not None:
            raise TypeError(
                "an open RolloutTrace cannot be pickled: send RolloutTrace(None), or the path, "
                "and open it in the process that records"
            )
        return (type(self), (None,))

    def __repr__(self) -> str:
        if self.path is None:
            return "RolloutTrace(None)"
        return f"<RolloutTrace {str(self.path)!r} run={self.run}>"

    def _odd_item(self, event: object, fields: dict[str, Any]) -> tuple[int, str, bytes]:
        """What is queued of an event that does not encode as it is."""
        now = _now_ns()
        try:
            return self._degraded_item(now, event, dict(fields))
        except Exception as error:  # nothing known gets here; emit must not raise even so
            name = event if isinstance(event, str) and event.isascii() else "unreadable_event"
            return now, str(name), _encode({"error": type(error).__name__})

    def _degraded_item(
        self, now: int, event: object, fields: dict[str, Any]
    ) -> tuple[int, str, bytes]:
        if event is None and "event" in fields:
            event = fields.pop("event")  # emit(event="...") as a keyword
        name = Degraded(event)
        text = name.value if isinstance(name.value, str) and name.value else str(name.value or "")
        text = text or "unnamed_event"
        given = _nanos_of(fields.get("t"))
        if given is not None:
            now = given
            del fields["t"]
        record: dict[str, Any] = {}
        for field, value in fields.items():
            plain = Degraded({field: value})
            (key, kept), *_ = plain.value.items()
            while key in HEADER or key in record or (key != field and key in fields):
                key += "_"
            record[key] = kept
            if (plain.changed or key != field) and self._worker is not None:
                self._worker.notice(text, field)
        return now, text, _encode(record)

    def _gap_line(self, lost: int) -> bytes:
        now = _now_ns() // 1000 / 1e6
        return _encode({"t": now, "run": self.run, "event": "trace_gap", "lost": lost})

    def _after_fork(self) -> None:
        """In the child: leave the parent's run alone, and open one of our own on first use."""
        if self._worker is None:
            return
        closed = self._worker.closed
        self._worker.forget()
        if closed:
            return
        self.run = uuid.uuid4().hex
        self._worker = self._make()
        # Queued, not sent: a child that never emits leaves no trace of itself. What
        # was given for the parent's opening, its resource say, is not the child's.
        pid = _encode({"pid": os.getpid()})
        self._worker.queue.extend((_now_ns(), "trace_opened", pid))


def _lossy(value: object) -> bool:
    """Whether the null in a line may stand for something other than None."""
    if type(value) is float:
        return not math.isfinite(value)
    return value is not None and type(value) not in _PLAIN


def _nanos_of(value: object) -> int | None:
    """A caller's ``t`` in nanoseconds, to the microsecond; None for what is no time."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        seconds = float(value)  # type: ignore[arg-type] # whatever it is
    except Exception:
        return None
    if not math.isfinite(seconds) or not 0 <= seconds < MAX_SECONDS:
        return None
    return micros_of(seconds) * 1000


_open_traces: weakref.WeakSet[RolloutTrace] = weakref.WeakSet()


def _reopen_after_fork() -> None:
    for trace in list(_open_traces):
        trace._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reopen_after_fork)
