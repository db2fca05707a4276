"""Reading a log: streaming, in constant memory, whatever the file went through."""

from __future__ import annotations

import gzip
import logging
import os
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final, NamedTuple

from ..events import Event, NotAnEvent
from .lines import MAX_LINE_BYTES, decode_line, recover

__all__ = ["BadLine", "LogError", "LogReader", "read_events"]

logger = logging.getLogger(__name__)

# Blocks that stay in a core's cache while they are searched, and that are small enough
# for an allocator to use the same memory again.
_CHUNK_BYTES: Final = 1 << 16
_GZIP_MAGIC: Final = b"\x1f\x8b"
# A file that begins with so many bad lines and no event is no log; a film is not
# read to its end to find that out.
_HOPELESS: Final = 10_000

_WHOLE_LINES: Final = re.compile(rb"[^\n]+")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class LogError(Exception):
    """A log that cannot be read, or a line of it that is no event (``strict``)."""


class BadLine(NamedTuple):
    """A line that was passed over, or whose beginning was.

    Attributes:
        number: its number in the file, from 1; 0 where lines are not counted.
        reason: what is wrong with it.
        recovered: whether a whole record stood behind the torn one, and was read.
    """

    number: int
    reason: str
    recovered: bool


class LogReader:
    r"""Reads the events of one file, in the order written.

    It survives what real files hold: a torn last line, a torn line with the next
    record fused to it, blank lines, ``\r\n``, a byte-order mark, lines that are
    no events, invalid UTF-8, bare ``NaN``, gzip, a file that is still written.

    Args:
        path: the file.
        strict: raise at the first bad line instead of passing over it.
        containing: read only lines in which one of these texts stands in quotes,
            as a key, an event's name or an id. All others are neither decoded
            nor checked, which is an order of magnitude faster.
        required: raise where the file holds no event at all, as one that is no
            log does.

    Attributes:
        bad_lines: how many lines were passed over, or their beginning.
        first_bad: the first of them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        strict: bool = False,
        containing: tuple[str, ...] = (),
        required: bool = False,
    ) -> None:
        self.path = Path(path)
        self.strict = strict
        self.bad_lines = 0
        self.first_bad: BadLine | None = None
        #: Bytes of the file read so far (of the compressed file, where it is one).
        self.position = 0
        self._containing = containing
        self._required = required
        self._found = False

    def __iter__(self) -> Iterator[Event]:
        """The events. Each iteration reads the file anew.

        Raises:
            LogError: if the file cannot be opened or, with ``strict``, at the
                first bad line.
        """
        self.bad_lines, self.first_bad, self.position, self._found = 0, None, 0, False
        try:
            with self.path.open("rb") as raw:
                events = self._candidates(raw) if self._containing else self._all(raw)
                yield from self._demanded(events) if self._required else events
        except (OSError, ValueError, EOFError, zlib.error) as error:
            # A gzip file cut short gives all that it holds before this.
            if isinstance(error, EOFError) and not self.strict:
                self._note(0, "the gzip file ends in the middle", recovered=False)
                if self._required and not self._found:
                    self._refuse()
                return
            reason = getattr(error, "strerror", None) or error
            raise LogError(f"{self.path}: {reason}") from error

    def _demanded(self, events: Iterator[Event]) -> Iterator[Event]:
        first = next(events, None)
        if first is None:
            self._refuse()
        else:
            self._found = True
            yield first
            yield from events

    def _refuse(self) -> None:
        if self.first_bad is None:
            raise LogError(f"{self.path}: there is nothing in it")
        raise LogError(f"{self.path}: not a rollout log ({self.first_bad.reason})")

    def _all(self, raw: BufferedReader) -> Iterator[Event]:
        number = 0
        for lines in self._blocks(raw):
            for line in lines.split(b"\n"):
                number += 1
                if not line or line.isspace():
                    continue
                event = self._event(line, number)
                if event is not None:
                    yield event

    def _candidates(self, raw: BufferedReader) -> Iterator[Event]:
        needles = [f'"{text}"'.encode() for text in self._containing]
        for lines in self._blocks(raw):
            found: dict[int, int] = {}  # where a line starts, and where it ends
            for needle in needles:
                at = lines.find(needle)
                while at >= 0:
                    end = lines.find(b"\n", at)
                    found[lines.rfind(b"\n", 0, at) + 1] = end if end >= 0 else len(lines)
                    at = lines.find(needle, end) if end >= 0 else -1
            if b"\\" in lines and b"\\u00" in lines:  # the first is quick, and rules out most
                # An escape may spell any text.
                found.update(match.span() for match in _WHOLE_LINES.finditer(lines))
            for start in sorted(found):
                event = self._event(lines[start : found[start]], 0)
                if event is not None:
                    yield event

    def _event(self, line: bytes, number: int) -> Event | None:
        try:
            return decode_line(line, strict=self.strict)
        except NotAnEvent as error:
            if self.strict:
                raise LogError(f"{self.path}, line {number}: {error}") from None
            event = recover(line)
            self._note(number, str(error), recovered=event is not None)
            if self._required and not self._found and self.bad_lines >= _HOPELESS:
                self._refuse()
            return event

    def _note(self, number: int, reason: str, *, recovered: bool) -> None:
        self.bad_lines += 1
        if self.first_bad is None:
            self.first_bad = BadLine(number, reason, recovered)

    def _blocks(self, raw: BufferedReader) -> Iterator[bytes]:
        """Blocks of whole lines, without the last one's line end."""
        file = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == _GZIP_MAGIC else raw
        rest, skipping, first = bytearray(), False, True
        while chunk := file.read(_CHUNK_BYTES):
            self.position = self.position + len(chunk) if file is raw else raw.tell()
            if first:
                chunk, first = chunk.removeprefix(_BYTE_ORDER_MARK), False
            end = chunk.rfind(b"\n")
            if skipping:
                start = chunk.find(b"\n") + 1
                if not start:
                    continue
                # The line that was too long ends here.
                chunk, end, skipping = chunk[start:], end - start, False
            if end < 0:
                rest += chunk
                if len(rest) > MAX_LINE_BYTES:
                    self._note(0, f"longer than {MAX_LINE_BYTES} bytes", recovered=False)
                    rest, skipping = bytearray(), True
                continue
            yield bytes(rest) + chunk[:end] if rest else chunk[:end]
            rest = bytearray(chunk[end + 1 :])
        if rest:
            yield bytes(rest)

    def warn(self) -> None:
        """Log what was passed over, if anything: one line for the whole file."""
        if self.first_bad is not None:
            where = f"line {self.first_bad.number}" if self.first_bad.number else "one of them"
            logger.warning(
                "%s: passed over %d bad line(s); %s: %s",
                self.path,
                self.bad_lines,
                where,
                self.first_bad.reason,
            )


def read_events(path: str | os.PathLike[str], *, strict: bool = False) -> Iterator[Event]:
    """The events of a rollout log, in the order written.

    Streams in constant memory. Bad lines are passed over; where there were any,
    one warning at the end gives their number and the first one's place.

    Args:
        path: a ``rollout_trace.jsonl``, plain or gzip, complete or still written.
        strict: raise at the first bad line instead.

    Yields:
        Each event as a ``dict`` with ``t`` (seconds), ``run``, ``event`` and the
        event's own fields.

    Raises:
        LogError: if the file cannot be read or, with ``strict``, at the first
            bad line, naming file, line and reason.
    """
    reader = LogReader(path, strict=strict)
    yield from reader
    reader.warn()
