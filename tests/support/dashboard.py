"""The Grafana dashboard and the Prometheus rules, read as their programs would read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from opentelemetry.metrics import NoOpMeter, NoOpMeterProvider

from otel_rollout_trace.metrics import MetricsView
from otel_rollout_trace.metrics.table import HISTOGRAMS

__all__ = [
    "CONFIG",
    "DASHBOARD",
    "RULES",
    "RULE_TESTS",
    "Filling",
    "Query",
    "Rule",
    "dashboard",
    "drawn_across",
    "exported_names",
    "labels_of",
    "metrics_of",
    "panels",
    "queries",
    "rules",
    "walk",
]

CONFIG: Final = Path(__file__).parents[2] / "collector-config"
DASHBOARD: Final = CONFIG / "grafana" / "dashboards" / "rl-rollouts.json"
RULES: Final = CONFIG / "prometheus" / "rules" / "rollouts.yaml"
RULE_TESTS: Final = RULES.parent / "tests" / "rollouts_test.yaml"


class Query(NamedTuple):
    """A query of the dashboard.

    Attributes:
        panel: the title of what shows it.
        ref: which of the panel's queries it is.
        kind: the panel's type.
        expr: with Grafana's variables.
        instant: whether it asks for one moment, not for the whole range.
        exemplar: whether exemplars are asked for, too.
    """

    panel: str
    ref: str
    kind: str
    expr: str
    instant: bool
    exemplar: bool

    def __str__(self) -> str:
        return f"{self.panel}/{self.ref}"


class Rule(NamedTuple):
    """A Prometheus rule.

    Attributes:
        name: of the alert, or of what is recorded.
        alert: whether it is an alert.
        expr: its expression.
        patient: whether an alert waits before it fires.
        labels, annotations: an alert's.
    """

    name: str
    alert: bool
    expr: str
    patient: bool
    labels: dict[str, str]
    annotations: dict[str, str]


class Filling(NamedTuple):
    """What Grafana puts in for its variables.

    Attributes:
        job: the chosen training.
        run: the chosen runs, as a regular expression.
        window: the rate interval, as a duration.
        interval: how far apart the points of a graph are, as a duration.
        range: how long the time range is, as a duration.
    """

    job: str
    run: str = ".+"
    window: str = "60s"
    interval: str = "15s"
    range: str = "1800s"

    def __call__(self, text: str) -> str:
        """The text with every variable filled in."""
        for name, value in (
            ("$__rate_interval", self.window),
            ("$__interval", self.interval),
            ("$__range", self.range),
            ("$job", self.job),
            ("$run", self.run),
        ):
            text = text.replace(name, value)
        left = re.findall(r"\$(?!\d)\{?\w+", text)  # $1 is label_replace's
        assert not left, f"nothing to put in for {left} in {text}"
        return text


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels(*, rows: bool = False) -> list[dict[str, Any]]:
    """The dashboard's panels, with its rows or without."""
    return [panel for panel in dashboard()["panels"] if rows or panel["type"] != "row"]


def queries() -> list[Query]:
    """Every query of every panel."""
    return [
        Query(
            panel["title"],
            target["refId"],
            panel["type"],
            target["expr"],
            target["instant"],
            target["exemplar"],
        )
        for panel in panels()
        for target in panel["targets"]
    ]


def drawn_across() -> list[Query]:
    """The queries of what is drawn across all panels."""
    return [
        Query(each["name"], "annotation", "annotation", each["expr"], False, False)
        for each in dashboard()["annotations"]["list"]
        if not each.get("builtIn")
    ]


def rules() -> list[Rule]:
    """Every rule, in the order in which they are evaluated."""
    return [
        Rule(
            rule.get("alert") or rule["record"],
            "alert" in rule,
            rule["expr"],
            "for" in rule,
            rule.get("labels", {}),
            rule.get("annotations", {}),
        )
        for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]


# Expressions

_STRINGS: Final = re.compile(r'"[^"]*"')
_MATCHERS: Final = re.compile(r"\{[^{}]*\}")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^()]*)\)")
_WORDS: Final = re.compile(r"(?<![\w$.:])[A-Za-z_:][\w:]*(?!\s*\(|[\w:])")
_KEYWORDS: Final = frozenset({"and", "or", "unless", "offset", "by", "on", "bool"})


def metrics_of(expr: str) -> set[str]:
    """The metrics that an expression selects."""
    plain = re.sub(r"\[[^\]]*\]", "", _MATCHERS.sub("", _STRINGS.sub('""', expr)))
    return set(_WORDS.findall(_GROUPING.sub("", plain))) - _KEYWORDS


def labels_of(expr: str) -> set[str]:
    """The labels that an expression selects and groups by."""
    plain = _STRINGS.sub('""', expr)
    matched = {
        label
        for matchers in _MATCHERS.findall(plain)
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)
    }
    return matched | {
        label for names in _GROUPING.findall(plain) for label in re.findall(r"\w+", names)
    }


# What the package exports

_SUFFIXES: Final = {"s": "_seconds"}


def exported_names() -> dict[str, set[str]]:
    """What Prometheus calls each of the package's instruments; a histogram has three names."""
    listing = _Listing()
    MetricsView(listing)
    histograms = {histogram.name for histogram in HISTOGRAMS}
    names = {}
    for name, (kind, unit) in listing.made.items():
        series = name.replace(".", "_") + _SUFFIXES.get(unit, "")
        if name in histograms:
            names[name] = {f"{series}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
        elif kind == "counter":
            names[name] = {f"{series}_total"}
        else:
            names[name] = {f"{series}_ratio" if unit == "1" else series}
    return names


class _Listing(NoOpMeterProvider):
    """Lists the instruments that are made: name, kind, unit."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, tuple[str, str]] = {}

    def get_meter(self, name: str, *_: Any, **__: Any) -> _ListingMeter:
        return _ListingMeter(name, self.made)


class _ListingMeter(NoOpMeter):
    def __init__(self, name: str, made: dict[str, tuple[str, str]]) -> None:
        super().__init__(name)
        self._made = made

    def create_observable_gauge(self, name: str, *rest: Any, **options: Any) -> Any:
        return self._note("gauge", name, options)

    def create_observable_counter(self, name: str, *rest: Any, **options: Any) -> Any:
        return self._note("counter", name, options)

    def create_observable_up_down_counter(self, name: str, *rest: Any, **options: Any) -> Any:
        return self._note("up_down_counter", name, options)

    def create_histogram(self, name: str, *rest: Any, **options: Any) -> Any:
        return self._note("histogram", name, options)

    def _note(self, kind: str, name: str, options: dict[str, Any]) -> None:
        self._made[name] = (kind, options["unit"])


def walk(value: Any) -> Iterator[Any]:
    """Every value in a JSON value, itself included."""
    yield value
    for each in value.values() if isinstance(value, dict) else ():
        yield from walk(each)
    for each in value if isinstance(value, list) else ():
        yield from walk(each)
