"""A log's metrics with the log's own times, so that history is plotted where it happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .events import Event, EventRow, micros_of
from .lifecycle import Attempt, Group, Listener, Refit, Step
from .metrics.accumulators import RolloutMetrics
from .metrics.table import OBSERVED
from .spans import names
from .version import __version__

__all__ = ["MetricsHistory"]

# Points that are kept before they are sent, and so the size of a request.
_MOST_POINTS: Final = 2_000


class MetricsHistory(Listener):
    """Sends a run's gauges and counters as they were at each step, and at the run's end.

    Args:
        exporter: sends them.
        resource: the metrics' resource, by the run they are of.

    Attributes:
        sent, failed: data points that arrived, and that did not.
    """

    def __init__(self, exporter: MetricExporter, resource: Callable[[str], Resource]) -> None:
        self._exporter = exporter
        self._resource = resource
        self._runs: dict[str, _RunHistory] = {}
        self.sent = 0
        self.failed = 0

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        """See `Listener`."""
        history = self._of(run)
        time = micros_of(event["t"]) * 1000
        history.started = history.started or time
        history.last = time
        history.metrics.event_read(run, event, row)

    def attempt_started(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self._of(attempt.run).metrics.attempt_started(attempt)

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self._of(attempt.run).metrics.attempt_ended(attempt)

    def group_started(self, group: Group) -> None:
        """See `Listener`."""
        self._of(group.run).metrics.group_started(group)

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        self._of(group.run).metrics.group_ended(group)

    def refitted(self, refit: Refit) -> None:
        """See `Listener`."""
        self._of(refit.run).metrics.refitted(refit)

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        history = self._of(step.run)
        history.metrics.stepped(step)
        history.note(step.time * 1000)
        if history.points >= _MOST_POINTS:
            self._send(step.run, history)

    def close(self) -> None:
        """Send what is left, and each run's figures at its end."""
        for run, history in self._runs.items():
            history.note(history.last)
            self._send(run, history)

    def _of(self, run: str) -> _RunHistory:
        history = self._runs.get(run)
        if history is None:
            history = self._runs[run] = _RunHistory()
        return history

    def _send(self, run: str, history: _RunHistory) -> None:
        points, metrics = history.points, history.taken()
        scope = ScopeMetrics(InstrumentationScope(names.SCOPE, __version__), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource(run), [scope], "")])
        if self._exporter.export(data) is MetricExportResult.SUCCESS:
            self.sent += points
        else:
            self.failed += points


class _RunHistory:
    """One run's figures, and their points that were not sent yet."""

    def __init__(self) -> None:
        self.metrics = RolloutMetrics()
        self.started = 0
        self.last = 0
        self.points = 0
        self._noted: dict[str, list[NumberDataPoint]] = {}
        self._latest = 0

    def note(self, time: int) -> None:
        """Take every figure as of now; times that step back are left out."""
        if time <= self._latest:
            return
        self._latest = time
        for row in OBSERVED:
            value = row.read(self.metrics)
            if value is None:
                continue
            values: dict[Any, float] = dict(value) if isinstance(value, dict) else {(): value}
            points = self._noted.setdefault(row.name, [])
            for labels, number in values.items():
                points.append(NumberDataPoint(dict(labels), self.started, time, number))
                self.points += 1

    def taken(self) -> list[Metric]:
        """What was noted, as metrics; nothing is left."""
        metrics = []
        for row in OBSERVED:
            points = self._noted.get(row.name)
            if not points:
                continue
            data: Gauge | Sum = Gauge(points)
            if row.kind != "gauge":
                cumulative = AggregationTemporality.CUMULATIVE
                data = Sum(points, cumulative, is_monotonic=row.kind == "counter")
            metrics.append(Metric(row.name, row.description, row.unit, data))
        self._noted, self.points = {}, 0
        return metrics
