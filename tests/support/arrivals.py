"""What a log says should be in Jaeger, and what is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_rollout_trace

from . import reading
from .jaeger import Jaeger, as_jaeger_shows
from .programs import wait_for
from .wire import WireSpan, spans_of_sdk

__all__ = ["missing_work", "spans_in_jaeger", "spans_of_log", "wait_for_all_work"]

#: After an outage the Collector tries again within 10 seconds.
_ARRIVES_WITHIN_S = 45


def spans_of_log(log: Path) -> list[WireSpan]:
    """The spans that a replay of the log makes, as Jaeger shows them."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    otel_rollout_trace.replay(log, tracer_provider=provider)
    provider.shutdown()
    return _comparable(spans_of_sdk(exporter.get_finished_spans()))


def spans_in_jaeger(jaeger: Jaeger, spans: list[WireSpan]) -> list[WireSpan]:
    """All that Jaeger has of the traces that these spans are in."""
    traces = jaeger.traces(sorted({span.trace_id for span in spans}))
    return _comparable([span for trace in traces.values() for span in trace])


def missing_work(jaeger: Jaeger, log: Path) -> Counter[str]:
    """The groups and attempts of a log that are not in Jaeger, or are there twice.

    Found by the words of the log alone, without the package. Counts by what is wrong.
    """
    said = reading.read(log)
    wrong: Counter[str] = Counter()
    for group in said.groups.values():
        stored = Counter(span.span_id for span in jaeger.trace(group.trace_id))
        wrong["groups missing"] += stored[group.span_id] == 0
        for attempt in said.attempts_of(group):
            wrong["attempts missing"] += stored[attempt.span_id] == 0
        wrong["twice"] += sum(count > 1 for count in stored.values())
    return +wrong


def wait_for_all_work(jaeger: Jaeger, log: Path, *, timeout: float = _ARRIVES_WITHIN_S) -> None:
    """Wait until every group and attempt of a log is in Jaeger, once.

    Raises:
        TimeoutError: if something is missing for so long; the message says how much.
    """
    try:
        wait_for(lambda: not missing_work(jaeger, log), "complete log in Jaeger", timeout=timeout)
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {dict(missing_work(jaeger, log))}") from None


def _comparable(spans: list[WireSpan]) -> list[WireSpan]:
    return sorted(map(_as_stored, spans), key=lambda span: (span.trace_id, span.span_id))


def _as_stored(span: WireSpan) -> WireSpan:
    shown = as_jaeger_shows(span)
    return shown._replace(
        # It tells one process from another: a replay's is not the training's.
        resource={},
        attributes=_with_lists_as_text(shown.attributes),
        # Of one time they come back in any order.
        events=sorted(
            (
                event._replace(attributes=_with_lists_as_text(event.attributes))
                for event in shown.events
            ),
            key=lambda event: (
                event.time,
                event.name,
                json.dumps(event.attributes, sort_keys=True),
            ),
        ),
    )


def _with_lists_as_text(attributes: dict[str, Any]) -> dict[str, Any]:
    """Jaeger keeps lists in memory, and their JSON on disk."""
    return {
        name: json.dumps(value, separators=(",", ":")) if isinstance(value, list) else value
        for name, value in attributes.items()
    }
