"""The metrics of a live run, at a receiver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import reading
from support.logs import DATA
from support.otlp_receiver import PROTOCOLS, OtlpReceiver
from support.programs import run_program

import otel_rollout_trace

EMIT_LOG = Path(__file__).parent / "programs" / "emit_log.py"
KILLED = DATA / "killed_and_restored.jsonl"


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def emit(source: Path, log: Path, receiver: OtlpReceiver, protocol: str) -> None:
    said = run_program(
        [EMIT_LOG, log, source],
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint(protocol),
        },
    )
    assert (said.status, said.errors) == (0, "")


def last_values(receiver: OtlpReceiver, name: str) -> dict[str, float]:
    """The last value of each series, by its attributes."""
    return {
        ",".join(f"{key}={value}" for key, value in sorted(point.attributes.items())): point.value
        for point in receiver.points(name)
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_worked_example_arrives_as_it_is_worked_through(
    receiver: OtlpReceiver, protocol: str, tmp_path: Path
) -> None:
    emit(DATA / "example.jsonl", tmp_path / "log.jsonl", receiver, protocol)
    expected = {
        "rl.batch_age": {"": 1.25},
        "rl.batch_age_max": {"": 2},
        "rl.batch_age_generation": {"": 0.25},
        "rl.batch_age_queue": {"": 1},
        "rl.batch_age_coverage": {"": 1},
        "rl.trained_tokens": {"rl.token.age=1": 120, "rl.token.age=2": 40},
        "rl.tokens": {"rl.token.fate=trained": 160, "rl.token.fate=abandoned": 55},
        "rl.attempts": {
            "rl.outcome=sealed": 2,
            "error.type=timeout,rl.outcome=abandoned": 1,
        },
        "rl.groups": {"rl.outcome=trained": 1},
        "rl.active_attempts": {"": 0},
        "rl.open_groups": {"": 0},
        "rl.step": {"": 3},
        "rl.weight_version": {"": 2},
    }
    assert {name: last_values(receiver, name) for name in expected} == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("steps", [1, 7])
def test_the_batch_age_is_that_of_the_last_step_in_the_file(
    receiver: OtlpReceiver, protocol: str, steps: int, tmp_path: Path
) -> None:
    source, log = tmp_path / "source.jsonl", tmp_path / "log.jsonl"
    lines = reading.lines_of(DATA / "steady.jsonl")
    trained = [index for index, line in enumerate(lines) if line["event"] == "step_trained"]
    write(source, lines[: trained[steps - 1] + 1])
    emit(source, log, receiver, protocol)
    ages = otel_rollout_trace.batch_age_by_step(otel_rollout_trace.read_events(log))
    assert len(ages) == steps
    assert receiver.points("rl.batch_age")[-1].value == list(ages.values())[-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_batch_age_of_a_resumed_run_counts_groups_that_an_earlier_run_published(
    receiver: OtlpReceiver, protocol: str, tmp_path: Path
) -> None:
    lines = reading.lines_of(KILLED)
    killed = [line for line in lines if line["run"] == lines[0]["run"]]
    restored = [line for line in lines if line["run"] == lines[-1]["run"]]
    first_step = [line["event"] for line in restored].index("step_trained")
    published = {line["group_id"] for line in killed if line["event"] == "group_published"}
    assert published.intersection(restored[first_step]["group_ids"])

    source, log = tmp_path / "source.jsonl", tmp_path / "log.jsonl"
    write(log, killed)
    write(source, restored[: first_step + 1])
    emit(source, log, receiver, protocol)

    step = restored[first_step]["step"]
    ages = otel_rollout_trace.batch_age_by_step(otel_rollout_trace.read_events(log))
    age = receiver.points("rl.batch_age")[-1].value
    assert age == ages[step]
    assert age == pytest.approx(reading.read(log).batch_age[step], abs=1e-12)
    assert receiver.points("rl.batch_age_coverage")[-1].value == 1
