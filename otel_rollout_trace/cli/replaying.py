"""``replay``: exporters for it, its progress, and what it says at the end."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ..events import Event, EventRow, Vocabulary, version_of
from ..history import MetricsHistory
from ..journal import LogError, LogReader
from ..lifecycle import Listener
from ..replay import Replayed, replay_into
from ..setup.configuring import resource_of_run
from ..setup.exporters import endpoint_of, make_otlp_exporter, protocol_of
from ..spans.batch import BatchSink
from .tables import print_replayed, reading

__all__ = ["ReplayOptions", "replay_files"]

_DEFAULT_ENDPOINTS = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}


@dataclass
class ReplayOptions:
    """What ``replay`` was asked for.

    Attributes:
        endpoint, protocol: of the receiver; None for the environment's.
        metrics: whether metrics are sent too.
        run: the beginning of a run's id; None for every run.
        dry_run: whether nothing is sent.
        as_json: whether what it ends with is JSON.
        vocabulary: which words mean which row.
    """

    endpoint: str | None
    protocol: str | None
    metrics: bool
    run: str | None
    dry_run: bool
    as_json: bool
    vocabulary: Vocabulary


def replay_files(paths: list[Path], options: ReplayOptions) -> bool:
    """Replay each file; whether everything arrived.

    Raises:
        LogError: for the first file that is no log; nothing of any was sent then.
        ValueError: for options that cannot be used.
    """
    for path in paths:
        next(iter(LogReader(path, required=True)), None)
    protocol = protocol_of("traces", options.endpoint, options.protocol)
    target = options.endpoint or endpoint_of("traces") or _DEFAULT_ENDPOINTS[protocol]
    # A receiver that is away, and lines that are bad, are told once, at the end.
    for name in ("opentelemetry", "otel_rollout_trace"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    found = [_replay(path, options, target) for path in paths]
    if options.as_json:
        print(json.dumps([result for result, _ in found]))
    return all(arrived for _, arrived in found)


def _replay(path: Path, options: ReplayOptions, target: str) -> tuple[dict[str, Any], bool]:
    run = _whole_id(path, options.run)
    processes = _Processes()

    @lru_cache
    def resource(run: str) -> Any:
        return resource_of_run(run, processes.pids.get(run))

    def exporter(signal: Literal["traces", "metrics"]) -> Any:
        return make_otlp_exporter(signal, endpoint=options.endpoint, protocol=options.protocol)

    sink = history = None
    listeners: list[Listener] = [processes]
    if not options.dry_run:
        sink = BatchSink(exporter("traces"), resource)
        if options.metrics:
            history = MetricsHistory(exporter("metrics"), resource)
            listeners.append(history)
    with reading(path) as progress:
        found = replay_into(
            path,
            sink,
            run=run,
            vocabulary=options.vocabulary,
            listeners=listeners,
            progress=progress,
        )
        if history is not None:
            history.close()
    found.not_sent = sink.failed if sink is not None else 0
    points = (history.sent, history.failed) if history is not None else None
    if not options.as_json:
        print_replayed(path, found, None if options.dry_run else target, points)
    arrived = not found.not_sent and not (points and points[1])
    return _as_dict(path, found, points), arrived


def _as_dict(path: Path, found: Replayed, points: tuple[int, int] | None) -> dict[str, Any]:
    result: dict[str, Any] = {"path": str(path)} | vars(found)
    if points is not None:
        result["points_sent"], result["points_not_sent"] = points
    return result


def _whole_id(path: Path, beginning: str | None) -> str | None:
    """The one run of a log whose id begins so."""
    if beginning is None:
        return None
    runs = {event["run"] for event in LogReader(path) if event["run"].startswith(beginning)}
    if not runs:
        raise LogError(f"{path}: no run begins with {beginning!r}")
    if len(runs) > 1 and beginning not in runs:
        raise LogError(f"{path}: {len(runs)} runs begin with {beginning!r}")
    return beginning if beginning in runs else runs.pop()


class _Processes(Listener):
    """Which process wrote each run."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        if row is not None and row.name == "trace_opened":
            pid = version_of(event.get("pid"))
            if pid is not None:
                self.pids.setdefault(run, pid)
