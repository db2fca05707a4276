"""Ways to record an event, which the benchmarks compare."""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from otel_rollout_trace import RolloutTrace
from otel_rollout_trace.setup.providers import RolloutTracerProvider

from .workload import Call

__all__ = ["SIDES", "Idle", "Side", "as_attributes"]


class Side(Protocol):
    """Records events until it is closed."""

    def emit(self, event: str, /, **fields: Any) -> None: ...

    def close(self) -> None: ...


class Idle:
    """Records nothing: what the measuring itself costs."""

    def emit(self, event: str, /, **fields: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Reference:
    """A JSON line through a queue to a thread, as NeMo RL's single controller does it."""

    def __init__(self, path: Path) -> None:
        self._run = uuid.uuid4().hex
        self._file = path.open("a", encoding="utf-8")
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def emit(self, event: str, /, **fields: Any) -> None:
        record = {"t": time.time(), "run": self._run, "event": event, **fields}
        self._lines.put(json.dumps(record, default=str))

    def close(self) -> None:
        self._lines.put(None)
        self._thread.join()
        self._file.close()

    def _write(self) -> None:
        line = self._lines.get()
        while line is not None:
            batch = []
            while line is not None:
                batch.append(line + "\n")
                try:
                    line = self._lines.get_nowait()
                except queue.Empty:
                    break
            self._file.write("".join(batch))
            self._file.flush()
            if line is not None:
                line = self._lines.get()


class SdkSpan:
    """A span of the SDK with one event, for each event."""

    def __init__(self) -> None:
        provider = TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False)
        provider.add_span_processor(SpanProcessor())
        self._tracer = provider.get_tracer("benchmark")

    def emit(self, event: str, /, **fields: Any) -> None:
        span = self._tracer.start_span("rl.event", context=Context(), attributes=fields)
        span.add_event(event)
        span.end()

    def close(self) -> None:
        pass


def as_attributes(call: Call) -> Call:
    """A call whose fields are values that spans hold, so that making them costs nothing."""
    event, fields = call
    return event, {
        name: json.dumps(value) if isinstance(value, (dict, list)) else value
        for name, value in fields.items()
    }


def _spans_in_process(path: Path) -> Side:
    """Spans through the provider of `configure`, and a processor that throws them away."""
    provider = RolloutTracerProvider(Resource.get_empty())
    provider.add_span_processor(SpanProcessor())
    return RolloutTrace(path, tracer_provider=provider, close_timeout=60)


def _spans_by_tracer(path: Path) -> Side:
    """Spans through the tracers of any provider."""
    provider = TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    return RolloutTrace(path, tracer_provider=provider, close_timeout=60)


#: By name; each is opened with the path of a new file.
SIDES: Final[Mapping[str, Callable[[Path], Side]]] = {
    "idle": lambda _: Idle(),
    "reference": Reference,
    "file": RolloutTrace,
    "spans": _spans_in_process,
    "tracer": _spans_by_tracer,
    "span": lambda _: SdkSpan(),
}
