"""The plug-in under the SDK's own start-up, with nothing but environment variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import reading
from support.logs import DATA
from support.otlp_receiver import PROTOCOLS, OtlpReceiver
from support.programs import run_program

SDK_STARTUP = Path(__file__).parent / "programs" / "sdk_startup.py"


def by_text(lines: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["example", "steady"])
def test_otlp_and_rollout_jsonl_side_by_side(
    receiver: OtlpReceiver, protocol: str, name: str, tmp_path: Path
) -> None:
    """The file that the exporter writes from spans has the events they were made from."""
    log, written = tmp_path / "log.jsonl", tmp_path / "from_spans.jsonl"
    said = run_program(
        [SDK_STARTUP, log, DATA / f"{name}.jsonl"],
        {
            "OTEL_TRACES_EXPORTER": "otlp,rollout_jsonl",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint(protocol),
            "OTEL_ROLLOUT_TRACE_PATH": str(written),
        },
    )
    assert (said.status, said.errors) == (0, "")
    assert by_text(reading.lines_of(written)) == by_text(reading.lines_of(log))
    groups = {group.span_id for group in reading.read(log).groups.values()}
    assert groups <= {span.span_id for span in receiver.spans}


def test_the_resource_detector_is_found_by_its_name(receiver: OtlpReceiver, tmp_path: Path) -> None:
    said = run_program(
        [SDK_STARTUP, tmp_path / "log.jsonl", DATA / "example.jsonl"],
        {
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "rollout",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint("grpc"),
            "SLURM_JOB_ID": "4711",
        },
    )
    assert (said.status, said.errors) == (0, "")
    assert {span.resource["slurm.job.id"] for span in receiver.spans} == {"4711"}
