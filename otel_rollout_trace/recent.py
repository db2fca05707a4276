"""A mapping that remembers the newest of what it was told, in bounded memory."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Recent"]

V = TypeVar("V")
D = TypeVar("D")


class Recent(Generic[V]):
    """Keeps the newest entries: all of the last ``most``, none older than twice as many.

    Two generations, of which the older is dropped whole: taking the oldest entry
    out of one dictionary, over and over, gets slower with each.

    Args:
        most: how many entries are kept at the least, once there were so many.
    """

    __slots__ = ("_most", "_newer", "_older")

    def __init__(self, most: int) -> None:
        self._most = most
        self._newer: dict[str, V] = {}
        self._older: dict[str, V] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._newer or key in self._older

    def get(self, key: str, default: D) -> V | D:
        """What was told last under a key."""
        if key in self._newer:
            return self._newer[key]
        return self._older.get(key, default)

    def put(self, key: str, value: V) -> None:
        """Remember it."""
        if len(self._newer) >= self._most and key not in self._newer:
            self._older, self._newer = self._newer, {}
        self._newer[key] = value

    def items(self) -> list[tuple[str, V]]:
        """What is remembered, oldest first."""
        return list((self._older | self._newer).items())
