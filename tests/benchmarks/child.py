"""Run as a program, so that its CPU time and memory are its own: prints them as JSON."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final


def ages_streamed(log: str) -> dict[int, float]:
    """Batch age by step, from the lines that it needs."""
    from otel_rollout_trace import batch_age_by_step
    from otel_rollout_trace.batch_age import BATCH_AGE_FIELDS
    from otel_rollout_trace.journal import LogReader

    return batch_age_by_step(LogReader(log, containing=BATCH_AGE_FIELDS))


def ages_of_list(log: str) -> dict[int, float]:
    """The same from a list of all events, made with the standard library."""
    with Path(log).open(encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    counts = {
        event["group_id"]: {int(v): n for v, n in event["tokens_by_version"].items()}
        for event in events
        if event["event"] == "group_published"
    }
    ages: dict[int, float] = {}
    for event in events:
        if event["event"] != "step_trained":
            continue
        groups = [counts[group] for group in event["group_ids"] if group in counts]
        tokens = sum(sum(group.values()) for group in groups)
        if tokens:
            version_sum = sum(v * n for group in groups for v, n in group.items())
            ages[event["step"]] = (event["trained_version"] * tokens - version_sum) / tokens
    return ages


def cost_streamed(log: str) -> int:
    """What stops cost and what became of every token, from all lines; the number of stops."""
    from otel_rollout_trace import cost_of
    from otel_rollout_trace.journal import LogReader

    return len(cost_of(LogReader(log)).stops)


def lines_decoded(log: str) -> int:
    """Each line decoded by the standard library, and forgotten; the number of stops."""
    runs = set()
    with Path(log).open(encoding="utf-8") as lines:
        for line in lines:
            runs.add(json.loads(line)["run"])
    return len(runs) - 1


def open_attempts(number: str) -> dict[str, float]:
    """How much the process grows by each open attempt, its share of its group included."""
    from otel_rollout_trace.journal import decode_line
    from otel_rollout_trace.lifecycle import Lifecycle
    from otel_rollout_trace.spans import SpanView

    lifecycle = Lifecycle([SpanView(lambda record: None)])
    before = _status("VmRSS")
    for line in _dispatched(int(number)):
        lifecycle.feed(decode_line(line))
    grown = _status("VmRSS") - before
    return {"open": lifecycle.open_attempts, "bytes": grown / lifecycle.open_attempts}


def _dispatched(number: int) -> Iterator[bytes]:
    """Lines of groups of four attempts that are out."""
    header = b'{"t": %.6f, "run": "db5b5fab8f4d3e27dda1494c73cf256d", "event": '
    for attempt in range(number):
        start = header % (1790000000 + attempt / 1000)
        group, generation = divmod(attempt, 4)
        ids = b'"group_id": "%016x", "prompt_id": %d' % (group, group)
        if generation == 0:
            yield start + b'"group_reserved", %b, "expected_generations": 4}' % ids
            yield start + b'"group_admitted", "group_id": "%016x", "weight_version": 0}' % group
        yield start + (
            b'"attempt_dispatched", %b, "attempt_id": "%016x", "generation_index": %d, '
            b'"weight_version": 0}' % (ids, attempt, generation)
        )


def _status(key: str) -> int:
    """A size of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def _usage() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Linux hands `ru_maxrss` on from the process that started this one.
    peak = _status("VmHWM") if sys.platform == "linux" else used.ru_maxrss
    return {"cpu": used.ru_utime + used.ru_stime, "peak": peak}


_WORK: Final[Mapping[str, Callable[[str], Any]]] = {
    work.__name__: work
    for work in (ages_streamed, ages_of_list, cost_streamed, lines_decoded, open_attempts)
}

if __name__ == "__main__":
    result = _WORK[sys.argv[1]](sys.argv[2])
    print(json.dumps({"result": result, **_usage()}))  # noqa: T201 - the parent reads it
