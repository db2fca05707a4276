"""A Prometheus: what it stores."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

__all__ = ["Exemplar", "Prometheus", "Sample"]


class Sample(NamedTuple):
    """A series at an instant; its labels without the name."""

    labels: dict[str, str]
    value: float


class Exemplar(NamedTuple):
    """An exemplar: of which series, its own labels, its value and time in seconds."""

    series: dict[str, str]
    labels: dict[str, str]
    value: float
    time: float


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus.

    Attributes:
        address: where its API is, and the base of its OTLP endpoint.
    """

    address: str

    @property
    def otlp(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set to for metrics, over HTTP."""
        return f"{self.address}/api/v1/otlp"

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """The value of an expression, at a time in seconds or now."""
        found = self._get("query", query=expression, time=time.time() if at is None else at)
        if found["resultType"] == "scalar":
            return [Sample({}, float(found["result"][1]))]
        return [
            Sample(_without_name(each["metric"]), float(each["value"][1]))
            for each in found["result"]
        ]

    def times(self, selector: str, since: float, until: float) -> list[float]:
        """When there are samples of a selector's series, in seconds, in order."""
        return [time for time, _ in self._samples(selector, since, until)]

    def values(self, selector: str, since: float, until: float) -> list[float]:
        """The samples of a selector's series, in order of their time."""
        return [value for _, value in self._samples(selector, since, until)]

    def exemplars(self, selector: str, since: float) -> list[Exemplar]:
        """The exemplars of the series since a time in seconds."""
        found = self._get("query_exemplars", query=selector, start=since, end=time.time() + 60)
        return [
            Exemplar(
                each["seriesLabels"],
                exemplar["labels"],
                float(exemplar["value"]),
                float(exemplar["timestamp"]),
            )
            for each in found
            for exemplar in each["exemplars"]
        ]

    def names(self) -> list[str]:
        """The names of all metrics."""
        return list(self._get("label/__name__/values"))

    def rules(self) -> list[dict[str, Any]]:
        """The groups of rules that it has loaded."""
        return list(self._get("rules")["groups"])

    def _samples(self, selector: str, since: float, until: float) -> list[tuple[float, float]]:
        found = self._get("query", query=f"{selector}[{int(until - since) + 1}s]", time=until)
        every = (pair for series in found["result"] for pair in series["values"])
        return sorted((float(time), float(value)) for time, value in every)

    def _get(self, path: str, **parameters: object) -> Any:
        url = f"{self.address}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(url, timeout=10) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]


def _without_name(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "__name__"}
