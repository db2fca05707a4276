"""Which files a follower has read, so that it finds those rotated away again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from ..journal.tail import FileId

__all__ = ["FilesRead"]

# Older ones were read, delivered, and will not be wanted again.
_MOST_FILES: Final = 100


class FilesRead:
    """The files that stood under a log's name, oldest first, kept beside it.

    Args:
        directory: of the log's receipts.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "files"
        self._known: list[FileId] = []
        with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
            self._known = msgspec.json.decode(self._path.read_bytes(), type=list[FileId])

    def earlier(self) -> list[FileId]:
        """The files that were read before this follower began."""
        return list(self._known)

    def note(self, files: list[FileId]) -> None:
        """Keep that these were read.

        Raises:
            OSError: if that cannot be written.
        """
        if files == self._known:
            return
        self._known = files[-_MOST_FILES:]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        path = self._path.with_name("files.new")
        path.write_bytes(msgspec.json.encode(self._known))
        os.replace(path, self._path)
