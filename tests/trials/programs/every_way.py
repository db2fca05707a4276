"""Every way in which a file is read. Trials import it, and the programs beside it."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout_trace import LogError, read_events
from otel_rollout_trace.check import check_log
from otel_rollout_trace.following import Follower, Until
from otel_rollout_trace.receipts import Receipts
from otel_rollout_trace.replaying import replay_into
from otel_rollout_trace.spans import SpanRecord

__all__ = ["Kept", "read_in_every_way"]

logging.getLogger("otel_rollout_trace").setLevel(logging.ERROR)
_RESOURCE = Resource({})


class Kept(SpanExporter):
    """Keeps spans as a receiver does."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See ``SpanExporter``."""
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS

    @property
    def ids(self) -> Counter[tuple[int, int]]:
        """The spans, and how often each came."""
        return Counter(
            (span.context.trace_id, span.context.span_id) for span in self.spans if span.context
        )


class _Ids:
    def __init__(self) -> None:
        self.found: Counter[tuple[int, int]] = Counter()

    def emit(self, record: SpanRecord) -> None:
        self.found[record.trace_id, record.span_id] += 1

    def flush(self) -> None:
        pass


def read_in_every_way(log: Path) -> bool:
    """Read it as a log: events, spans, findings, followed. Whether it is one.

    Where it is none, each way may say so. Whatever else is raised is a bug, as is a follower
    that sends other spans than a replay does.
    """
    shutil.rmtree(Receipts(log).directory, ignore_errors=True)
    said = []
    for strict in (False, True):
        try:
            for event in read_events(log, strict=strict):
                assert isinstance(event["run"], str)
        except LogError:
            said.append("reading")
    replayed = _Ids()
    try:
        replay_into(log, replayed)
    except LogError:
        said.append("replay")
    try:
        check_log(log).to_dict()
    except LogError:
        said.append("check")
    kept = Kept()
    follower = Follower(
        log,
        exporter=kept,
        target="nowhere",
        resource=lambda run, opened: _RESOURCE,
        until=Until.CAUGHT_UP,
        silence=0.0,
        wait=lambda seconds: False,
    )
    try:
        follower.run()
    except LogError:
        said.append("follower")
    if "replay" not in said and "follower" not in said:
        assert kept.ids == replayed.found
    return "replay" not in said
