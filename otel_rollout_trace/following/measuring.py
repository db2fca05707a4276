"""The metrics of runs that are followed, each with the resource of its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider

from ..events import Event, EventRow
from ..lifecycle import Attempt, Group, Listener, Refit, Step
from ..metrics import MetricsView
from ..metrics.accumulators import RolloutMetrics

__all__ = ["RunMetrics"]


class RunMetrics(Listener):
    """Shows each run that goes on through a meter provider of its own.

    Args:
        make: makes a run's meter provider; None where nothing is to be shown.
        oldest_attempt: when the run's oldest open attempt began, in microseconds.
        is_live: whether a run goes on. What a run that is over was is not shown: it
            would look like now.
    """

    def __init__(
        self,
        make: Callable[[str], MeterProvider | None],
        *,
        oldest_attempt: Callable[[str], int | None],
        is_live: Callable[[str], bool],
    ) -> None:
        self._make = make
        self._oldest_attempt = oldest_attempt
        self._is_live = is_live
        self._runs: dict[str, tuple[Listener, MeterProvider | None]] = {}
        # What was open in runs that were lost: attempts and groups.
        self._left: dict[str, tuple[int, int]] = {}
        self._lag: float | None = None

    def lag(self, seconds: float) -> None:
        """How far the follower is behind the log."""
        for listener, provider in self._runs.values():
            if provider is not None and isinstance(listener, RolloutMetrics):
                listener.lag = seconds

    def lose(self, run: str) -> None:
        """A run will end that was not closed: what is open now will be so in its last figures.

        As in those of a process that is killed, so that an alert can tell it from one
        that came to its end.
        """
        listener, _ = self._runs.get(run, (None, None))
        if isinstance(listener, RolloutMetrics):
            self._left.setdefault(run, (listener.open_attempts, listener.open_groups))

    def end(self, run: str, *, timeout: float = 5.0) -> None:
        """A run is over: send its last figures."""
        listener, provider = self._runs.pop(run, (None, None))
        left = self._left.pop(run, None)
        if left is not None and isinstance(listener, RolloutMetrics):
            listener.open_attempts, listener.open_groups = left
        if provider is not None:
            provider.force_flush(int(timeout * 1000))
            provider.shutdown(int(timeout * 1000))

    def close(self) -> None:
        """Send the last figures of every run."""
        for run in list(self._runs):
            self.end(run)

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        """See `Listener`."""
        self._left.pop(run, None)  # it was only silent
        self._of(run).event_read(run, event, row)

    def attempt_started(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self._of(attempt.run).attempt_started(attempt)

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self._of(attempt.run).attempt_ended(attempt)

    def group_started(self, group: Group) -> None:
        """See `Listener`."""
        self._of(group.run).group_started(group)

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        self._of(group.run).group_ended(group)

    def refitted(self, refit: Refit) -> None:
        """See `Listener`."""
        self._of(refit.run).refitted(refit)

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        self._of(step.run).stepped(step)

    def _of(self, run: str) -> Listener:
        found = self._runs.get(run)
        if found is None:
            provider = self._make(run) if self._is_live(run) else None
            listener: Any = Listener()
            if provider is not None:
                view = MetricsView(provider, oldest_attempt=lambda: self._oldest_attempt(run))
                listener = view.accumulators
            found = self._runs[run] = (listener, provider)
        return found[0]
