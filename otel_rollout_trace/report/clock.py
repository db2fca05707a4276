"""The time axis: seconds of running time, with long times of standing still cut short.

A training that was preempted in the evening and restored in the morning would be two
strokes at the edges of an empty plot otherwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

__all__ = ["Clock", "Piece"]

# How wide a cut is, as a part of the running time; and all cuts together.
_CUT: Final = 0.05
_ALL_CUTS: Final = 0.5


class Piece(NamedTuple):
    """A stretch of time that is drawn to one scale.

    Attributes:
        t0, t1: when it begins and ends, in seconds since the epoch.
        x0, x1: where it does on the axis.
        cut: whether it is drawn shorter than it was.
    """

    t0: float
    t1: float
    x0: float
    x1: float
    cut: bool


class Clock:
    """Where times stand on the axis.

    Args:
        spans: when something ran, as ``(first, last)`` in seconds since the epoch.

    Attributes:
        pieces: of the axis, in order.
        end: where the last ends.
    """

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        merged: list[list[float]] = []
        for first, last in sorted(spans):
            if merged and first <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], last)
            else:
                merged.append([first, last])
        if not merged:
            merged = [[0.0, 1.0]]
        running = max(sum(last - first for first, last in merged), 1e-3)
        width = running * min(_CUT, _ALL_CUTS / len(merged))
        self.pieces: list[Piece] = []
        x = 0.0
        for first, last in merged:
            if self.pieces:
                ended = self.pieces[-1].t1
                after = x + min(first - ended, width)
                self.pieces.append(Piece(ended, first, x, after, cut=first - ended > width))
                x = after
            self.pieces.append(Piece(first, last, x, x + last - first, cut=False))
            x += last - first
        self._starts = [piece.t0 for piece in self.pieces]
        self.end = x or 1.0

    def at(self, micros: int) -> float:
        """The place of a time in microseconds."""
        return self.at_seconds(micros / 1e6)

    def at_seconds(self, t: float) -> float:
        """The place of a time in seconds since the epoch."""
        piece = self.pieces[max(0, bisect_right(self._starts, t) - 1)]
        if not piece.cut:
            return piece.x0 + t - piece.t0
        return piece.x0 + (t - piece.t0) / (piece.t1 - piece.t0) * (piece.x1 - piece.x0)

    @property
    def running(self) -> float:
        """Seconds on the axis that are not cut."""
        return self.end - sum(piece.x1 - piece.x0 for piece in self.pieces if piece.cut)

    @property
    def is_cut(self) -> bool:
        """Whether any time is drawn shorter than it was."""
        return any(piece.cut for piece in self.pieces)

    def to_list(self) -> list[list[Any]]:
        """The pieces for the page's script, which writes the ticks."""
        return [[p.x0, p.x1, p.t0, p.t1, p.cut] for p in self.pieces]
