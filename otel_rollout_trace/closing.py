"""Closing what is still open when the process ends, before its providers shut down.

Exit handlers run last in, first out: a log that was opened before its tracer
provider was made would be closed after that was shut down, and its last spans
would come too late. Threads that are no daemons are joined before any exit
handler runs, and in the children of `multiprocessing`, where none does. So one
such thread waits for the main thread to end, then for every other, and closes.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["at_exit", "forget"]


class Closable(Protocol):
    """Something to close."""

    def close(self) -> None:
        """Close it, in bounded time."""


class _Watcher(threading.Thread):
    """Waits for the end of the process's work."""

    def __init__(self, at_end: Callable[[], object]) -> None:
        super().__init__(name="rollout-trace-exit", daemon=False)
        self._at_end = at_end

    def run(self) -> None:
        threading.main_thread().join()
        for thread in threading.enumerate():
            if not thread.daemon and thread is not self:
                thread.join()
        self._at_end()


class _Closing:
    """What is open in this process, and the thread that waits for its end."""

    def __init__(self) -> None:
        self._open: dict[int, Closable] = {}
        self._lock = threading.Lock()
        self._watcher: _Watcher | None = None

    def add(self, item: Closable) -> None:
        if not self._lock.acquire(timeout=1.0):
            return
        try:
            self._open[id(item)] = item
            if self._watcher is None or not self._watcher.is_alive():
                self._watcher = _Watcher(self.close_all)
                self._watcher.start()
        except RuntimeError:  # the interpreter is shutting down: exit handlers are what is left
            atexit.register(self.close_all)
        finally:
            self._lock.release()

    def remove(self, item: Closable) -> None:
        self._open.pop(id(item), None)

    def close_all(self) -> None:
        for item in list(self._open.values()):
            item.close()

    def renew(self) -> None:
        """In the child of a fork: the parent's thread is not here, its lock may be held."""
        self._open, self._lock, self._watcher = {}, threading.Lock(), None


_closing: Final = _Closing()


def at_exit(item: Closable) -> None:
    """Close it when the process ends, if it is still open then."""
    _closing.add(item)


def forget(item: Closable) -> None:
    """It is closed."""
    _closing.remove(item)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_closing.renew)
