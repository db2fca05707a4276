"""What a page shows of a log of any length: as much as fits, and how much was left out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Binned", "Thinned"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Thinned(Generic[T]):
    """Every item while there are few, else every second, every fourth, and so on.

    Which are kept depends on their order alone, so the same log gives the same page.

    Args:
        most: how many are kept at most.

    Attributes:
        items: what was kept, in order.
        seen: how many there were.
        every: one of so many is kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.items: list[T] = []
        self.seen = 0
        self.every = 1

    def add(self, item: T) -> None:
        """Take the next one."""
        if self.seen % self.every == 0:
            if len(self.items) >= self._most:
                del self.items[1::2]
                self.every *= 2
            if self.seen % self.every == 0:
                self.items.append(item)
        self.seen += 1


class Binned(Generic[K]):
    """Sums over time, in intervals that double whenever there are too many of them.

    Only intervals in which something happened count: a night without events, between a
    stop and the run after it, makes none of them longer.

    Args:
        most: how many intervals are kept at most.
        width: of an interval, to begin with, in microseconds.

    Attributes:
        width: of an interval, in microseconds.
    """

    def __init__(self, most: int, width: int = 1_000) -> None:
        self._most = most
        self._bins: dict[int, dict[K, int]] = {}
        self.width = width

    def add(self, time: int, key: K, number: int = 1) -> None:
        """Add to a key's sum in the interval of a time, in microseconds and not negative."""
        sums = self._bins.setdefault(time // self.width, {})
        sums[key] = sums.get(key, 0) + number
        while len(self._bins) > self._most:
            self._double()

    def _double(self) -> None:
        self.width *= 2
        before, self._bins = self._bins, {}
        for place, sums in before.items():
            merged = self._bins.setdefault(place // 2, {})
            for key, number in sums.items():
                merged[key] = merged.get(key, 0) + number

    def intervals(self) -> list[tuple[int, dict[K, int]]]:
        """When each interval begins, in microseconds, and its sums; in ascending order."""
        return [(place * self.width, sums) for place, sums in sorted(self._bins.items())]
