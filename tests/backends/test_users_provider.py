"""A provider that the user set up is used as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from support import reading
from support.logs import DATA
from support.programs import run_program
from support.wire import WireSpan, spans_of_sdk

import otel_rollout_trace

PROGRAM = Path(__file__).parent / "programs" / "own_provider.py"

Send = Callable[[Path, TracerProvider], Path]


def live(folder: Path, provider: TracerProvider) -> Path:
    """Emit the events of a sample anew, and return the log."""
    log = folder / "live.jsonl"
    with otel_rollout_trace.RolloutTrace(log, tracer_provider=provider) as trace:
        for line in reading.lines_of(DATA / "steady.jsonl"):
            del line["run"]
            trace.emit(line.pop("event"), **line)
    return log


def replayed(folder: Path, provider: TracerProvider) -> Path:
    """Replay a sample, and return it."""
    otel_rollout_trace.replay(DATA / "steady.jsonl", tracer_provider=provider)
    return DATA / "steady.jsonl"


@pytest.fixture(params=[live, replayed], ids=["live", "replayed"])
def send(request: pytest.FixtureRequest) -> Send:
    found: Send = request.param
    return found


class Users:
    """A user's provider that keeps its spans."""

    def __init__(
        self, sampler: Sampler | None = None, processor: SpanProcessor | None = None
    ) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        if processor is not None:
            self.provider.add_span_processor(processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[WireSpan]:
        """The spans so far."""
        return spans_of_sdk(self.exporter.get_finished_spans())


class Stamp(SpanProcessor):
    """Sets an attribute on every span that starts."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        span.set_attribute("team", "posttraining")
        span.set_attribute("begun.with", sorted(span.attributes or {})[0])


def test_a_ratio_keeps_whole_groups_or_nothing_of_them(send: Send, tmp_path: Path) -> None:
    """The sampler decides by a group's trace id, which anyone can compute."""
    ratio = TraceIdRatioBased(0.5)
    users = Users(ParentBased(ratio))
    said = reading.read(send(tmp_path, users.provider))
    kept = [
        group
        for group in said.groups.values()
        if ratio.should_sample(None, int(group.trace_id, 16), "any").decision
        is Decision.RECORD_AND_SAMPLE
    ]
    assert 0 < len(kept) < len(said.groups)
    expected = {(group.trace_id, group.span_id) for group in kept} | {
        (attempt.trace_id, attempt.span_id) for group in kept for attempt in said.attempts_of(group)
    }
    assert {
        (span.trace_id, span.span_id) for span in users.spans if span.name != "rl.run"
    } == expected


def test_a_sampler_that_drops_everything_gets_nothing(send: Send, tmp_path: Path) -> None:
    users = Users(ParentBased(ALWAYS_OFF))
    send(tmp_path, users.provider)
    assert users.spans == []


def test_processors_see_spans_start_and_may_set_attributes(send: Send, tmp_path: Path) -> None:
    users = Users(processor=Stamp())
    send(tmp_path, users.provider)
    assert {span.name for span in users.spans} == {
        "rl.rollout.group",
        "rl.rollout.attempt",
        "rl.run",
    }
    for span in users.spans:
        assert span.attributes["team"] == "posttraining"
        assert span.attributes["begun.with"]


def test_a_span_that_is_open_where_events_are_emitted_is_no_parent(
    send: Send, tmp_path: Path
) -> None:
    users = Users()
    tracer = users.provider.get_tracer("training")
    with tracer.start_as_current_span("train"):
        said = reading.read(send(tmp_path, users.provider))
    (train,) = [span for span in users.spans if span.name == "train"]
    ours = [span for span in users.spans if span is not train and span.name != "train"]
    assert train.trace_id not in {span.trace_id for span in ours}
    roots = {span.span_id for span in ours if not span.parent_id and span.name != "rl.run"}
    assert roots == {group.span_id for group in said.groups.values()}


def test_a_span_that_was_not_sampled_takes_none_of_ours_with_it(send: Send, tmp_path: Path) -> None:
    users = Users()
    unsampled = api.NonRecordingSpan(api.SpanContext(1, 2, False, api.TraceFlags(0)))
    with api.use_span(unsampled):
        said = reading.read(send(tmp_path, users.provider))
    assert len([span for span in users.spans if span.name != "rl.run"]) == len(said.groups) + len(
        said.attempts
    )


def test_a_users_own_spans_keep_ids_of_their_own(send: Send, tmp_path: Path) -> None:
    users = Users()
    send(tmp_path, users.provider)
    tracer = users.provider.get_tracer("otel_rollout_trace")
    for _ in range(10):
        tracer.start_span("own").end()
    ids = [span.span_id for span in users.spans]
    assert len(ids) == len(set(ids))


def test_a_users_limits_cut_attributes(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        span_limits=SpanLimits(max_attribute_length=8), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    replayed(tmp_path, provider)
    lengths = {
        len(value)
        for span in spans_of_sdk(exporter.get_finished_spans())
        for value in span.attributes.values()
        if isinstance(value, str)
    }
    assert max(lengths) == 8


@pytest.mark.parametrize("when", ["before", "after"])
def test_global_providers_of_the_users_are_used_and_left_alone(when: str, tmp_path: Path) -> None:
    """`configure` finds them set; `RolloutTrace` finds them even if they are set later."""
    log, spans = tmp_path / "log.jsonl", tmp_path / "spans.txt"
    said = run_program([PROGRAM, log, DATA / "example.jsonl", spans, when])
    assert (said.status, said.errors) == (0, "")
    (group,) = reading.read(log).groups.values()
    made = spans.read_text().split()
    assert f"{group.trace_id}/{group.span_id}" in made
    assert len(made) == 1 + 3 + 1
