"""A live run that knows only the standard variables, read back from Jaeger."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support import reading
from support.jaeger import Jaeger, as_jaeger_shows
from support.logs import DATA
from support.otlp_receiver import PROTOCOLS, OtlpReceiver
from support.programs import Finished, run_program, running_program, wait_for
from support.wire import WireSpan, spans_of_sdk

import otel_rollout_trace

pytestmark = pytest.mark.backend

PROGRAMS = Path(__file__).parent / "programs"
RESOURCE = "deployment.environment.name=test,team=a b"


class Live(NamedTuple):
    """A live run that is over.

    Attributes:
        log: the log it wrote.
        source: the log whose events it emitted.
        service: the name it was to run under.
        said: what its process left.
        run: its id.
        metrics: where its metrics went.
    """

    log: Path
    source: Path
    service: str
    said: Finished
    run: str
    metrics: OtlpReceiver

    def replayed(self) -> list[WireSpan]:
        """The spans that a replay of its log makes."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        otel_rollout_trace.replay(self.log, tracer_provider=provider)
        provider.shutdown()
        return spans_of_sdk(exporter.get_finished_spans())


@pytest.fixture(
    scope="module",
    params=list(itertools.product(("example", "steady"), PROTOCOLS)),
    ids="-".join,
)
def live(
    request: pytest.FixtureRequest, jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A run whose spans went to Jaeger, and its metrics to a receiver of our own."""
    name, protocol = request.param
    source = DATA / f"{name}.jsonl"
    log = tmp_path_factory.mktemp(name) / "rollout_trace.jsonl"
    service = f"live {uuid4().hex}"
    with OtlpReceiver() as metrics:
        said = run_program(
            [PROGRAMS / "emit_log.py", log, source],
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp[protocol],
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": metrics.endpoint(protocol)
                + ("/v1/metrics" if protocol != "grpc" else ""),
                "OTEL_METRIC_EXPORT_INTERVAL": "100",
                "OTEL_SERVICE_NAME": service,
                "OTEL_RESOURCE_ATTRIBUTES": RESOURCE,
            },
        )
        assert said.status == 0, said.errors
        yield Live(log, source, service, said, json.loads(said.output)["run"], metrics)


def without_run_and_pid(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in ("run", "pid")}


def test_the_file_holds_what_was_emitted(live: Live) -> None:
    opened, *lines = reading.lines_of(live.log)
    assert opened["event"] == "trace_opened"
    assert [*map(without_run_and_pid, lines)] == [
        *map(without_run_and_pid, reading.lines_of(live.source))
    ]
    assert {line["run"] for line in [opened, *lines]} == {live.run}


def test_jaeger_has_the_very_spans_that_a_replay_of_the_file_makes(
    live: Live, jaeger: Jaeger
) -> None:
    replayed = live.replayed()
    stored = jaeger.traces(sorted({span.trace_id for span in replayed}))
    assert {span.span_id: as_jaeger_shows(span._replace(resource={})) for span in replayed} == {
        span.span_id: as_jaeger_shows(span._replace(resource={}))
        for trace in stored.values()
        for span in trace
    }


def test_jaeger_has_a_trace_for_each_group_of_the_file(live: Live, jaeger: Jaeger) -> None:
    said = reading.read(live.log)
    for group in said.groups.values():
        spans = jaeger.trace(group.trace_id)
        assert len(spans) == 1 + len(said.attempts_of(group))


def test_spans_and_metrics_carry_the_resource(live: Live, jaeger: Jaeger) -> None:
    pid = reading.lines_of(live.log)[0]["pid"]
    group = next(iter(reading.read(live.log).groups.values()))
    resources = [span.resource for span in jaeger.trace(group.trace_id)]
    resources += [point.resource for point in live.metrics.points("rl.step")]
    assert resources
    for resource in resources:
        assert resource["service.name"] == live.service
        assert resource["service.instance.id"] == live.run
        assert resource["process.pid"] == pid
        assert resource["host.name"]
        assert resource["deployment.environment.name"] == "test"
        assert resource["team"] == "a b"


def test_jaeger_lists_the_run_under_its_service_name(live: Live, jaeger: Jaeger) -> None:
    assert live.service in jaeger.services()


def test_the_batch_age_that_arrives_last_is_that_of_the_files_last_step(live: Live) -> None:
    ages = reading.read(live.log).batch_age
    package = otel_rollout_trace.batch_age_by_step(otel_rollout_trace.read_events(live.log))
    point = live.metrics.points("rl.batch_age")[-1]
    assert point.value == package[max(package)]
    assert point.value == pytest.approx(ages[max(ages)], abs=1e-12)
    assert (point.unit, point.attributes) == ("{update}", {})


def test_nothing_is_said_where_nothing_is_wrong(live: Live) -> None:
    assert live.said.errors == ""
    assert json.loads(live.said.output)["dropped"] == 0


def ids_of(traces: dict[str, list[WireSpan]]) -> dict[str, list[str]]:
    return {trace: sorted(span.span_id for span in spans) for trace, spans in traces.items()}


def test_replaying_the_file_afterwards_adds_nothing(live: Live, jaeger: Jaeger) -> None:
    """What a killed run did not send can be sent later, whatever of it arrived before."""
    traces = [group.trace_id for group in reading.read(live.log).groups.values()]
    traces += {span.trace_id for span in live.replayed() if span.name == "rl.run"}
    before = ids_of(jaeger.traces(traces))
    done = run_program(
        ["-m", "otel_rollout_trace", "replay", live.log],
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp["grpc"],
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_SERVICE_NAME": live.service,
            "OTEL_RESOURCE_ATTRIBUTES": RESOURCE,
        },
    )
    assert done.status == 0
    assert ids_of(jaeger.traces(traces)) == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_killed_run_did_not_send_is_there_after_a_replay(
    jaeger: Jaeger, protocol: str, tmp_path: Path
) -> None:
    log = tmp_path / "rollout_trace.jsonl"
    settings = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": jaeger.otlp[protocol],
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_SERVICE_NAME": f"killed {uuid4().hex}",
        # Most of what has ended is still on its way when the kill comes.
        "OTEL_BSP_SCHEDULE_DELAY": "60000",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64",
    }
    with running_program([PROGRAMS / "emit_rounds.py", log, "100", "0.05"], settings) as run:
        wait_for(lambda: settings["OTEL_SERVICE_NAME"] in jaeger.services(), "span", timeout=30)
        run.kill()
    said = reading.read(log)
    assert run_program(["-m", "otel_rollout_trace", "replay", log], settings).status == 0
    expected = {
        group.trace_id: {
            group.span_id,
            *(attempt.span_id for attempt in said.attempts_of(group)),
        }
        for group in said.groups.values()
    }
    stored = jaeger.traces(list(expected))
    assert {trace: {span.span_id for span in spans} for trace, spans in stored.items()} == expected
