"""An event loop with a clock of its own.

Its time moves from one timer to the next, and the loop sleeps in between, longer or
shorter as it is told. So what happens, and in which order, depends on the program
alone, not on the pace or on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any, Final

__all__ = ["PacedLoop"]

# A program that falls behind, say while the machine sleeps, catches up this many seconds.
_CATCH_UP: Final = 1.0


class PacedLoop(asyncio.SelectorEventLoop):
    """An event loop whose seconds are shorter than the wall clock's.

    Args:
        speed: how many of its seconds pass in one of the wall clock's.
    """

    def __init__(self, speed: float) -> None:
        self.selector = _PacedSelector(speed)
        super().__init__(self.selector)

    def time(self) -> float:
        """Seconds since the loop was made, on its own clock."""
        return self.selector.now


class _PacedSelector(selectors.SelectSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self.now = 0.0
        self._speed = speed
        self._start = time.monotonic()

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        until = self.now + timeout
        left = self._start + until / self._speed - time.monotonic()
        self._start += max(0.0, -left - _CATCH_UP)
        ready = super().select(max(0.0, left))
        if not ready:  # else a signal came, and the timer is still to wait for
            self.now = until
        return ready
