"""Tracks on which nothing overlaps, as few of them as will do."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Lane", "Lanes"]

T = TypeVar("T")


class Lane(Generic[T]):
    """A track that one thing at a time is on.

    Attributes:
        number: its place among its lanes, from 0.
        what: what it is for the one who asked.
        free_from: when what was on it last ended, in microseconds.
    """

    __slots__ = ("free_from", "number", "what")

    def __init__(self, number: int, what: T) -> None:
        self.number = number
        self.what = what
        self.free_from = 0

    def __lt__(self, other: Lane[T]) -> bool:
        return self.number < other.number


class Lanes(Generic[T]):
    """Lanes that are taken and given back.

    There are as many as were taken at once, however many things were on them;
    more only where times step back, since a viewer that sorts by time would
    nest what then overlaps.

    Args:
        make: makes what the lane of a number is.
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._free: list[Lane[T]] = []
        self._made = 0

    def take(self, time: int) -> Lane[T]:
        """The first lane on which nothing is from then on, in microseconds."""
        too_late = []
        found = None
        while self._free and found is None:
            lane = heapq.heappop(self._free)
            if lane.free_from <= time:
                found = lane
            else:
                too_late.append(lane)
        for lane in too_late:
            heapq.heappush(self._free, lane)
        if found is None:
            found = Lane(self._made, self._make(self._made))
            self._made += 1
        return found

    def give_back(self, lane: Lane[T], ended: int) -> None:
        """What was on it has ended, in microseconds."""
        lane.free_from = max(lane.free_from, ended)
        heapq.heappush(self._free, lane)
