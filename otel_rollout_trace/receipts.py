"""What was delivered of each run, kept beside its log, so that nothing is sent twice.

A run's spans come out of its log in one order only, so a number tells which of
them a backend has. Beside ``rollout_trace.jsonl`` stands a directory
``rollout_trace.jsonl.sent`` with one small file for each run, written whole and
then renamed into place. Whoever sends a run's spans, the process that records it
or a follower of its log, keeps that file; after a kill the next one goes on there.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["CLOSED_FILE", "Process", "Receipt", "Receipts", "note_closed", "this_process"]

CLOSED_FILE: Final = "closed"
"""In a log's directory of receipts: the runs that were closed, one a line."""

_SUFFIX: Final = ".sent"
_PLAIN_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")

# A process that began so much later than it is said to have opened the log is
# another one, under the same number. Clocks are set, though hardly by more than this.
_SAME_PROCESS_S: Final = 300.0

# Ranges of spans that did not arrive; more of them grow together.
_MOST_RANGES: Final = 500


class Process(msgspec.Struct, frozen=True):
    """A process, as others can look for it.

    Attributes:
        pid: its number.
        host: the machine it is on, empty where that is not known.
        since: a time by which it ran, in seconds since the epoch.
    """

    pid: int
    host: str = ""
    since: float = 0.0

    def runs(self) -> bool | None:
        """Whether it still does; None where that cannot be seen from here."""
        if not 0 < self.pid < 2**31:
            return False
        if self.host and self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            # Without a host it may well run on another one.
            return False if self.host else None
        except (OSError, OverflowError):
            pass  # it is someone else's
        began = _began(self.pid)
        if began is None:
            return True
        if began == _ZOMBIE or (self.since and began > self.since + _SAME_PROCESS_S):
            return False if self.host else None
        return True


_ZOMBIE: Final = -1.0


def _began(pid: int) -> float | None:
    """When a process began, in seconds since the epoch; None where it cannot be told."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        booted = next(
            line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
        )
        if fields[0] in "ZX":
            return _ZOMBIE
        return int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def this_process(since: float = 0.0) -> Process:
    """The process that asks."""
    return Process(os.getpid(), socket.gethostname(), since)


class Receipt(msgspec.Struct, omit_defaults=True):
    """What was delivered of one run.

    Attributes:
        run: the run's id.
        sent: its first so many spans were dealt with.
        missing: those of them that did not arrive, as ``(first, last)``, from 1.
        refused: spans that the receiver will not take.
        segments: how many segments of the run were sent, ever.
        first_segment: the index of the first that the log still holds.
        cut: the log's beginning is gone; whether this run's is too shows when it is read.
        ended: after how many of its events it was taken to be over.
        done: nothing more is to be sent.
        sender: who sends it.
    """

    run: str
    sent: int = 0
    missing: list[tuple[int, int]] = msgspec.field(default_factory=list)
    refused: int = 0
    segments: int = 0
    first_segment: int = 0
    cut: bool = False
    ended: list[int] = msgspec.field(default_factory=list)
    done: bool = False
    sender: Process | None = None

    def wants(self, number: int) -> bool:
        """Whether the span of that number still has to be sent."""
        if number > self.sent:
            return True
        return any(first <= number <= last for first, last in self.missing)

    def arrived(self, number: int) -> None:
        """The span of that number was delivered."""
        if number == self.sent + 1:
            self.sent = number
            return
        if number > self.sent:
            self.lose(number - 1)
            self.sent = number
            return
        for place, (first, last) in enumerate(self.missing):
            if first <= number <= last:
                parts = [(first, number - 1), (number + 1, last)]
                self.missing[place : place + 1] = [part for part in parts if part[0] <= part[1]]
                return

    def begin_anew(self) -> None:
        """Its first events are gone, and with them what the numbers mean.

        Only how many segments it had stays known, so that none is sent under an id twice.
        """
        self.sent, self.missing, self.ended, self.done = 0, [], [], False
        self.first_segment = self.segments

    def lose(self, number: int) -> None:
        """The span of that number did not arrive, nor did those before it that are not sent."""
        if number <= self.sent:
            return
        first, self.sent = self.sent + 1, number
        joins = bool(self.missing) and self.missing[-1][1] == first - 1
        if joins or len(self.missing) >= _MOST_RANGES:
            self.missing[-1] = (self.missing[-1][0], number)
        else:
            self.missing.append((first, number))


class Receipts:
    """The receipts of a log's runs.

    Args:
        log: the log.
    """

    def __init__(self, log: Path) -> None:
        self.directory = log.with_name(log.name + _SUFFIX)
        self._known: dict[str, Receipt] = {}

    def of(self, run: str) -> Receipt:
        """A run's receipt, read when it is first asked for; an empty one where there is none."""
        found = self._known.get(run)
        if found is None:
            found = self._known[run] = self.read(run) or Receipt(run)
        return found

    def read(self, run: str) -> Receipt | None:
        """A run's receipt as it is on disk; None where there is none that can be read."""
        found = _read(self._path(run))
        return found if found is not None and found.run == run else None

    def all(self) -> Iterator[Receipt]:
        """Every receipt that is on disk."""
        with contextlib.suppress(OSError):
            for path in sorted(self.directory.glob("*.json")):
                found = _read(path)
                if found is not None:
                    yield found

    def save(self, receipt: Receipt) -> None:
        """Put a receipt on disk, whole or not at all.

        Raises:
            OSError: if that cannot be done.
        """
        path = self._path(receipt.run)
        self.directory.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            new.write_bytes(msgspec.json.encode(receipt))
            os.replace(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def _path(self, run: str) -> Path:
        name = run if _PLAIN_ID.fullmatch(run) else sha256(run.encode()).hexdigest()
        return self.directory / f"{name}.json"


def note_closed(directory: Path, run: str) -> None:
    """Say that a run is over, though its process may go on.

    Raises:
        OSError: if that cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / CLOSED_FILE).open("ab") as file:
        file.write(run.encode() + b"\n")


def _read(path: Path) -> Receipt | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
