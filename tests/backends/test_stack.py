"""The demo through the stack of the compose file: what its log says is what can be seen."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import reading
from support.arrivals import spans_in_jaeger, spans_of_log, wait_for_all_work
from support.logs import DATA
from support.programs import Finished, run_program, wait_for
from support.stack import Stack

import otel_rollout_trace

pytestmark = pytest.mark.backend

SERVICE = "rollout-trace"


class Demo(NamedTuple):
    """A demo that was killed, restored, and is over; its log was replayed then.

    Attributes:
        log: its log.
        said: what its process left.
        began: when, in seconds since the epoch.
        replayed: what the replay left.
    """

    log: Path
    said: Finished
    began: float
    replayed: Finished

    @property
    def runs(self) -> list[str]:
        """The ids of its runs: before the kill, and after."""
        return list(dict.fromkeys(line["run"] for line in reading.lines_of(self.log)))

    def lines(self, event: str, run: str) -> list[dict[str, Any]]:
        """The lines of one run with that event."""
        every = reading.lines_of(self.log)
        return [line for line in every if (line["event"], line["run"]) == (event, run)]


@pytest.fixture(scope="module", params=["grpc", "http/protobuf"])
def demo(
    request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Demo]:
    """A demo through the Collector."""
    log = tmp_path_factory.mktemp("demo") / "rollout_trace.jsonl"
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": stack.collector.otlp[request.param],
        "OTEL_EXPORTER_OTLP_PROTOCOL": request.param,
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
    }
    began = time.time()
    arguments = ["--steps", "6", "--speed", "4", "--checkpoint-every", "2", "--kill-at-step", "4"]
    said = run_program(["-m", "otel_rollout_trace", "demo", "--log", log, *arguments], settings)
    assert said.status == 0, said.errors
    replayed = run_program(["-m", "otel_rollout_trace", "replay", log], settings)
    assert replayed.status == 0, replayed.errors
    wait_for_all_work(stack.jaeger, log)
    yield Demo(log, said, began, replayed)


def test_the_demo_was_killed_and_restored(demo: Demo) -> None:
    assert len(demo.runs) == 2
    assert demo.lines("checkpoint_restored", demo.runs[1])


def test_every_span_of_the_log_is_in_jaeger_once_and_no_other(demo: Demo, stack: Stack) -> None:
    """Groups, attempts and runs, with their events, attributes and links."""
    said = spans_of_log(demo.log)
    assert len({span.span_id for span in said}) == len(said) > 100
    names = Counter(span.name for span in said)
    assert set(names) == {"rl.rollout.group", "rl.rollout.attempt", "rl.run"}
    wait_for(lambda: spans_in_jaeger(stack.jaeger, said) == said, "span of the log")


def test_steps_and_refits_are_on_the_spans_that_they_touched(demo: Demo, stack: Stack) -> None:
    """By the words of the log, without the package."""
    said = reading.read(demo.log)
    happened = Counter(
        (span.span_id, event.name)
        for group in said.groups.values()
        for span in stack.jaeger.trace(group.trace_id)
        for event in span.events
    )
    touched = [(group.span_id, group.events) for group in said.groups.values()]
    touched += [(attempt.span_id, attempt.events) for attempt in said.attempts.values()]
    expected = Counter((span_id, name) for span_id, events in touched for _, name in events)
    assert {name for _, name in expected} >= {"rl.refit", "rl.step"}
    # Attempts have events of the demo's own, which the reading knows nothing of.
    assert {key: happened[key] for key in expected} == expected


def test_resumed_attempts_link_to_those_they_continue(demo: Demo, stack: Stack) -> None:
    resumed = [attempt for attempt in reading.read(demo.log).attempts.values() if attempt.resumes]
    for attempt in resumed:
        (span,) = [
            span for span in stack.jaeger.trace(attempt.trace_id) if span.span_id == attempt.span_id
        ]
        assert span.links == attempt.resumes
    assert resumed


def test_jaeger_lists_the_run_under_its_service_name(demo: Demo, stack: Stack) -> None:
    assert SERVICE in stack.jaeger.services()


def test_prometheus_has_the_batch_age_of_the_last_step(demo: Demo, stack: Stack) -> None:
    ages = otel_rollout_trace.batch_age_by_step(otel_rollout_trace.read_events(demo.log))
    last = ages[max(ages)]
    selector = f'rl_batch_age{{job="{SERVICE}", instance="{demo.runs[-1]}"}}'

    def current() -> bool:
        return [sample.value for sample in stack.prometheus.query(selector)] == [last]

    wait_for(current, f"batch age of {last}")


def test_prometheus_counts_the_attempts_of_the_run_by_outcome(demo: Demo, stack: Stack) -> None:
    run = demo.runs[-1]
    said = Counter(
        attempt.outcome
        for attempt in reading.read(demo.log).attempts.values()
        if attempt.run == run
    )
    counted = f'sum by (rl_outcome) (rl_attempts_total{{instance="{run}"}})'

    def found() -> dict[str, float]:
        return {
            sample.labels["rl_outcome"]: sample.value for sample in stack.prometheus.query(counted)
        }

    assert said["sealed"] > 10
    wait_for(lambda: found() == said, f"count of {dict(said)}")


def test_metrics_carry_what_tells_a_run_from_others(demo: Demo, stack: Stack) -> None:
    for run in demo.runs:
        (sample,) = stack.prometheus.query(f'rl_step{{instance="{run}"}}')
        assert sample.labels["job"] == sample.labels["service_name"] == SERVICE
        assert sample.labels["service_instance_id"] == run
        assert sample.labels["deployment_environment_name"] == "test"
        assert sample.labels["host_name"]


def test_a_dot_in_a_histogram_leads_to_an_attempt_in_jaeger(demo: Demo, stack: Stack) -> None:
    selector = f'rl_attempt_duration_seconds_bucket{{instance="{demo.runs[-1]}"}}'
    exemplars = stack.prometheus.exemplars(selector, demo.began)
    assert exemplars
    for exemplar in exemplars:
        spans = {span.span_id: span for span in stack.jaeger.trace(exemplar.labels["trace_id"])}
        span = spans[exemplar.labels["span_id"]]
        assert span.name == "rl.rollout.attempt"
        seconds = (span.ended - span.started) / 1e9
        assert exemplar.value == pytest.approx(seconds, abs=1e-5)
        assert exemplar.series["rl_outcome"] == span.attributes["rl.outcome"]


def test_groups_have_exemplars_of_their_age(demo: Demo, stack: Stack) -> None:
    selector = f'rl_group_age_bucket{{instance="{demo.runs[-1]}"}}'
    for exemplar in (exemplars := stack.prometheus.exemplars(selector, demo.began)):
        (group,) = [
            span
            for span in stack.jaeger.trace(exemplar.labels["trace_id"])
            if span.span_id == exemplar.labels["span_id"]
        ]
        assert exemplar.value == pytest.approx(group.attributes["rl.batch_age"])
    assert exemplars


def test_metrics_of_a_log_of_yesterday_are_taken_beside_those_of_now(
    demo: Demo, stack: Stack, tmp_path: Path
) -> None:
    """As after an outage of so long; later than that, Prometheus would refuse them."""
    log = reading.copy_with_new_runs(DATA / "steady.jsonl", tmp_path)
    lines = reading.lines_of(log)
    shift = time.time() - 23 * 3600 - lines[-1]["t"]
    log.write_text("".join(json.dumps({**line, "t": line["t"] + shift}) + "\n" for line in lines))
    endpoint = ["--endpoint", stack.collector.otlp["http/protobuf"]]
    said = run_program(["-m", "otel_rollout_trace", "replay", "--metrics", *endpoint, log])
    assert (said.status, said.errors) == (0, "")
    steps = [line["step"] for line in lines if line["event"] == "step_trained"]
    selector = f'rl_step{{instance="{lines[-1]["run"]}"}}'
    (begun, ended) = (lines[0]["t"] + shift, lines[-1]["t"] + shift)
    wait_for(
        lambda: set(stack.prometheus.values(selector, begun, ended)) >= set(steps),
        "step of yesterday",
    )


def test_the_rules_are_loaded_and_every_one_evaluates(demo: Demo, stack: Stack) -> None:
    rules = [rule for group in stack.prometheus.rules() for rule in group["rules"]]
    assert rules
    assert [rule for rule in rules if rule.get("lastError")] == []


def test_the_collector_says_how_full_its_queues_are(demo: Demo, stack: Stack) -> None:
    def queues() -> set[str]:
        samples = stack.prometheus.query("otelcol_exporter_queue_size")
        return {sample.labels["exporter"] for sample in samples}

    wait_for(lambda: queues() == {"otlp_http/jaeger", "otlp_http/prometheus"}, "queue", timeout=30)


def test_nothing_on_the_way_complained(demo: Demo, stack: Stack) -> None:
    assert demo.said.errors == ""
    assert demo.replayed.errors == ""
    complaints = [
        line
        for line in stack.collector.service.said.splitlines()
        if "\terror\t" in line or "\twarn\t" in line
    ]
    assert complaints == []
