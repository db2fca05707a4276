"""What a user's provider decides, of sampling, ids, limits and processors, is respected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, TraceIdRatioBased
from support.logs import DATA, EXAMPLE, simulate, write_log
from support.spans import Seen, emit_all, plain

from otel_rollout_trace import RolloutTrace, replay
from otel_rollout_trace.setup.providers import RolloutTracerProvider

_RESOURCE = Resource({"service.name": "test"})

_Provider = tuple[TracerProvider, InMemorySpanExporter]


def _plain_provider(**settings: Any) -> _Provider:
    seen = Seen(**settings)
    return seen.provider, seen.exporter


def _rollout_provider() -> _Provider:
    provider, exporter = RolloutTracerProvider(_RESOURCE), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


_PROVIDERS = pytest.mark.parametrize("make", [_plain_provider, _rollout_provider])


@pytest.fixture
def half_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard variables that ask for half of the traces."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")


def _by_trace(spans: Sequence[ReadableSpan]) -> dict[int, list[str]]:
    traces: dict[int, list[str]] = {}
    for span in map(plain, spans):
        traces.setdefault(span.trace_id, []).append(span.name)
    return traces


@pytest.mark.usefixtures("half_sampled")
@pytest.mark.parametrize("live", [False, True], ids=["replayed", "live"])
@_PROVIDERS
def test_a_ratio_keeps_or_drops_whole_groups(
    make: Callable[[], _Provider], tmp_path: Path, live: bool
) -> None:
    """A group comes with all its attempts, or neither does; the same ones each time."""
    path = write_log(tmp_path / "log.jsonl", simulate(3, runs=1, steps=30))
    run = simulate(3, runs=1, steps=30)[0]["run"]
    whole, everything = _plain_provider(sampler=trace_all())
    replay(path, tracer_provider=whole)
    provider, kept = make()
    if live:
        with RolloutTrace(tmp_path / "live.jsonl", tracer_provider=provider, run=run) as recorder:
            emit_all(recorder, simulate(3, runs=1, steps=30)[1:])
    else:
        replay(path, tracer_provider=provider)
    all_traces = _by_trace(everything.get_finished_spans())
    groups = {trace for trace, names in all_traces.items() if "rl.rollout.group" in names}
    some = _by_trace(kept.get_finished_spans())
    kept_groups = groups & some.keys()
    assert 0.2 < len(kept_groups) / len(groups) < 0.8
    for trace_id in kept_groups:
        assert sorted(some[trace_id]) == sorted(all_traces[trace_id])
    sampler = TraceIdRatioBased(0.5)
    for trace_id in groups:
        decision = sampler.should_sample(None, trace_id, "").decision
        assert (decision is Decision.RECORD_AND_SAMPLE) == (trace_id in kept_groups)


def trace_all() -> Any:
    """A sampler that keeps everything, whatever the environment says."""
    return ParentBased(TraceIdRatioBased(1.0))


def test_a_sampler_that_drops_all_gets_nothing(tmp_path: Path) -> None:
    """Not even the attempts, whose parent is remote and said to be sampled."""
    provider, kept = _plain_provider(sampler=ALWAYS_OFF)
    replay(EXAMPLE, tracer_provider=provider)
    assert not kept.get_finished_spans()


class _Stamp(SpanProcessor):
    """Puts an attribute on every span that starts."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        span.set_attribute("team", "posttraining")


class _StampingBatch(BatchSpanProcessor):
    """The same, by a processor that also exports."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        span.set_attribute("team", "posttraining")


class _StampingSimple(SimpleSpanProcessor):
    """The same, one span at a time."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        span.set_attribute("team", "posttraining")


@pytest.mark.parametrize("kind", ["its own", "batch", "simple"])
@pytest.mark.parametrize("own", [False, True], ids=["TracerProvider", "RolloutTracerProvider"])
def test_a_processor_that_changes_spans_as_they_start_is_honoured(own: bool, kind: str) -> None:
    """On every span, however they would be sent without it."""
    provider: TracerProvider
    if own:
        provider = RolloutTracerProvider(_RESOURCE)
    else:
        provider = TracerProvider(resource=_RESOURCE, shutdown_on_exit=False)
    exporter = InMemorySpanExporter()
    if kind == "its own":
        provider.add_span_processor(_Stamp())
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        stamping = {"batch": _StampingBatch, "simple": _StampingSimple}[kind]
        provider.add_span_processor(stamping(exporter))
    replay(EXAMPLE, tracer_provider=provider)
    provider.shutdown()
    spans = exporter.get_finished_spans()
    assert len(spans) == 5
    assert all((span.attributes or {}).get("team") == "posttraining" for span in spans)


@_PROVIDERS
def test_an_ambient_span_is_no_parent(make: Callable[[], _Provider], tmp_path: Path) -> None:
    """Neither that of the thread that calls replay, nor that of one that emits."""
    expected = Seen()
    replay(EXAMPLE, tracer_provider=expected.provider)
    provider, kept = make()
    users = TracerProvider(shutdown_on_exit=False).get_tracer("user")
    with users.start_as_current_span("train"):
        replay(EXAMPLE, tracer_provider=provider)
        with RolloutTrace(tmp_path / "log.jsonl", tracer_provider=provider) as recorder:
            recorder.emit("attempt_dispatched", group_id="g", attempt_id="a")
    spans = [plain(span) for span in kept.get_finished_spans()]
    assert sorted(spans[:5], key=repr) == expected.plain
    assert len(spans) == 8
    assert {span.parent_id for span in spans if span.name != "rl.rollout.attempt"} == {None}


@_PROVIDERS
def test_the_users_own_spans_keep_random_ids(make: Callable[[], _Provider]) -> None:
    """Also those of a tracer of the same name, and after ours were sent."""
    provider, kept = make()
    replay(EXAMPLE, tracer_provider=provider)
    ours = {plain(span).span_id for span in kept.get_finished_spans()}
    with provider.get_tracer("otel_rollout_trace").start_as_current_span("theirs") as theirs:
        assert theirs.get_span_context().span_id not in ours


class _ForeignTracer(trace.Tracer):
    """A tracer that has nothing but what the API asks for."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._tracer.start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer.start_as_current_span(*args, **kwargs)


class _ForeignProvider(trace.TracerProvider):
    """A provider that is not the SDK's."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return _ForeignTracer(self._provider.get_tracer(*args, **kwargs))


def test_a_foreign_provider_gets_spans_in_the_computed_traces() -> None:
    """Under ids of its own, since it takes none; times and attributes are the same."""
    expected, seen = Seen(), Seen()
    replay(EXAMPLE, tracer_provider=expected.provider)
    replay(EXAMPLE, tracer_provider=_ForeignProvider(seen.provider))

    def said(seen: Seen) -> list[Any]:
        spans = [
            (span.name, span.trace_id, span.started, span.ended, span.attributes, span.events)
            for span in seen.plain
        ]
        return sorted(spans, key=repr)

    assert said(seen) == said(expected)


def test_a_provider_that_does_nothing_is_fine() -> None:
    """What is found is counted all the same."""
    found = replay(EXAMPLE, tracer_provider=trace.NoOpTracerProvider())
    assert found.spans == 5


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "4"),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "4"),
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "3"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3"),
        ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "1"),
        ("OTEL_SPAN_LINK_COUNT_LIMIT", "0"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "2"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "0"),
    ],
)
def test_limits_cut_the_same_through_both_providers(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter way is taken only where it changes nothing."""
    monkeypatch.setenv(variable, value)
    spans = []
    for make in (_plain_provider, _rollout_provider):
        provider, kept = make()
        replay(DATA / "killed_and_restored.jsonl", tracer_provider=provider)
        spans.append(sorted(map(plain, kept.get_finished_spans()), key=repr))
    assert spans[0] == spans[1]


def test_a_value_length_limit_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the provider that `configure` makes."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "8")
    provider, kept = _rollout_provider()
    replay(EXAMPLE, tracer_provider=provider)
    for span in kept.get_finished_spans():
        assert len(str((span.attributes or {})["rl.run.id"])) == 8


def test_an_event_limit_of_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is counted on the span, not dropped silently."""
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "2")
    for make in (_plain_provider, _rollout_provider):
        provider, kept = make()
        replay(EXAMPLE, tracer_provider=provider)
        [group] = [span for span in kept.get_finished_spans() if span.name == "rl.rollout.group"]
        assert (group.attributes or {})["rl.events.dropped"] == 4 - len(group.events)
        assert group.dropped_events == 0
