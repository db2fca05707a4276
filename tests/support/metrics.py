"""Metrics as plain figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData

__all__ = ["Figures"]


class Figures:
    """What one collection of a metric reader showed.

    Args:
        data: the collection.
    """

    def __init__(self, data: MetricsData | None) -> None:
        self.points: dict[str, list[Any]] = {}
        self.units: dict[str, str | None] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.points.setdefault(metric.name, []).extend(metric.data.data_points)
                    self.units[metric.name] = metric.unit

    @classmethod
    def of(cls, reader: InMemoryMetricReader) -> Figures:
        """Collect now."""
        return cls(reader.get_metrics_data())

    def value(self, name: str) -> Any:
        """The only value of a metric; None where it has none."""
        points = self.points.get(name, [])
        assert len(points) < 2, f"{name} has {len(points)} values"
        return points[0].value if points else None

    def by(self, name: str, label: str) -> dict[Any, Any]:
        """A metric's values by one of its attributes, added up over the others."""
        values: dict[Any, Any] = {}
        for point in self.points.get(name, []):
            key = _attributes(point).get(label)
            values[key] = values.get(key, 0) + point.value
        return values

    def labels(self, name: str) -> list[dict[str, Any]]:
        """The attributes of each of a metric's values."""
        return [dict(_attributes(point)) for point in self.points.get(name, [])]


def _attributes(point: Any) -> Mapping[str, Any]:
    return point.attributes or {}
