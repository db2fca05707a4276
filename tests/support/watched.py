"""A demo that a stack has watched, and what the dashboard shows of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from . import reading
from .dashboard import Filling, queries
from .prometheus import Prometheus, Sample
from .ranges import lines
from .stack import Stack

__all__ = ["JOB", "WINDOW_S", "Watched", "expr_of"]

JOB: Final = "rollout-trace"

#: The rate interval, some exports long.
WINDOW_S: Final = 1


@dataclass(frozen=True)
class Watched:
    """A demo that the stack has watched.

    Attributes:
        stack: the stack.
        log: its log.
        began, ended: when, in seconds.
    """

    stack: Stack
    log: Path
    began: float
    ended: float

    @property
    def prometheus(self) -> Prometheus:
        """What stores the metrics."""
        return self.stack.prometheus

    @cached_property
    def events(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return reading.lines_of(self.log)

    @cached_property
    def runs(self) -> list[str]:
        """The run that was killed, and the one that went on."""
        return list(dict.fromkeys(event["run"] for event in self.events))

    @cached_property
    def last(self) -> list[dict[str, Any]]:
        """The lines of the run that went on."""
        return [event for event in self.events if event["run"] == self.runs[-1]]

    @cached_property
    def last_sample(self) -> float:
        """When the run that went on sent its last sample."""
        asked = f'max(timestamp(rl_trace_events_total{{instance="{self.runs[-1]}"}}))'
        (found,) = self.prometheus.query(asked)
        return found.value

    @property
    def later(self) -> float:
        """A time at which everything has been seen that looks back at whole minutes."""
        return self.ended + 60

    def filling(self, run: str = ".+", window: str = f"{WINDOW_S}s") -> Filling:
        """What Grafana puts in, for a range from before the beginning until later."""
        span = math.ceil(self.later - self.began) + 5
        return Filling(JOB, run, window, window, f"{span}s")

    def now(self, expr: str, run: str = ".+", at: float | None = None) -> list[Sample]:
        """What a panel that asks for a moment shows."""
        return self.prometheus.query(self.filling(run)(expr), self.later if at is None else at)

    def by(self, title: str, label: str, run: str) -> dict[str, float]:
        """What such a panel shows of a run, by a label."""
        found = self.now(expr_of(title), run)
        return {sample.labels[label]: sample.value for sample in found}

    def added_up(self, title: str, ref: str = "A") -> dict[str, float]:
        """What a panel of bars shows of the last run, added up over the whole range.

        Each step is as long as the window, so that everything is in one bar.
        """
        start = math.floor(self.began) - 5
        expr = self.filling(self.runs[-1])(expr_of(title, ref))
        total: dict[str, float] = {}
        for line in lines(self.prometheus, expr, start, self.ended + 5, WINDOW_S):
            (label,) = line.labels.values() or [""]
            total[label] = sum(line.values.values())
        return total


def expr_of(title: str, ref: str = "A") -> str:
    """The expression of a query, by its panel and letter."""
    (found,) = [each.expr for each in queries() if (each.panel, each.ref) == (title, ref)]
    return found
