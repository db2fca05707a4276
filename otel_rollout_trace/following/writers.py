"""Who writes a log, and whether they still do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..events import Event, version_of
from ..receipts import CLOSED_FILE, Process

__all__ = ["Writers"]


class Writers:
    """Knows of each run who writes it, and when it was last heard of.

    A writer is gone when it said so, or when its process is. Where that cannot be
    seen from here, since it runs on another machine or did not say on which, a long
    silence has to do.

    Args:
        directory: of the log's receipts.
        silence: for how many seconds a writer that cannot be looked for may be silent.
        known: the processes of runs, where that is known better than from the log.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        directory: Path,
        *,
        silence: float,
        known: Mapping[str, Process] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._known = known or {}
        self._closed_file = directory / CLOSED_FILE
        self._silence = silence
        self._clock = clock
        self._writers: dict[str, _Writer] = {}
        self._closed: set[str] = set()
        self._closed_seen: tuple[int, int, int] | None = None

    @property
    def runs(self) -> list[str]:
        """The runs that are not over, as far as was found out."""
        return list(self._writers)

    def heard(self, run: str, event: Event, *, opened: bool) -> None:
        """An event of a run was read."""
        writer = self._writers.get(run)
        if writer is None:
            writer = self._writers[run] = _Writer()
            writer.process = self._known.get(run)
        # A log read late tells of old events: how long ago counts, not when it was read.
        writer.last = max(writer.last, event["t"])
        if opened and run not in self._known:
            writer.process = _process_of(event)

    def forget(self, run: str) -> None:
        """A run is over."""
        self._writers.pop(run, None)

    def gone(self) -> list[str]:
        """The runs whose writers are gone; they stay so until `forget` is called."""
        self._read_closed()
        return [run for run, writer in self._writers.items() if self._is_gone(run, writer)]

    def has_closed(self, run: str) -> bool:
        """Whether a writer that is gone said so."""
        self._read_closed()  # it may have, between being looked for there and as a process
        return run in self._closed

    def is_live(self, run: str) -> bool:
        """Whether a run goes on, as far as can be seen."""
        self._read_closed()
        writer = self._writers.get(run)
        return writer is not None and not self._is_gone(run, writer)

    def _is_gone(self, run: str, writer: _Writer) -> bool:
        if run in self._closed:
            return True
        runs = writer.process.runs() if writer.process is not None else None
        if runs:
            writer.seen = True
            return False
        if runs is False or writer.seen:
            return True
        return self._clock() - writer.last > self._silence

    def _read_closed(self) -> None:
        try:
            status = self._closed_file.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen != self._closed_seen:
                self._closed = set(self._closed_file.read_text("utf-8", "replace").split("\n"))
                self._closed_seen = seen
        except OSError:
            pass  # nobody has closed yet


class _Writer:
    __slots__ = ("last", "process", "seen")

    def __init__(self) -> None:
        self.process: Process | None = None
        self.last = 0.0
        self.seen = False  # its process ran on this machine


def _process_of(event: Event) -> Process | None:
    pid = version_of(event.get("pid"))
    if pid is None or not 0 < pid < 2**31:
        return None
    resource: Any = event.get("resource")
    host = resource.get("host.name") if isinstance(resource, dict) else None
    return Process(pid, host if isinstance(host, str) else "", event["t"])
