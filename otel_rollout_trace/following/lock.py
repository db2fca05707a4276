"""One follower for each log."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows has none; two followers would send everything twice there
    fcntl = None

__all__ = ["AlreadyFollowedError", "FollowerLock"]


class AlreadyFollowedError(Exception):
    """Another process follows the log."""


class FollowerLock:
    """Held by the process that follows a log; the system lets go of it when that ends.

    Args:
        directory: of the log's receipts.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "follower.lock"
        self._fd = -1

    def take(self) -> None:
        """Take it.

        Raises:
            AlreadyFollowedError: if another process has it.
            OSError: if the directory cannot be written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise AlreadyFollowedError(
                f"process {holder}" if holder else "another process"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
            self._remove_if_alone()

    def _remove_if_alone(self) -> None:
        """Leave nothing beside a log of which nothing was sent."""
        with contextlib.suppress(OSError):
            if [entry.name for entry in os.scandir(self._path.parent)] == [self._path.name]:
                self._path.unlink()
                self._path.parent.rmdir()
