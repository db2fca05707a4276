"""The dashboard is what Grafana takes, shows what the package exports, and says what to do."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import defaultdict
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml
from support.dashboard import (
    CONFIG,
    RULE_TESTS,
    RULES,
    dashboard,
    drawn_across,
    exported_names,
    labels_of,
    metrics_of,
    panels,
    queries,
    rules,
    walk,
)
from test_readme import rows_under

from otel_rollout_trace.spans import names

COLUMNS: Final = 24
PROVISIONED: Final = {"prometheus", "jaeger", "tempo"}

#: How each type of panel asks: for one moment or for the whole range.
INSTANT: Final = {
    "stat": True,
    "bargauge": True,
    "table": True,
    "timeseries": False,
    "heatmap": False,
}
#: Panels that draw exemplars.
WITH_EXEMPLARS: Final = {"timeseries", "heatmap"}

METRICS: Final = exported_names()
#: Attributes of metrics, as labels.
LABELS: Final = {
    attribute.replace(".", "_")
    for row in rows_under("metric", "instrument")
    for attribute in row[3].split(", ")
    if attribute
} | {"job", "instance", "le"}
#: Attributes of spans.
ATTRIBUTES: Final = {*names.FIELD_ATTRIBUTES.values(), names.RUN_ID, names.OUTCOME, "error.type"}


def links() -> list[tuple[str, dict[str, Any]]]:
    """Every link, with what it is on."""
    return [
        (owner, link)
        for owner, value in [
            ("dashboard", dashboard()["links"]),
            *((panel["title"], panel["fieldConfig"]) for panel in panels()),
        ]
        for link in walk(value)
        if isinstance(link, dict) and "url" in link
    ]


def colours(panel: dict[str, Any]) -> dict[str, str]:
    """The colours that a panel gives to what it shows, by name."""
    return {
        override["matcher"]["options"]: each["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "color"
    }


PANELS: Final = [pytest.param(panel, id=panel["title"]) for panel in panels()]
LINKS: Final = [pytest.param(link["url"], id=f"{on}-{link['title']}") for on, link in links()]
EXPRS: Final = [pytest.param(each.expr, id=str(each)) for each in (*queries(), *drawn_across())] + [
    pytest.param(rule.expr, id=rule.name) for rule in rules()
]


def test_it_is_a_dashboard_that_can_be_provisioned() -> None:
    found = dashboard()
    # With an id Grafana would look for a dashboard that it stored itself.
    assert (found["id"], found["uid"], found["title"]) == (None, "rl-rollouts", "RL rollouts")
    assert found["schemaVersion"] >= 36  # since then datasources are objects
    assert {"annotations", "links", "panels", "tags", "templating", "time"} <= found.keys()
    assert found["refresh"] in found["timepicker"]["refresh_intervals"]


def test_ids_and_titles_are_each_ones_own() -> None:
    everything = panels(rows=True)
    for name in ("id", "title"):
        values = [panel[name] for panel in everything]
        assert len(values) == len(set(values))


def test_panels_fill_the_grid_and_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels(rows=True):
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    height = max(y for _, y in taken) + 1
    assert set(taken) == {(x, y) for x in range(COLUMNS) for y in range(height)}


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows_and_what_to_do(panel: dict[str, Any]) -> None:
    assert len(panel["description"].split()) >= 10
    assert panel["description"].endswith((".", ")"))
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["fieldConfig"]["defaults"]["noValue"]
    if panel["type"] == "heatmap":
        assert panel["options"]["yAxis"]["unit"] == panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_as_its_type_can_show(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    refs = [target["refId"] for target in panel["targets"]]
    assert refs == sorted(set(refs))
    for target in panel["targets"]:
        assert target["expr"].strip() == target["expr"] != ""
        assert target["instant"] is not target["range"]
        assert target["instant"] is INSTANT[panel["type"]]
        buckets = any(name.endswith("_bucket") for name in metrics_of(target["expr"]))
        assert not target["exemplar"] or (buckets and panel["type"] in WITH_EXEMPLARS)
        assert (target["format"] == "heatmap") is (panel["type"] == "heatmap")
        assert (target["format"] == "table") is (panel["type"] == "table")


def test_histograms_of_what_has_a_trace_show_exemplars() -> None:
    shown = {name for query in queries() if query.exemplar for name in metrics_of(query.expr)}
    # A refit is no group's: it has no trace of its own.
    assert shown == {
        name
        for metric, series in METRICS.items()
        for name in series
        if name.endswith("_bucket") and metric != "rl.refit.duration"
    }


def test_every_datasource_is_provisioned() -> None:
    uids = {
        value["datasource"]["uid"]
        for value in walk([panels(), drawn_across(), dashboard()["templating"]])
        if isinstance(value, dict) and "datasource" in value
    }
    assert uids == {"prometheus"}
    files = sorted((CONFIG / "grafana").rglob("datasources/*.y*ml"))
    assert files
    sources = [yaml.safe_load(file.read_text())["datasources"] for file in files]
    assert {source["uid"] for each in sources for source in each} == PROVISIONED


# What it shows


@pytest.mark.parametrize("expr", EXPRS)
def test_what_is_asked_for_is_exported(expr: str) -> None:
    exported = set().union(*METRICS.values()) | {"ALERTS"}
    recorded = {rule.name for rule in rules() if not rule.alert}
    assert metrics_of(expr)
    assert metrics_of(expr) <= exported | recorded
    alerts = {"alertname", "alertstate", "severity"} if "ALERTS" in metrics_of(expr) else set()
    assert labels_of(expr) <= LABELS | alerts


def test_whatever_is_exported_is_shown() -> None:
    shown = set().union(*(metrics_of(query.expr) for query in queries()))
    assert [name for name, series in METRICS.items() if not series & shown] == []


def test_no_data_is_not_shown_as_good_or_bad_by_chance() -> None:
    """Without a mapping it would have the colour of the lowest threshold."""
    shown = {}
    for panel in panels():
        if panel["type"] == "stat":
            defaults = panel["fieldConfig"]["defaults"]
            (mapping,) = defaults["mappings"]
            assert mapping["options"]["match"] == "null+nan"
            assert mapping["options"]["result"]["text"] == defaults["noValue"]
            shown[panel["title"]] = mapping["options"]["result"]["color"]
    assert [title for title, colour in shown.items() if colour == "red"] == ["Live runs"]
    assert [title for title, colour in shown.items() if colour == "green"] == ["Oldest attempt"]


@pytest.mark.parametrize("panel", PANELS)
def test_legends_show_labels_that_their_query_has(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        made = set(re.findall(r'label_replace\(.*?, "(\w+)", "\$1"', target["expr"]))
        grouped = {
            label
            for grouping in re.findall(r"\bby \(([^)]*)\)", target["expr"])
            for label in grouping.split(", ")
        }
        named = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
        assert named <= made | grouped
        for link in panel["fieldConfig"]["defaults"].get("links", []):
            linked = set(re.findall(r"\$\{__field\.labels\.(\w+)", link["url"] + link["title"]))
            assert linked <= grouped


def test_the_same_thing_has_the_same_colour_everywhere() -> None:
    given: dict[str, set[str]] = defaultdict(set)
    for panel in panels():
        for name, colour in colours(panel).items():
            given[name].add(colour)
    assert {name: seen for name, seen in given.items() if len(seen) > 1} == {}
    assert given["sealed"] == given["trained"] == {"green"}
    assert given["discarded"] == {"orange"}
    assert all("red" in min(given[name]) for name in ("refused", "abandoned", "interrupted"))


def test_descriptions_point_to_panels_that_there_are() -> None:
    titles = {panel["title"] for panel in panels()}
    pointed = {
        title for panel in panels() for title in re.findall("“([A-Z][^”]*)”", panel["description"])
    }
    assert pointed
    assert pointed <= titles


# Variables


def test_variables_that_are_defined_are_used_and_the_other_way_round() -> None:
    defined = {each["name"] for each in dashboard()["templating"]["list"]}
    used = {
        name
        for value in walk(dashboard())
        if isinstance(value, str)
        for name in re.findall(r"\$\{?([a-z]\w*)", value)
    }
    assert used == defined == {"job", "run"}


def test_every_query_is_of_the_chosen_training_and_runs() -> None:
    for query in queries():
        for matchers in re.findall(r"\{([^}]*)\}", re.sub(r'"\([^"]*"', '""', query.expr)):
            assert matchers.startswith('job="$job", instance=~"$run"')


def test_runs_that_begin_later_are_among_all() -> None:
    """Grafana would else list those that there were when the page was opened."""
    (run,) = [each for each in dashboard()["templating"]["list"] if each["name"] == "run"]
    assert (run["multi"], run["includeAll"], run["allValue"]) == (True, True, ".+")
    assert run["current"]["value"] == ["$__all"]
    assert '{job="$job"}' in run["definition"]


# Links


@pytest.mark.parametrize("url", LINKS)
def test_a_link_opens_what_it_says(url: str) -> None:
    variables = {"${__from}": "1790000000000", "${__to}": "1790000900000"}
    for name, value in variables.items():
        assert name in url
        url = url.replace(name, value)
    url = re.sub(r"\$\{[^}]*\}", "word", url)
    assert "$" not in url
    parts = urlsplit(url)
    asked = parse_qs(parts.query, strict_parsing=True)
    if parts.netloc:
        assert (parts.scheme, parts.netloc, parts.path) == ("http", "127.0.0.1:16686", "/search")
        assert {"service", "tags", "lookback", "start", "end"} <= asked.keys()
        assert asked["start"] == ["1790000000000000"]  # microseconds
        assert asked.get("operation", [names.GROUP_SPAN])[0] in (
            names.GROUP_SPAN,
            names.ATTEMPT_SPAN,
        )
        tags = json.loads(asked["tags"][0])
        assert tags
        assert tags.keys() <= ATTRIBUTES | {"error"}
        return
    assert parts.path == "/explore"
    assert asked["schemaVersion"] == ["1"]
    (pane,) = json.loads(asked["panes"][0]).values()
    (query,) = pane["queries"]
    assert pane["datasource"] == "tempo"
    assert query["datasource"] == {"type": "tempo", "uid": "tempo"}
    assert pane["range"] == {"from": "1790000000000", "to": "1790000900000"}
    assert query["queryType"] == "traceql"
    conditions = re.fullmatch(r"\{ (.*) \}", query["query"])
    assert conditions is not None
    for condition in conditions[1].split(" && "):
        field, value = re.split("=~?", condition, maxsplit=1)
        assert json.loads(value)
        if field == "name":
            assert json.loads(value) in (names.GROUP_SPAN, names.ATTEMPT_SPAN)
        else:
            assert field.removeprefix("span.") in ATTRIBUTES


def test_lost_and_abandoned_attempts_are_a_click_away_in_both() -> None:
    urls = [unquote(link["url"]) for _, link in links()]
    for text in ('tags={"error":"true"}', 'tags={"rl.outcome":"abandoned"}'):
        assert any("127.0.0.1:16686" in url and text in url for url in urls)
    for text in ('span.rl.outcome=\\"abandoned\\"', "refused|abandoned|interrupted"):
        assert any(url.startswith("/explore") and text in url for url in urls)


# Rules


def test_prometheus_loads_the_rules_and_not_their_tests() -> None:
    config = CONFIG / "prometheus" / "prometheus.yml"
    patterns = yaml.safe_load(config.read_text())["rule_files"]

    def loaded(path: PurePosixPath) -> bool:
        parts = PurePosixPath(path).relative_to(config.parent).parts
        return any(
            len(parts) == len(PurePosixPath(pattern).parts)
            and all(map(fnmatch.fnmatch, parts, PurePosixPath(pattern).parts))
            for pattern in patterns
        )

    assert loaded(PurePosixPath(RULES))
    assert not loaded(PurePosixPath(RULE_TESTS))


ALERTS: Final = [pytest.param(rule, id=rule.name) for rule in rules() if rule.alert]


@pytest.mark.parametrize("rule", ALERTS)
def test_an_alert_says_what_it_means_and_where_to_look(rule: Any) -> None:
    assert rule.labels["severity"] in ("page", "ticket")
    assert rule.annotations.keys() == {"summary", "description", "panel"}
    assert "ook at" in rule.annotations["description"]
    assert rule.annotations["panel"] in {panel["title"] for panel in panels()}
    given = set(re.findall(r"\$labels\.(\w+)", " ".join(rule.annotations.values())))
    assert "job" in given
    assert given <= {"job", "instance"}
    assert "instance" not in given or "(job, instance)" in rule.expr


@pytest.mark.parametrize(
    ("alert", "panel"),
    [
        ("RolloutBatchAgeHigh", "Batch age"),
        ("RolloutAttemptStuck", "Oldest attempt"),
        ("RolloutUnsavedTokens", "Unsaved tokens"),
        ("RolloutAttemptsLost", "Lost attempts"),
    ],
)
def test_what_alerts_is_red_on_the_dashboard(alert: str, panel: str) -> None:
    (rule,) = [each for each in rules() if each.name == alert]
    limit = re.search(r"> ([\d.e]+)", rule.expr)
    assert limit is not None
    (shown,) = [each for each in panels() if each["title"] == panel]
    thresholds = shown["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert thresholds[-1] == {"color": "red", "value": float(limit[1])}
