"""Closing what is still open when the process ends, before its providers shut down.

Exit handlers run last in, first out: a log that was opened before its tracer
provider was made would be closed after that was shut down, and its last spans
would come too late. Threads that are no daemons are joined before any exit
handler runs, and in the children of `multiprocessing`, where none does. So when
the main thread ends, one such thread starts, waits for every other, and closes.
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
        while others := [thread for thread in threading.enumerate() if self._waits_for(thread)]:
            for thread in others:
                thread.join()
        self._at_end()

    def _waits_for(self, thread: threading.Thread) -> bool:
        return not thread.daemon and thread not in (self, threading.main_thread())


class _Closing:
    """What is open in this process, and what is done about it at its end."""

    def __init__(self) -> None:
        self._open: dict[int, Closable] = {}
        self._registered = False

    def add(self, item: Closable) -> None:
        self._open[id(item)] = item
        if not self._registered:
            self._registered = True
            # Called when the main thread has ended. It has an underscore, but
            # `concurrent.futures` has to rely on it too; without it, exit
            # handlers are what is left.
            register = getattr(threading, "_register_atexit", atexit.register)
            try:
                register(self.main_ended)
            except RuntimeError:  # it has ended already
                atexit.register(self.close_all)

    def main_ended(self) -> None:
        """Close once nothing can be recorded any more."""
        try:
            _Watcher(self.close_all).start()
        except RuntimeError:
            # Python 3.12.0 and 3.12.1 start no thread any more. Registered last, this
            # runs before every other exit handler, and when all threads are joined.
            atexit.register(self.close_all)

    def remove(self, item: Closable) -> None:
        self._open.pop(id(item), None)

    def close_all(self) -> None:
        for item in list(self._open.values()):
            item.close()

    def renew(self) -> None:
        """In the child of a fork: what is open there is the parent's."""
        self._open.clear()


_closing: Final = _Closing()


def at_exit(item: Closable) -> None:
    """Close it when the process ends, if it is still open then."""
    _closing.add(item)


def forget(item: Closable) -> None:
    """It is closed."""
    _closing.remove(item)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_closing.renew)
