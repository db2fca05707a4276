"""What Grafana's panels get from a Prometheus: a value for each step of a time range."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

from .prometheus import Prometheus

__all__ = ["Line", "lines", "samples"]


class Line(NamedTuple):
    """A series over a range: its labels, and its values by time in seconds."""

    labels: dict[str, str]
    values: dict[float, float]


def lines(prometheus: Prometheus, expr: str, start: float, end: float, step: float) -> list[Line]:
    """The values of an expression from one time to another, every so many seconds."""
    return _lines(prometheus, "query_range", query=expr, start=start, end=end, step=step)


def samples(prometheus: Prometheus, selector: str, start: float, end: float) -> list[Line]:
    """The samples of each series between two times, as they came."""
    asked = f"{selector}[{int(end - start) + 1}s]"
    return _lines(prometheus, "query", query=asked, time=end)


def _lines(prometheus: Prometheus, path: str, **parameters: object) -> list[Line]:
    url = f"{prometheus.address}/api/v1/{path}?{urlencode(parameters)}"
    with urlopen(url, timeout=10) as response:
        found = json.load(response)
    assert found["status"] == "success", found
    return [
        Line(each["metric"], {float(time): float(value) for time, value in each["values"]})
        for each in found["data"]["result"]
    ]
