"""Appending to a log: whole lines, whatever the disk does.

The writer keeps lines that could not be written and tries again with growing
pauses. Only when that buffer is full are further lines dropped, and the first
thing it writes after them is a ``trace_gap`` line with their exact number.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

__all__ = ["LogWriter"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0

# How often it is looked whether the path still names the open file. On a shared
# file system that is a question to a server.
_LOOK_S: Final = 0.1

# Waiting lines handed to one write(2).
_WRITE_LINES: Final = 4_096


class LogWriter:
    """Appends lines to one file and survives what disks do.

    Not for several threads at a time: one worker owns it.

    Args:
        path: the file; it and its directory are made on the first write.
        gap_line: makes the ``trace_gap`` line for a number of lost lines.
        buffer_bytes: how many bytes of unwritten lines are kept.
        clock: monotonic seconds, for the pauses between tries.

    Attributes:
        lost: lines dropped so far, those included that a ``trace_gap`` has told.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        gap_line: Callable[[int], bytes],
        buffer_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = Path(path)
        self.lost = 0
        self._gap_line = gap_line
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._fd = -1
        self._identity: tuple[int, int] | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._untold = 0  # lines lost since the last trace_gap
        # Bytes of the first waiting line that a partial write left in the file,
        # and the file's size then: the rest may follow only if it is still so.
        self._torn_bytes = 0
        self._torn_size = 0
        self._pause = _FIRST_PAUSE_S
        self._next_try = 0.0
        self._failure = ""
        self._next_look = 0.0

    @property
    def failing(self) -> bool:
        """Whether lines wait because the last try to write failed."""
        return bool(self._failure)

    @property
    def waiting(self) -> int:
        """How many lines wait to be written."""
        return len(self._waiting)

    @property
    def next_try(self) -> float:
        """When the next try is due, on the writer's clock."""
        return self._next_try

    def lose(self, lines: int) -> None:
        """Count lines that were dropped before they came here."""
        self.lost += lines
        self._untold += lines

    def write(self, block: bytes, *, now: bool = False) -> bytes:
        """Append lines, after what is waiting already.

        Args:
            block: whole lines, each with its line end.
            now: try even where the pause after a failure is not over.

        Returns:
            The lines that are in the file now and were not before the call, in
            order, a ``trace_gap`` line among them where one was due.
        """
        if self._failure or self._waiting or self._untold:
            return self._write_waiting(block, now=now)
        try:
            self._open(look=now)
            wrote = os.write(self._fd, block) if block else 0
        except (OSError, ValueError) as error:  # a path with a NUL in it is the latter
            self._wait_with(block)
            self._failed(error)
            return b""
        if wrote == len(block):
            return block
        whole = block.rfind(b"\n", 0, wrote) + 1
        self._wait_with(block[whole:])
        self._torn_at(wrote - whole)
        return block[:whole] + self._write_waiting(b"", now=True)

    def _write_waiting(self, block: bytes, *, now: bool) -> bytes:
        """`write` where lines wait, or the disk failed."""
        self._wait_with(block)
        if self._failure and not now and self._clock() < self._next_try:
            self._trim()
            return b""
        written: list[bytes] = []
        try:
            self._open(look=now)
            while self._waiting:
                self._append(written)
            if self._untold:
                gap = self._gap_line(self._untold)
                self._untold = 0
                self._wait_with(gap + b"\n")
                self._append(written)
        except (OSError, ValueError) as error:
            self._failed(error)
        else:
            if self._failure:
                logger.warning("%s: writing again", self.path)
                self._failure, self._pause = "", _FIRST_PAUSE_S
        return b"".join([line + b"\n" for line in written])

    def _wait_with(self, block: bytes) -> None:
        self._waiting.extend(block.split(b"\n")[:-1])
        self._waiting_bytes += len(block)

    def _trim(self) -> None:
        """Drop the newest waiting lines that are more than can wait."""
        while self._waiting_bytes > self._buffer_bytes and len(self._waiting) > 1:
            self._waiting_bytes -= len(self._waiting.pop()) + 1
            self.lose(1)

    def close(self) -> None:
        """Close the file. Lines that still wait count as lost."""
        self.lost += len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._release()

    def _open(self, *, look: bool) -> None:
        """Open the file, or open it anew where the path names another one by now."""
        if self._fd >= 0:
            clock = self._clock()
            if not look and clock < self._next_look:
                return
            self._next_look = clock + _LOOK_S
            try:
                found = os.stat(self.path)
            except FileNotFoundError:
                found = None
            if found is not None and (found.st_dev, found.st_ino) == self._identity:
                return
            self._release()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        fd = os.open(self.path, flags, 0o644)
        try:
            status = os.fstat(fd)
            if _last_byte(fd, status) not in (b"", b"\n"):
                # A kill tore the last line. On a line of its own, our first one is whole.
                os.write(fd, b"\n")
        except OSError:
            os.close(fd)
            raise
        self._fd, self._identity = fd, (status.st_dev, status.st_ino)

    def _append(self, written: list[bytes]) -> None:
        """One write of as many waiting lines as go into one; moves what got there."""
        waiting = self._waiting
        lines = list(islice(waiting, _WRITE_LINES))
        block = b"\n".join(lines) + b"\n"
        lead = 0
        if self._torn_bytes:
            if os.fstat(self._fd).st_size == self._torn_size:
                block = block[self._torn_bytes :]
                lead = -self._torn_bytes
            else:  # another process has written since: begin the line again, on its own
                block = b"\n" + block
                lead = 1
        wrote = os.write(self._fd, block)
        self._torn_bytes = 0
        done = wrote - lead
        for line in lines:
            if done < len(line) + 1:
                break
            done -= len(line) + 1
            self._waiting_bytes -= len(line) + 1
            written.append(waiting.popleft())
        self._torn_at(done)

    def _torn_at(self, done: int) -> None:
        """Note that so many bytes of the first waiting line are in the file."""
        if done > 0:
            self._torn_bytes = done
            self._torn_size = os.fstat(self._fd).st_size

    def _failed(self, error: OSError | ValueError) -> None:
        reason = getattr(error, "strerror", None) or str(error)
        if not self._failure:
            logger.warning("%s: %s; events wait in memory and are tried again", self.path, reason)
        self._failure = reason
        self._next_try = self._clock() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
        if self._torn_bytes == 0:
            # A stale handle (a directory that went and came back) heals by reopening.
            self._release()
        self._trim()

    def _release(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd, self._identity = -1, None
            self._torn_bytes = 0


def _last_byte(fd: int, status: os.stat_result) -> bytes:
    # A pipe or a device has no end to look at.
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return b""
    return os.pread(fd, 1, status.st_size - 1)
