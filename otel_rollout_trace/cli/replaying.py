"""``replay``: exporters for it, its progress, and what it says at the end."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ..events import Event, EventRow, Vocabulary
from ..history import MetricsHistory
from ..journal import LogError, LogReader
from ..lifecycle import Listener
from ..replaying import Replayed, replay_into
from ..setup.configuring import resource_of_run
from ..setup.exporters import hint_of, label_of, make_otlp_exporter, protocol_of, target_of
from ..setup.quiet import Quiet
from ..spans.batch import BatchSink
from .tables import print_replayed, reading

__all__ = ["ReplayOptions", "replay_files"]


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
    target = label_of(target_of("traces", options.endpoint, options.protocol), protocol)
    # Lines that are bad are told at the end.
    logging.getLogger("otel_rollout_trace").setLevel(logging.ERROR)
    runs = [_whole_id(path, options.run) for path in paths]
    found = [_replay(path, run, options, target) for path, run in zip(paths, runs, strict=True)]
    if options.as_json:
        print(json.dumps([result for result, _ in found]))
    return all(arrived for _, arrived in found)


def _replay(
    path: Path, run: str | None, options: ReplayOptions, target: str
) -> tuple[dict[str, Any], bool]:
    opened = _Opened()
    quiets: list[Quiet] = []

    @lru_cache
    def resource(run: str) -> Any:
        return resource_of_run(run, opened.of.get(run, {}))

    def exporter(signal: Literal["traces", "metrics"]) -> Any:
        made = make_otlp_exporter(signal, endpoint=options.endpoint, protocol=options.protocol)
        return _quieted(made, quiets)

    sink = history = None
    listeners: list[Listener] = [opened]
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
        reason = next((quiet.reason for quiet in quiets if quiet.reason), "")
        reason += hint_of(protocol_of("traces", options.endpoint, options.protocol), reason)
        print_replayed(path, found, None if options.dry_run else target, points, reason)
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


def _quieted(exporter: Any, quiets: list[Quiet]) -> Any:
    """The exporter, keeping what it logs for the summary."""
    quiet = Quiet(exporter)
    export = exporter.export

    def quietly(batch: Any, *args: Any, **kwargs: Any) -> Any:
        before = quiet.reason
        with quiet.watch() as messages:
            result = export(batch, *args, **kwargs)
            if before:
                messages.insert(0, before)  # the first failure says most
        return result

    exporter.export = quietly
    quiets.append(quiet)
    return exporter


class _Opened(Listener):
    """How each run began."""

    def __init__(self) -> None:
        self.of: dict[str, Event] = {}

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        if row is not None and row.name == "trace_opened":
            self.of.setdefault(run, event)
