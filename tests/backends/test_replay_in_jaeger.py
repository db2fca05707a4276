"""A replayed log, read back from Jaeger and compared with what its lines say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from support import reading
from support.jaeger import Jaeger
from support.logs import DATA
from support.otlp_receiver import PROTOCOLS
from support.programs import run_program
from support.reading import AttemptSaid, GroupSaid, Reading
from support.wire import ERROR, WireSpan

import otel_rollout_trace

pytestmark = pytest.mark.backend

LOGS = ("steady", "killed_and_restored", "other_words")


@dataclass
class Stored:
    """A log, and what Jaeger has of it.

    Attributes:
        said: what its lines say.
        traces: the spans of every group's trace, by trace id.
        runs: the spans of every run's segments, by run.
    """

    said: Reading
    traces: dict[str, list[WireSpan]]
    runs: dict[str, list[WireSpan]]

    def groups(self) -> Iterator[tuple[GroupSaid, WireSpan]]:
        """Each group, and its span."""
        for group in self.said.groups.values():
            yield group, self.span(group)

    def attempts(self) -> Iterator[tuple[AttemptSaid, WireSpan]]:
        """Each attempt, and its span."""
        for attempt in self.said.attempts.values():
            yield attempt, self.span(attempt)

    def span(self, said: GroupSaid | AttemptSaid) -> WireSpan:
        """The one span of a group or an attempt."""
        (span,) = [each for each in self.traces[said.trace_id] if each.span_id == said.span_id]
        return span


def replay_by_api(log: Path, endpoint: str, protocol: str) -> None:
    exporter: Any = (
        GrpcExporter(endpoint=endpoint, insecure=True)
        if protocol == "grpc"
        else HttpExporter(endpoint=f"{endpoint}/v1/traces")
    )
    provider = TracerProvider(
        resource=Resource({"service.name": f"test {log.stem}"}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        otel_rollout_trace.replay(log, tracer_provider=provider)
    finally:
        provider.shutdown()


def replay_by_command(log: Path, endpoint: str, protocol: str) -> None:
    command: list[str | Path] = ["-m", "otel_rollout_trace", "replay", log]
    done = run_program([*command, "--endpoint", endpoint, "--protocol", protocol])
    assert (done.status, done.errors) == (0, "")


WAYS = {"api": replay_by_api, "command": replay_by_command}


@pytest.fixture(
    scope="module",
    params=list(itertools.product(LOGS, WAYS, PROTOCOLS)),
    ids="-".join,
)
def stored(
    request: pytest.FixtureRequest, jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Stored:
    """A log replayed into Jaeger, and what Jaeger has of it then."""
    name, way, protocol = request.param
    log = reading.copy_with_new_runs(DATA / f"{name}.jsonl", tmp_path_factory.mktemp(name))
    WAYS[way](log, jaeger.otlp[protocol], protocol)
    said = reading.read(log)
    return Stored(
        said,
        jaeger.traces([group.trace_id for group in said.groups.values()]),
        {run: list(segments(jaeger, run)) for run in said.run_events},
    )


def segments(jaeger: Jaeger, run: str) -> Iterator[WireSpan]:
    for number in itertools.count():
        trace = jaeger.trace(reading.hashed(f"{run}/segment/{number}", 16))
        if not trace:
            return
        (span,) = trace
        assert span.span_id == reading.hashed(f"{run}/segment/{number}/run", 8)
        yield span


def test_every_group_is_a_trace_of_its_attempts_and_nothing_else(stored: Stored) -> None:
    assert {
        trace_id: sorted((span.name, span.span_id) for span in spans)
        for trace_id, spans in stored.traces.items()
    } == {
        group.trace_id: sorted(
            [
                ("rl.rollout.group", group.span_id),
                *(
                    ("rl.rollout.attempt", attempt.span_id)
                    for attempt in stored.said.attempts_of(group)
                ),
            ]
        )
        for group in stored.said.groups.values()
    }


def test_groups_are_roots_and_attempts_hang_under_them(stored: Stored) -> None:
    assert {span.parent_id for _, span in stored.groups()} == {""}
    for attempt, span in stored.attempts():
        group = stored.said.groups[attempt.run, attempt.group_id]
        assert span.parent_id == group.span_id


def test_groups_last_as_long_and_end_as_the_log_says(stored: Stored) -> None:
    for group, span in stored.groups():
        assert (span.started, span.ended) == (group.started, group.ended)
        assert span.attributes["rl.outcome"] == group.outcome
        assert span.attributes.get("rl.reason", "") == group.reason
        assert (span.status, span.attributes.get("error.type")) == (0, None)


def test_groups_carry_their_ids_counts_and_step(stored: Stored) -> None:
    for group, span in stored.groups():
        assert span.attributes["rl.run.id"] == group.run
        assert span.attributes["rl.group.id"] == group.group_id
        assert span.attributes.get("rl.prompt.id") == group.prompt_id
        assert span.attributes.get("rl.step") == group.step
        versions = span.attributes.get("rl.tokens.versions", [])
        counts = span.attributes.get("rl.tokens.counts", [])
        assert dict(zip(versions, counts, strict=True)) == (group.tokens_by_version or {})


def test_groups_show_what_happened_to_them(stored: Stored) -> None:
    for group, span in stored.groups():
        assert span.happened == sorted(group.events)


def test_trained_groups_show_how_old_their_tokens_were(stored: Stored) -> None:
    trained = [(group, span) for group, span in stored.groups() if group.step is not None]
    assert trained
    for group, span in trained:
        (step,) = [event for event in span.events if event.name == "rl.step"]
        assert step.attributes["rl.step"] == group.step
        if group.batch_age is None:
            assert "rl.batch_age" not in step.attributes
        else:
            assert step.attributes["rl.batch_age"] == pytest.approx(group.batch_age, abs=1e-12)


def test_attempts_last_as_long_and_end_as_the_log_says(stored: Stored) -> None:
    for attempt, span in stored.attempts():
        assert (span.started, span.ended) == (attempt.started, attempt.ended)
        assert span.attributes["rl.outcome"] == attempt.outcome
        assert span.attributes.get("rl.generation.index") == attempt.generation
        if attempt.tokens is not None:
            assert span.attributes["gen_ai.usage.output_tokens"] == attempt.tokens


def test_lost_work_is_an_error_of_a_type(stored: Stored) -> None:
    lost = [span for attempt, span in stored.attempts() if attempt.failed]
    assert lost
    for attempt, span in stored.attempts():
        error = (attempt.reason or attempt.outcome) if attempt.failed else None
        assert span.status == (ERROR if attempt.failed else 0)
        assert span.attributes.get("error.type") == error


def test_attempts_show_the_refits_that_paused_them(stored: Stored) -> None:
    assert any(attempt.events for attempt, _ in stored.attempts())
    for attempt, span in stored.attempts():
        assert span.happened == sorted(attempt.events)
        assert attempt.generated == {
            event.time: event.attributes.get("rl.tokens.generated")
            for event in span.events
            if event.name == "rl.refit"
        }


def test_resumed_attempts_link_to_those_they_go_on_from(stored: Stored) -> None:
    for attempt, span in stored.attempts():
        assert span.links == attempt.resumes
        for trace_id, span_id in span.links:
            assert span_id in {each.span_id for each in stored.traces[trace_id]}


def test_runs_show_their_steps_refits_and_checkpoints(stored: Stored) -> None:
    for run, spans in stored.runs.items():
        assert {span.name for span in spans} == {"rl.run"}
        happened = sorted(each for span in spans for each in span.happened)
        assert happened == sorted(stored.said.run_events[run])


def test_segments_follow_one_another_without_a_gap(stored: Stored) -> None:
    for spans in stored.runs.values():
        for before, after in itertools.pairwise(spans):
            assert before.ended == after.started


def test_the_command_prints_what_it_sent(jaeger: Jaeger, tmp_path: Path) -> None:
    log = reading.copy_with_new_runs(DATA / "killed_and_restored.jsonl", tmp_path)
    said = reading.read(log)
    done = run_program(
        ["-m", "otel_rollout_trace", "replay", log, "--endpoint", jaeger.otlp["grpc"], "--json"],
        # The port is none of the usual ones.
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    )
    assert done.status == 0
    (counts,) = json.loads(done.output)
    assert counts["not_sent"] == 0
    assert counts["events"] == len(reading.lines_of(log))
    assert counts["runs"] == 3
    assert sum(counts["groups"].values()) == len(said.groups)
    assert sum(counts["attempts"].values()) == len(said.attempts)


def test_a_second_replay_adds_nothing(jaeger: Jaeger, tmp_path: Path) -> None:
    """The same spans under the same ids: Jaeger shows them once."""
    log = reading.copy_with_new_runs(DATA / "example.jsonl", tmp_path)
    (group,) = reading.read(log).groups.values()
    replay_by_command(log, jaeger.otlp["grpc"], "grpc")
    once = jaeger.trace(group.trace_id)
    replay_by_command(log, jaeger.otlp["http/protobuf"], "http/protobuf")
    assert len(once) == 4
    assert sorted(jaeger.trace(group.trace_id), key=str) == sorted(once, key=str)


def test_the_run_that_made_up_for_the_stops_says_what_they_cost(stored: Stored) -> None:
    """Of the sample that has some."""
    events = [event for spans in stored.runs.values() for span in spans for event in span.events]
    restored = any(event.name == "rl.checkpoint.restored" for event in events)
    lost = [
        event.attributes["rl.restore.tokens_lost"] for event in events if event.name == "rl.restore"
    ]
    assert sorted(lost) == ([23_773, 26_218] if restored else [])
