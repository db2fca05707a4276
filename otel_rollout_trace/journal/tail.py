"""Reading a log while it grows: whole lines, as they are finished."""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from pathlib import Path
from typing import Final

from .lines import MAX_LINE_BYTES
from .reader import LogError

__all__ = ["FileId", "LogTail", "check_followable", "file_id"]

_CHUNK_BYTES: Final = 1 << 18
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

# So much of a file's beginning tells it from another one that took its place.
_HEAD_BYTES: Final = 256
_FIRST_LINE_BYTES: Final = 65_536


def check_followable(path: Path) -> None:
    """See that a path is, or can become, a log that grows.

    Raises:
        LogError: if it never will.
    """
    try:
        if path.is_dir():
            raise LogError(f"{path}: Is a directory")
        if not path.parent.is_dir():
            raise LogError(f"{path.parent}: No such directory")
        if path.is_file():
            with path.open("rb") as file:
                if file.read(2) == _GZIP_MAGIC:
                    raise LogError(f"{path}: a gzip file does not grow; replay it")
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}") from error


FileId = tuple[int, int, int]
"""Device, inode, and a checksum of the first line: which file it is, whatever it is
called by now, and whatever the same name or number held before."""


def file_id(path_or_fd: Path | int) -> FileId | None:
    """The identity of a file; None while its first line is not finished."""
    fd = path_or_fd if isinstance(path_or_fd, int) else os.open(path_or_fd, os.O_RDONLY)
    try:
        status = os.fstat(fd)
        first, end, _ = os.pread(fd, _FIRST_LINE_BYTES, 0).partition(b"\n")
        if not end and len(first) < _FIRST_LINE_BYTES:
            return None
        return status.st_dev, status.st_ino, zlib.crc32(first)
    finally:
        if fd is not path_or_fd:
            os.close(fd)


class LogTail:
    """Gives the finished lines of a file that others append to, each of them once.

    It waits for a file that does not exist yet, keeps a line that is not finished
    until it is, goes on with the file that takes another one's place (rotation),
    and begins anew where the file was cut (truncation).

    Not for several threads at a time.

    Args:
        path: the log.
        before: files that stood under this path earlier, oldest first; those that
            can still be found beside the log are read before it.

    Attributes:
        position: bytes of the present file that were read.
        size: bytes that it had when it was last looked at.
        files: the files that were read, the present one last.
        cut: whether what was read begins later than the log did.
    """

    def __init__(self, path: Path, before: list[FileId] | None = None) -> None:
        self.path = path
        self.position = 0
        self.size = 0
        self.files: list[FileId] = []
        self._fd = -1
        self._head = b""
        self._rest = bytearray()
        self._skipping = False
        self._earlier, self.cut = _found_beside(path, before or [])
        self._identified = False

    @property
    def behind(self) -> int:
        """Bytes of the present file that were not read yet."""
        return max(0, self.size - self.position)

    def read(self) -> list[bytes]:
        """The next finished lines, at most some hundred thousand bytes of them.

        Returns:
            Lines without their line ends; empty where there is nothing new.

        Raises:
            LogError: if the file cannot be read, or can be no log that grows.
        """
        try:
            if self._fd < 0 and not self._open_next():
                return []
            while True:
                block = os.pread(self._fd, _CHUNK_BYTES, self.position)
                if not block:
                    return self._at_the_end()
                lines = self._taken(block)
                if lines:  # else it is in the middle of a long one
                    return lines
        except OSError as error:
            raise LogError(f"{self.path}: {error.strerror or error}") from error

    def _taken(self, block: bytes) -> list[bytes]:
        self.size = max(self.size, self.position + len(block))
        if self.position == 0:
            if block.startswith(_GZIP_MAGIC):
                raise LogError(f"{self.path}: a gzip file does not grow; replay it")
            self._head = block[:_HEAD_BYTES]
        lines = self._lines(block)
        if lines and not self._identified:
            identity = file_id(self._fd)
            if identity is not None:
                self._identified = True
                self.files.append(identity)
        if self.position == 0 and lines:
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        self.position += len(block)
        return lines

    def paths(self) -> list[Path]:
        """Where the files stand now that were read, the present one last."""
        return [*_found_beside(self.path, self.files)[0], self.path]

    def rest(self) -> bytes:
        """What stands after the last line end, once nobody will finish it any more."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lines(self, block: bytes) -> list[bytes]:
        lines = block.split(b"\n")
        if len(lines) == 1:
            if not self._skipping:
                self._rest += block
            if len(self._rest) > MAX_LINE_BYTES:
                self._rest, self._skipping = bytearray(), True
            return []
        if self._skipping:  # the line that was too long ends here
            del lines[0]
            self._skipping = False
        elif self._rest:
            lines[0] = bytes(self._rest) + lines[0]
        self._rest = bytearray(lines.pop())
        return lines

    def _at_the_end(self) -> list[bytes]:
        """Nothing new in this file: is it still the one, and as long as it was?"""
        status = os.fstat(self._fd)
        self.size = status.st_size
        head = os.pread(self._fd, len(self._head), 0)
        if status.st_size < self.position or (head != self._head and status.st_size):
            self._begin()
            return self.read()
        if self._earlier or self._replaced(status):
            rest = self.rest()
            self.close()
            return [rest] if rest else self.read()
        return []

    def _replaced(self, status: os.stat_result) -> bool:
        try:
            there = os.stat(self.path)
            return (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino)
        except FileNotFoundError:
            return False  # it may come back, and until then someone may still write

    def _open_next(self) -> bool:
        path = self._earlier.pop(0) if self._earlier else self.path
        try:
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            return False
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no plain file"
            raise LogError(f"{path}: is {kind}")
        self._fd = fd
        self._begin()
        return True

    def _begin(self) -> None:
        self.position = self.size = 0
        self._head = b""
        self._rest, self._skipping = bytearray(), False
        self._identified = False


def _found_beside(path: Path, files: list[FileId]) -> tuple[list[Path], bool]:
    """Files that were rotated away, by the names they have now; whether some are gone."""
    if not files:
        return [], False
    beside: dict[FileId, Path] = {}
    copies: dict[int, Path] = {}
    numbers = {(identity[0], identity[1]) for identity in files}
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            with contextlib.suppress(OSError):
                status = entry.stat()
                known = (status.st_dev, status.st_ino) in numbers
                if not entry.is_file() or not (known or entry.name.startswith(path.name)):
                    continue
                identity = file_id(Path(entry.path))
                if identity is not None:
                    beside[identity] = Path(entry.path)
                    copies[identity[2]] = Path(entry.path)
    found: list[Path] = []
    cut = False
    for identity in files:
        # A file may have been copied before it was cut, instead of renamed.
        name = beside.get(identity) or copies.get(identity[2])
        if name is None:
            # What follows on a gap is not what followed it before.
            found, cut = [], True
        elif name != path:
            found.append(name)
    return found, cut
