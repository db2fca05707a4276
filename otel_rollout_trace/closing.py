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
from typing import Protocol

__all__ = ["at_exit", "forget"]


class Closable(Protocol):
    """Something to close."""

    def close(self) -> None:
        """Close it, in bounded time."""


_open: dict[int, Closable] = {}
_lock = threading.Lock()


class _Watcher(threading.Thread):
    """Waits for the end of the process's work."""

    def __init__(self) -> None:
        super().__init__(name="rollout-trace-exit", daemon=False)
        self._process = os.getpid()

    @property
    def is_watching(self) -> bool:
        """Whether it runs, in this process and not in the one that this was forked from."""
        return self._process == os.getpid() and self.is_alive()

    def run(self) -> None:
        threading.main_thread().join()
        for thread in threading.enumerate():
            if not thread.daemon and thread is not self:
                thread.join()
        _close_all()


_watcher: _Watcher | None = None


def at_exit(item: Closable) -> None:
    """Close it when the process ends, if it is still open then."""
    global _watcher
    if not _lock.acquire(timeout=1.0):
        return
    try:
        _open[id(item)] = item
        if _watcher is None or not _watcher.is_watching:
            _watcher = _Watcher()
            _watcher.start()
    except RuntimeError:  # the interpreter is shutting down: exit handlers are what is left
        atexit.register(_close_all)
    finally:
        _lock.release()


def forget(item: Closable) -> None:
    """It is closed."""
    _open.pop(id(item), None)


def _close_all() -> None:
    for item in list(_open.values()):
        item.close()


def _renew() -> None:
    # In the child of a fork: the parent's threads are not here, its lock may be held.
    global _lock, _watcher
    _lock, _watcher = threading.Lock(), None
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
