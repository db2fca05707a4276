"""Everything behind a training goes down while it runs, and nothing is lost."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import reading
from support.arrivals import missing_work, spans_in_jaeger, spans_of_log, wait_for_all_work
from support.programs import running_program, wait_for
from support.stack import Stack

pytestmark = pytest.mark.backend


class Outage(NamedTuple):
    """A demo in the middle of which everything was down.

    Attributes:
        log: its log.
        errors: what it complained of.
        down: from when no backend ran to when the Collector was killed, in seconds.
        missed: what was not in Jaeger when it came back.
    """

    log: Path
    errors: str
    down: tuple[float, float]
    missed: Counter[str]

    @property
    def run(self) -> str:
        """The id of its only run."""
        (run,) = {line["run"] for line in reading.lines_of(self.log)}
        return str(run)


@pytest.fixture(scope="module")
def outage(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    """A demo; meanwhile both backends are away, and the Collector is killed."""
    log = tmp_path_factory.mktemp("outage") / "rollout_trace.jsonl"
    steps = 22
    command = ["-m", "otel_rollout_trace", "demo", "--log", str(log), "--steps", str(steps)]
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": stack.collector.otlp["grpc"],
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
    }

    def trained() -> int:
        if not log.exists():
            return 0
        return log.read_text().count('"step_trained"')

    with running_program([*command, "--speed", "1.5"], settings) as demo:
        wait_for(lambda: trained() >= 3 and stack.jaeger.services(), "third step")
        wait_for(lambda: stack.prometheus.query("rl_step"), "metric of it")
        # One ends in good order, one does not.
        stack.jaeger_service.stop()
        stack.prometheus_service.kill()
        began = time.time()
        wait_for(lambda: trained() >= 9, "ninth step")
        # What the backends have not got is on the disk of the Collector only.
        killed = time.time()
        stack.collector.service.kill()
        wait_for(lambda: trained() >= 12, "twelfth step")
        stack.collector.service.start()
        wait_for(lambda: trained() >= 14, "fourteenth step")
        stack.jaeger_service.start()
        missed = missing_work(stack.jaeger, log)
        stack.prometheus_service.start()
        _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 0, errors
    assert trained() == steps
    yield Outage(log, errors, (began, killed), missed)


def test_much_was_missing_when_the_backends_came_back(outage: Outage) -> None:
    """Else the rest of these tests would prove nothing."""
    assert outage.missed["groups missing"] > 5
    assert outage.missed["attempts missing"] > 50


def test_the_training_lost_nothing_on_its_way_to_the_collector(outage: Outage) -> None:
    """Its exporters try again for longer than a Collector takes to start."""
    assert outage.errors == ""


def test_every_attempt_of_the_log_arrives_once(outage: Outage, stack: Stack) -> None:
    wait_for_all_work(stack.jaeger, outage.log)


def test_every_span_of_the_log_arrives_whole(outage: Outage, stack: Stack) -> None:
    said = spans_of_log(outage.log)
    wait_for(lambda: spans_in_jaeger(stack.jaeger, said) == said, "span of the log", timeout=45)


def test_metrics_of_the_time_without_prometheus_arrive(outage: Outage, stack: Stack) -> None:
    """Twice a second; what was sent then was on the disk of the Collector only."""
    began, killed = outage.down
    selector = f'rl_trace_events_total{{instance="{outage.run}"}}'

    def gaps() -> list[float]:
        times = stack.prometheus.times(selector, began, killed)
        edges = [began, *(time for time in times if began < time < killed), killed]
        return [
            later - earlier for earlier, later in itertools.pairwise(edges) if later - earlier > 2
        ]

    wait_for(lambda: not gaps(), "metric of the outage", timeout=45)


def test_the_last_figures_are_those_of_the_log(outage: Outage, stack: Stack) -> None:
    said = Counter(attempt.outcome for attempt in reading.read(outage.log).attempts.values())
    counted = f'sum by (rl_outcome) (rl_attempts_total{{instance="{outage.run}"}})'

    def found() -> dict[str, float]:
        return {
            sample.labels["rl_outcome"]: sample.value for sample in stack.prometheus.query(counted)
        }

    wait_for(lambda: found() == said, f"count of {dict(said)}", timeout=45)
