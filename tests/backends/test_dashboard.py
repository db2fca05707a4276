"""The dashboard and the rules on a run of the demo: every query answers, and as the log says.

The demo's training is killed in the middle, so there are two runs: one that fell
silent, and one that went on from its checkpoint and ended as it should. The figures
of the second are compared with the log; of the first a part was never sent.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter
from typing import Any, Final

import pytest
from support import reading
from support.dashboard import (
    Query,
    Rule,
    dashboard,
    drawn_across,
    exported_names,
    metrics_of,
    queries,
    rules,
)
from support.programs import run_program, wait_for
from support.ranges import lines, samples
from support.stack import Stack
from support.watched import JOB, WINDOW_S, Watched, expr_of

from otel_rollout_trace import batch_age_by_step, read_events

pytestmark = pytest.mark.backend

STEPS: Final = 10
KILLED_AT: Final = 5
EXPORT_S: Final = 0.1

STEP_S: Final = 0.25

#: What a follower adds, of which there is none here.
FOLLOWED: Final = {"rl_trace_lag_seconds"}


@pytest.fixture(scope="module")
def watched(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A demo that was killed and went on, watched by the stack of the compose file."""
    log = tmp_path_factory.mktemp("watched") / "rollout_trace.jsonl"
    began = time.time()
    done = run_program(
        [
            *("-m", "otel_rollout_trace", "demo", "--log", log, "--seed", "1"),
            *("--steps", str(STEPS), "--kill-at-step", str(KILLED_AT), "--speed", "2"),
            *("--checkpoint-every", "2"),
        ],
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_ENDPOINT": stack.collector.otlp["grpc"],
            "OTEL_METRIC_EXPORT_INTERVAL": str(int(EXPORT_S * 1000)),
        },
    )
    assert done.status == 0, done.errors
    found = Watched(stack, log, began, time.time())
    read = f'rl_trace_events_total{{instance="{found.runs[-1]}"}}'

    def everything() -> bool:
        values = [sample.value for sample in stack.prometheus.query(read)]
        return values == [len(found.last)]

    wait_for(everything, "sample of the last event", timeout=30)
    return found


# Every query answers


def is_finite(value: float) -> bool:
    return not math.isnan(value) and not math.isinf(value)


@pytest.mark.parametrize("query", [*queries(), *drawn_across()], ids=str)
def test_every_query_of_the_dashboard_answers(watched: Watched, query: Query) -> None:
    if query.instant:
        at = watched.last_sample if "$__rate_interval" in query.expr else watched.later
        values = [sample.value for sample in watched.now(query.expr, at=at)]
    else:
        expr = watched.filling()(query.expr)
        found = lines(watched.prometheus, expr, watched.began, watched.ended, STEP_S)
        values = [value for line in found for value in line.values.values()]
    # Nothing fires in a demo.
    silent = metrics_of(query.expr) <= FOLLOWED | {"ALERTS"}
    assert any(map(is_finite, values)) is not silent


def test_the_choices_are_the_training_and_its_runs(watched: Watched) -> None:
    found = {}
    for variable in dashboard()["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
        assert asked is not None
        values = watched.now(f"group by ({asked[2]}) ({asked[1]})")
        found[variable["name"]] = {value.labels[asked[2]] for value in values}
    assert found == {"job": {JOB}, "run": set(watched.runs)}


def test_prometheus_names_the_metrics_as_the_dashboard_does(watched: Watched) -> None:
    names = set().union(*exported_names().values()) - FOLLOWED
    assert names <= set(watched.prometheus.names())


def test_both_runs_are_marked_where_they_begin(watched: Watched) -> None:
    (began,) = [each for each in drawn_across() if each.panel == "Run began"]
    expr = watched.filling()(began.expr)
    found = lines(watched.prometheus, expr, watched.began, watched.ended, STEP_S)
    assert {line.labels["instance"] for line in found} == set(watched.runs)
    for line in found:
        opened = min(
            event["t"] for event in watched.events if event["run"] == line.labels["instance"]
        )
        assert min(line.values) - opened < 5


# The figures are the log's


def test_the_batch_age_of_every_step_is_that_of_the_log(watched: Watched) -> None:
    expected = batch_age_by_step(read_events(watched.log))
    run = watched.runs[-1]
    seen = {}
    for moment, step in steps_of(watched, run):
        shown = {
            ref: watched.now(expr_of("Batch age and where it comes from", ref), at=moment)
            for ref in "ABCD"
        }
        values = {ref: sample.value for ref, (sample,) in shown.items()}
        assert values["C"] == expected[step]
        assert values["A"] + values["B"] == pytest.approx(values["C"], abs=1e-12)
        assert values["D"] == max(ages_of(watched, step))
        seen[step] = values["C"]
    # A step that is over before the next export is seen by nobody.
    assert len(seen) >= STEPS - KILLED_AT
    assert STEPS in seen


def steps_of(watched: Watched, run: str) -> list[tuple[float, int]]:
    """When each step was seen to be the last one, for those that two exports in a row saw."""
    series = f'rl_step{{instance="{run}"}}'
    (line,) = samples(watched.prometheus, series, watched.began, watched.later)
    # Gauges are read one after the other: a step's first sample may have the age of the one
    # before it.
    settled = {
        int(step): moment
        for (_, before), (moment, step) in itertools.pairwise(sorted(line.values.items()))
        if step == before
    }
    return [(moment, step) for step, moment in settled.items()]


def ages_of(watched: Watched, step: int) -> Counter[int]:
    """How many tokens of each age the last run trained in a step."""
    counts: dict[str, dict[int, int]] = {}
    ages: Counter[int] = Counter()
    for event in watched.events:
        if event["event"] == "group_published":
            by_version = {int(v): n for v, n in event["tokens_by_version"].items()}
            counts[event["group_id"]] = by_version
        elif event["event"] == "step_trained" and event["run"] == watched.runs[-1]:
            for group in event["group_ids"] if event["step"] == step else ():
                for version, tokens in counts[group].items():
                    ages[event["trained_version"] - version] += tokens
    return ages


def test_tokens_trained_by_age_are_the_logs(watched: Watched) -> None:
    steps = [event["step"] for event in watched.last if event["event"] == "step_trained"]
    expected = sum((ages_of(watched, step) for step in steps), Counter[int]())
    shown = watched.added_up("Age of trained tokens")
    assert shown == {str(age): tokens for age, tokens in expected.items()}


def outcomes(watched: Watched) -> list[reading.AttemptSaid]:
    said = reading.read(watched.log)
    return [each for each in said.attempts.values() if each.run == watched.runs[-1]]


def test_attempts_by_outcome_are_the_logs(watched: Watched) -> None:
    expected = Counter(attempt.outcome for attempt in outcomes(watched))
    assert len(expected) >= 3
    assert watched.by("Attempts in this range", "rl_outcome", watched.runs[-1]) == expected
    # A rate is of a minute.
    shown = watched.added_up("Attempts by outcome")
    assert {name: round(value / 60 * WINDOW_S, 6) for name, value in shown.items()} == expected


def test_reasons_for_lost_attempts_are_the_logs(watched: Watched) -> None:
    expected = Counter(
        attempt.reason or attempt.outcome for attempt in outcomes(watched) if attempt.failed
    )
    assert expected
    assert watched.by("Why work was lost", "error_type", watched.runs[-1]) == expected


def test_groups_and_why_they_were_discarded_are_the_logs(watched: Watched) -> None:
    said = reading.read(watched.log)
    groups = [group for group in said.groups.values() if group.run == watched.runs[-1]]
    reasons = Counter(group.reason for group in groups if group.outcome == "discarded")
    assert reasons
    assert watched.by("Why groups were discarded", "rl_reason", watched.runs[-1]) == reasons
    shown = watched.added_up("Groups by outcome")
    assert {name: round(value / 60 * WINDOW_S, 6) for name, value in shown.items()} == Counter(
        group.outcome for group in groups
    )


def test_token_fates_are_the_logs(watched: Watched) -> None:
    expected = fates(watched)
    assert expected.keys() >= {"trained", "discarded", "abandoned", "refused"}
    assert watched.by("Tokens in this range", "rl_token_fate", watched.runs[-1]) == expected
    shown = watched.added_up("Token fates")
    assert {name: round(value * WINDOW_S, 6) for name, value in shown.items()} == expected


def fates(watched: Watched) -> Counter[str]:
    """What became of the last run's tokens, counted from its lines."""
    fate: Counter[str] = Counter()
    sealed: Counter[str] = Counter()
    discarded = set()
    counts = {
        event["group_id"]: sum(event["tokens_by_version"].values())
        for event in watched.events
        if event["event"] == "group_published"
    }
    for event in watched.last:
        name, group = event["event"], str(event.get("group_id"))
        if name == "attempt_sealed" and group in discarded:
            fate["discarded"] += event["tokens"]
        elif name == "attempt_sealed":
            sealed[group] += event["tokens"]
        elif name in ("attempt_refused", "attempt_abandoned"):
            fate[name.removeprefix("attempt_")] += event["tokens"]
        elif name == "group_discarded":
            discarded.add(group)
            fate["discarded"] += sealed[group]
        elif name == "step_trained":
            fate["trained"] += sum(counts[trained] for trained in event["group_ids"])
    return +fate


def test_steps_refits_and_checkpoints_are_the_logs(watched: Watched) -> None:
    said = Counter(event["event"] for event in watched.last)
    steps = watched.added_up("Steps and refits", "A")[""] / 60 * WINDOW_S
    # There is no counter of steps: those before the first sample of their number count as one.
    series = f'rl_step{{instance="{watched.runs[-1]}"}}'
    (line,) = samples(watched.prometheus, series, watched.began, watched.later)
    first = line.values[min(line.values)]
    assert round(steps, 6) == STEPS - first + 1 >= said["step_trained"] - 1
    refits = watched.added_up("Steps and refits", "B")[""] / 60 * WINDOW_S
    assert round(refits, 6) == said["weights_synced"]
    assert watched.added_up("Checkpoints") == {
        "published": said["checkpoint_published"],
        "restored": said["checkpoint_restored"],
    }
    read = watched.added_up("Tracer", "A")[""] * WINDOW_S
    assert round(read, 6) == len(watched.last)


def test_the_table_has_both_runs_as_they_were_left(watched: Watched) -> None:
    table = {
        ref: {
            sample.labels["instance"]: sample.value
            for sample in watched.now(expr_of("Runs in this range", ref))
        }
        for ref in "ABCDEF"
    }
    assert all(values.keys() == set(watched.runs) for values in table.values())
    last = watched.runs[-1]
    ages = batch_age_by_step(read_events(watched.log))
    assert (table["B"][last], table["D"][last]) == (STEPS, ages[STEPS])
    assert table["F"][last] == len(watched.last)


def test_one_run_lives_at_a_time(watched: Watched) -> None:
    killed, last = watched.runs
    running = max(event["t"] for event in watched.events if event["run"] == killed) - EXPORT_S
    for at, lives in ((running, killed), (watched.last_sample, last)):
        (count,) = watched.now(expr_of("Live runs"), at=at)
        assert count.value == 1
        states = watched.now(expr_of("Runs in this range", "A"), at=at)
        assert [each.labels["instance"] for each in states if each.value] == [lives]
    assert watched.now(expr_of("Live runs")) == []


def test_the_last_step_is_as_long_ago_as_it_is(watched: Watched) -> None:
    """To within the quarter of a minute at which it looks."""
    trained = max(event["t"] for event in watched.last if event["event"] == "step_trained")
    (since,) = watched.now(expr_of("Since the last step"))
    assert 0 <= watched.later - trained - since.value <= 16
    (since,) = watched.now(expr_of("Since the last step").replace("rl_step", "rl_step_none"))
    assert since.value == pytest.approx(watched.later - watched.events[0]["t"], abs=20)


def test_what_was_killed_is_not_drawn_over_what_goes_on(watched: Watched) -> None:
    killed, _ = watched.runs
    silent_since = max(event["t"] for event in watched.events if event["run"] == killed)
    age = expr_of("Batch age and where it comes from", "C")
    assert watched.now(age, killed, at=silent_since)
    assert watched.now(age, killed, at=silent_since + WINDOW_S + EXPORT_S) == []
    # An instant selector would go on showing it.
    stale = watched.prometheus.query(f'rl_batch_age{{instance="{killed}"}}', watched.ended)
    assert len(stale) == 1


# Exemplars


@pytest.mark.parametrize("query", [each for each in queries() if each.exemplar], ids=str)
def test_exemplars_open_the_rollouts_of_the_log(watched: Watched, query: Query) -> None:
    said = reading.read(watched.log)
    spans = {(group.trace_id, group.span_id) for group in said.groups.values()}
    spans |= {(attempt.trace_id, attempt.span_id) for attempt in said.attempts.values()}
    expr = watched.filling(watched.runs[-1])(query.expr)
    found = watched.prometheus.exemplars(expr, watched.began)
    links = {(each.labels["trace_id"], each.labels["span_id"]) for each in found}
    assert links
    assert links <= spans
    trace_id, span_id = min(links)
    wait_for(
        lambda: span_id in {span.span_id for span in watched.stack.jaeger.trace(trace_id)},
        f"span {span_id} in Jaeger",
    )


# Rules


def test_rules_are_loaded_and_evaluate(watched: Watched) -> None:
    expected = {rule.name for rule in rules()}

    def evaluated() -> dict[str, str]:
        health = {
            rule["name"]: rule["health"]
            for group in watched.prometheus.rules()
            for rule in group["rules"]
        }
        return {} if "unknown" in health.values() else health

    assert wait_for(evaluated, "evaluation", timeout=40) == dict.fromkeys(expected, "ok")


@pytest.mark.parametrize(
    "rule", [rule for rule in rules() if not rule.alert], ids=lambda rule: rule.name
)
def test_what_is_recorded_is_there(watched: Watched, rule: Rule) -> None:
    def found() -> list[Any]:
        return watched.prometheus.query(rule.name, time.time())

    values = wait_for(found, rule.name, timeout=40)
    assert {value.labels["job"] for value in values} == {JOB}
    assert all(is_finite(value.value) for value in values)


def without_limits(expr: str) -> str:
    """An alert's expression that is true of any run, if the series in it exist."""
    for limit, none in (
        (r">=? [\d.e]+", ">= 0"),
        (r"< 1\b", "<= 1"),
        (r"\b30m\b", "1s"),
        (r'rl_token_age="<0"', 'rl_token_age="0"'),
        (r"\s+unless on \(job\) job:rl_runs:live", ""),
    ):
        expr = re.sub(limit, none, expr)
    return expr


@pytest.mark.parametrize(
    "rule",
    [rule for rule in rules() if rule.alert and not metrics_of(rule.expr) <= FOLLOWED],
    ids=lambda rule: rule.name,
)
def test_an_alert_looks_at_what_there_is_and_is_silent(watched: Watched, rule: Rule) -> None:
    wait_for(lambda: watched.prometheus.query("job:rl_runs:live"), "recorded series", timeout=40)
    at = max(watched.later, time.time())
    found = watched.prometheus.query(without_limits(rule.expr), at)
    assert found
    assert {sample.labels["job"] for sample in found} == {JOB}
    # So short a run may end within its patience, and be past a limit when it does.
    assert watched.prometheus.query(rule.expr, at) == [] or rule.patient
    firing = f'ALERTS{{alertname="{rule.name}", alertstate="firing"}}'
    assert watched.prometheus.query(firing) == []
