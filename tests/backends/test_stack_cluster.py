"""A Collector on each node, a gateway, and what can be laid over it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support import reading
from support.arrivals import spans_in_jaeger, spans_of_log
from support.jaeger import Jaeger
from support.logs import DATA
from support.otlp_receiver import OtlpReceiver
from support.programs import run_program, wait_for
from support.stack import Collector, running_collector
from support.wire import ERROR, WireSpan

from .conftest import built

pytestmark = pytest.mark.backend

GATEWAY = ["collector.yaml", "gateway.yaml"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose spans no backend has yet."""
    return reading.copy_with_new_runs(DATA / "killed_and_restored.jsonl", tmp_path)


@pytest.fixture
def behind(jaeger: Jaeger, receiver: OtlpReceiver) -> dict[str, str]:
    """Where a gateway sends: to a Jaeger, and to what stands in for Prometheus."""
    return {
        "JAEGER_OTLP": jaeger.otlp["http/protobuf"],
        "PROMETHEUS_OTLP": receiver.endpoint("http/protobuf"),
    }


def replay(log: Path, collector: Collector, *options: str) -> None:
    command = ["-m", "otel_rollout_trace", "replay", "--protocol", "grpc", "--endpoint"]
    said = run_program([*command, collector.otlp["grpc"], *options, log])
    assert (said.status, said.errors) == (0, "")


def test_what_a_node_takes_arrives_behind_the_gateway(
    behind: dict[str, str], jaeger: Jaeger, receiver: OtlpReceiver, log: Path, tmp_path: Path
) -> None:
    with running_collector(built, tmp_path / "gateway", GATEWAY, behind) as gateway:
        ahead = {"GATEWAY_OTLP": gateway.otlp["http/protobuf"]}
        with running_collector(built, tmp_path / "node", ["node.yaml"], ahead) as node:
            replay(log, node, "--metrics")
            said = spans_of_log(log)
            wait_for(lambda: spans_in_jaeger(jaeger, said) == said, "span of the log")
            steps = [line for line in reading.lines_of(log) if line["event"] == "step_trained"]
            wait_for(lambda: len(receiver.points("rl.step")) >= len(steps), "point of each step")


def test_a_node_keeps_what_it_has_while_the_gateway_is_away_and_when_it_is_killed_itself(
    behind: dict[str, str], jaeger: Jaeger, log: Path, tmp_path: Path
) -> None:
    said = spans_of_log(log)
    with running_collector(built, tmp_path / "gateway", GATEWAY, behind) as gateway:
        ahead = {"GATEWAY_OTLP": gateway.otlp["http/protobuf"]}
        with running_collector(built, tmp_path / "node", ["node.yaml"], ahead) as node:
            gateway.service.stop()
            replay(log, node)
            assert spans_in_jaeger(jaeger, said) == []
            node.service.kill()
            node.service.start()
            gateway.service.start()
            wait_for(lambda: spans_in_jaeger(jaeger, said) == said, "span of the log", timeout=60)


def is_lost_work(trace: list[WireSpan]) -> bool:
    """Whether the file says to keep a trace for sure."""
    return any(
        span.status == ERROR
        or span.attributes.get("rl.outcome") in ("discarded", "interrupted")
        or span.name == "rl.run"
        for span in trace
    )


def test_lost_work_only_keeps_whole_traces_of_lost_work_and_few_others(
    behind: dict[str, str], jaeger: Jaeger, tmp_path: Path
) -> None:
    log = reading.copy_with_new_runs(DATA / "steady.jsonl", tmp_path)
    said: dict[str, list[WireSpan]] = {}
    for span in spans_of_log(log):
        said.setdefault(span.trace_id, []).append(span)
    lost = {trace_id for trace_id, spans in said.items() if is_lost_work(spans)}
    assert 10 < len(lost) < len(said) / 2

    def stored() -> dict[str, list[WireSpan]]:
        every = [span for spans in said.values() for span in spans]
        found: dict[str, list[WireSpan]] = {}
        for span in spans_in_jaeger(jaeger, every):
            found.setdefault(span.trace_id, []).append(span)
        return found

    configs = [*GATEWAY, "lost-work-only.yaml"]
    with running_collector(built, tmp_path / "gateway", configs, behind) as gateway:
        replay(log, gateway)
        wait_for(lambda: lost <= set(stored()), "trace of all lost work", timeout=30)
        kept = stored()
        assert kept == {trace_id: said[trace_id] for trace_id in kept}
        others = set(kept) - lost
        assert len(others) < len(set(said) - lost) / 2

        # What was decided stays decided: a replay brings back no trace that was let go.
        replay(log, gateway)
    # Stopped: whatever was waiting for a decision has got one.
    assert set(stored()) == set(kept)


def test_with_tempo_sends_traces_to_both(
    behind: dict[str, str], jaeger: Jaeger, receiver: OtlpReceiver, log: Path, tmp_path: Path
) -> None:
    """There is no Tempo here: what stands in for it takes OTLP as it does."""
    addresses = {**behind, "TEMPO_OTLP": receiver.endpoint("http/protobuf")}
    configs = ["collector.yaml", "with-tempo.yaml"]
    said = spans_of_log(log)
    with running_collector(built, tmp_path / "collector", configs, addresses) as collector:
        replay(log, collector)
        wait_for(lambda: spans_in_jaeger(jaeger, said) == said, "span in Jaeger")
        ids = Counter(span.span_id for span in said)
        wait_for(lambda: Counter(span.span_id for span in receiver.spans) == ids, "span in Tempo")


def test_with_vendor_sends_everything_there_with_its_key(
    receiver: OtlpReceiver, log: Path, tmp_path: Path
) -> None:
    vendor = {
        "VENDOR_OTLP": receiver.endpoint("http/protobuf"),
        "VENDOR_AUTHORIZATION": "Bearer of the key",
    }
    configs = ["collector.yaml", "with-vendor.yaml"]
    ids = Counter(span.span_id for span in spans_of_log(log))
    with running_collector(built, tmp_path / "collector", configs, vendor) as collector:
        replay(log, collector, "--metrics")
        wait_for(lambda: Counter(span.span_id for span in receiver.spans) == ids, "span")
        wait_for(lambda: receiver.points("rl.step"), "metric")
    assert {headers["authorization"] for headers in receiver.headers} == {"Bearer of the key"}
