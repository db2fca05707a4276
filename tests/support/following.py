"""What happens while a follower waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["Steps"]


class Steps:
    """Does something at each wait of a follower, and stops it after the last."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps: Iterator[Callable[[], object]] = iter(steps)

    def __call__(self, seconds: float) -> bool:
        if not seconds:
            return False
        step = next(self._steps, None)
        if step is None:
            return True
        step()
        return False
