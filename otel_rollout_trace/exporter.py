"""Spans back to lines: a span exporter that writes a rollout log.

Any pipeline that carries these spans can keep the file: every event that made
them comes back, field for field, in time order within what one export holds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from .events import VOCABULARY, Event, NotAnEvent, seconds_of
from .journal import LogWriter, decode_line
from .journal.lines import encode_line
from .recorder import log_path
from .spans import names

__all__ = ["JsonlSpanExporter", "events_of"]

logger = logging.getLogger(__name__)

_decode: Final = msgspec.json.Decoder().decode

_SUBJECTS: Final = {
    names.GROUP_SPAN: "group",
    names.ATTEMPT_SPAN: "attempt",
    names.RUN_SPAN: "run",
}
_END_EVENTS: Final = {
    "sealed": "attempt_sealed",
    "refused": "attempt_refused",
    "abandoned": "attempt_abandoned",
    "discarded": "group_discarded",
}

# On groups and attempts these are copies of what is on the run.
_COPIES: Final = frozenset({names.STEP_EVENT, names.REFIT_EVENT})


class JsonlSpanExporter(SpanExporter):
    """Writes ended spans as lines of a rollout log.

    Spans of other instrumentations are passed over. It sees a span only once it
    ends, so the lines of one export are in time order, but not those of several;
    a live run's log is written by `RolloutTrace` itself, as things happen.

    Args:
        path: the log; ``OTEL_ROLLOUT_TRACE_PATH`` or, without it,
            ``rollout_trace.jsonl`` in the working directory by default.

    Registered as ``rollout_jsonl`` for the SDK's own start-up:
    ``OTEL_TRACES_EXPORTER=otlp,rollout_jsonl``.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = log_path(path)
        # Lines that the disk does not take wait in it for the next export.
        self._writer = LogWriter(self._path, gap_line=self._gap_line)
        self._lock = threading.Lock()
        self._closed = False
        self._last_run = ""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Append the events that made these spans."""
        events: list[Event] = []
        for span in spans:
            events.extend(events_of(span))
        events.sort(key=lambda event: event["t"])
        with self._lock:
            if self._closed:
                logger.warning("%s: the exporter is shut down", self._path)
                return SpanExportResult.FAILURE
            if events:
                self._last_run = events[-1]["run"]
                block = b"".join(encode_line(event) + b"\n" for event in events)
                self._writer.write(block, now=True)
            failing = self._writer.failing
        return SpanExportResult.FAILURE if failing else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Write what waits, if it can be, and close the file."""
        with self._lock:
            if not self._closed:
                self._closed = True
                if self._writer.failing:
                    self._writer.write(b"", now=True)
                self._writer.close()
                if self._writer.lost:
                    logger.warning("%s: %d events were lost", self._path, self._writer.lost)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is held back: an export is written when it returns."""
        return not self._writer.failing

    def _gap_line(self, lost: int) -> bytes:
        now = time.time_ns() // 1000 / 1e6
        return encode_line({"t": now, "run": self._last_run, "event": "trace_gap", "lost": lost})


def events_of(span: ReadableSpan) -> Iterator[Event]:
    """The events of the log that made a span, in no particular order.

    Args:
        span: any ended span; one that is not ours gives nothing.
    """
    subject = _SUBJECTS.get(span.name)
    scope = span.instrumentation_scope
    if subject is None or scope is None or scope.name != names.SCOPE:
        return
    attributes: Mapping[str, Any] = span.attributes or {}
    run = attributes.get(names.RUN_ID)
    if not isinstance(run, str):
        return
    yield from _start_of(span, subject, attributes, run)
    for event in span.events:
        event_attributes: Mapping[str, Any] = event.attributes or {}
        if names.LOG_LINE in event_attributes:
            yield from _line(event_attributes[names.LOG_LINE])
        elif event.name == names.RESTORE_EVENT:
            continue  # worked out from the log, and not in it
        elif subject == "run" or event.name not in _COPIES:
            row = names.ROW_OF_EVENT_NAME.get(event.name, event.name)
            fields = _fields_of(event_attributes)
            if subject == "group" and event.name in names.ROW_OF_EVENT_NAME:
                fields = {"group_id": attributes[names.GROUP_ID]} | fields
            yield _event(event.timestamp, run, row, fields)
    yield from _end_of(span, attributes, run)


def _start_of(
    span: ReadableSpan, subject: str, attributes: Mapping[str, Any], run: str
) -> Iterator[Event]:
    if names.LOG_START in attributes:
        yield from _line(attributes[names.LOG_START])
        return
    name = names.start_event(attributes, subject)
    if name:
        of_row = set(names.attributes_of_row(name).values())
        yield _event(
            span.start_time,
            run,
            name,
            _fields_of(
                {
                    key: value
                    for key, value in attributes.items()
                    if key in of_row or key.startswith(names.FIELD_PREFIX)
                }
            ),
        )


def _end_of(span: ReadableSpan, attributes: Mapping[str, Any], run: str) -> Iterator[Event]:
    if names.LOG_END in attributes:
        yield from _line(attributes[names.LOG_END])
        return
    name = _END_EVENTS.get(attributes.get(names.OUTCOME, ""))
    if name is not None:
        table = names.attributes_of_row(name)
        fields = {
            field: attributes[table[field]]
            for field in VOCABULARY[name].fields
            if table[field] in attributes
        }
        yield _event(span.end_time, run, name, fields)


def _event(time: int | None, run: str, name: str, fields: Mapping[str, Any]) -> Event:
    return {"t": seconds_of((time or 0) // 1000), "run": run, "event": name, **fields}


def _line(text: Any) -> Iterator[Event]:
    if text:
        try:
            yield decode_line(text.encode())
        except NotAnEvent:
            logger.warning("a line was cut on its way here, and is left out: %.60s", text)


def _nested(text: str) -> Any:
    """A nested value from its JSON text; the text where a limit of the SDK has cut it."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


def _fields_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(names.FIELD_PREFIX):
            nested = isinstance(value, str) and value[:1] in ("{", "[")
            fields[name.removeprefix(names.FIELD_PREFIX)] = _nested(value) if nested else value
        elif name == names.TOKEN_VERSIONS:
            counts = attributes.get(names.TOKEN_COUNTS, ())
            fields["tokens_by_version"] = dict(zip(map(str, value), counts, strict=False))
        elif name == names.GROUP_IDS:
            fields["group_ids"] = list(value)
        elif name in names.FIELD_OF_ATTRIBUTE:
            fields[names.FIELD_OF_ATTRIBUTE[name]] = value
    return fields
