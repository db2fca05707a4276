"""Run as a program (``-m``): an asyncio loop that records events while it has other things to do.

What recording costs it: the CPU of the loop's thread and of the process for each event,
and by how much the loop is late, as a task that wants to run every millisecond sees it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from .sides import Idle, Reference, as_attributes
from .workload import Written, calls, written

_TICK_S: Final = 0.001


class _Recorder(Protocol):
    def emit(self, event: str, /, **fields: Any) -> None: ...

    def close(self) -> None: ...


def _configured(export: str) -> Callable[[Path], _Recorder]:
    def make(path: Path) -> _Recorder:
        from otel_rollout_trace import configure

        return configure(path, export=export)  # type: ignore[arg-type] # one of two words

    return make


def _file_only(path: Path) -> _Recorder:
    from otel_rollout_trace import RolloutTrace

    return RolloutTrace(path, project=False)


class _SdkSpans:
    """A span with one event for each event, batched and sent as OTLP."""

    def __init__(self, path: Path) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=1_000_000)
        )
        self._tracer = self._provider.get_tracer("benchmark")

    def emit(self, event: str, /, **fields: Any) -> None:
        span = self._tracer.start_span("rl.event", attributes=fields)
        span.add_event(event)
        span.end()

    def close(self) -> None:
        self._provider.shutdown()


MODES: Final[Mapping[str, Callable[[Path], _Recorder]]] = {
    "off": lambda _: Idle(),
    "file": _file_only,
    "sidecar": _configured("sidecar"),
    "process": _configured("process"),
    "reference": Reference,
    "sdk": _SdkSpans,
}


async def _record(emit: Callable[..., None], batch: list[Written], rate: int) -> None:
    """Events at an even rate, as many at a time as a millisecond has."""
    clock, started, done = time.perf_counter, time.perf_counter(), 0
    while done < len(batch):
        due = min(len(batch), int((clock() - started) * rate) + 1)
        for line, values in batch[done:due]:
            line(emit, *values)
        done = max(done, due)
        await asyncio.sleep(max(_TICK_S, 1 / rate))


async def _watch(late: list[float]) -> None:
    clock = time.perf_counter
    while True:
        due = clock() + _TICK_S
        await asyncio.sleep(_TICK_S)
        late.append(clock() - due)


async def _train(recorder: _Recorder, batch: list[Written], rate: int) -> dict[str, float]:
    late: list[float] = []
    watcher = asyncio.ensure_future(_watch(late))
    process, thread = time.process_time(), time.thread_time()
    await _record(recorder.emit, batch, rate)
    thread = time.thread_time() - thread
    process = time.process_time() - process
    watcher.cancel()
    late.sort()
    return {
        "caller": thread / len(batch) * 1e6,
        "process": process / len(batch) * 1e6,
        "p50": late[len(late) // 2] * 1e3,
        "p99": late[len(late) * 99 // 100] * 1e3,
        "max": late[-1] * 1e3,
    }


def main(mode: str, rate: int, seconds: float, directory: Path) -> dict[str, float]:
    """Record for so long, after a start that is not measured."""
    batch = calls(max(200, int(rate * seconds)))
    lines = written(map(as_attributes, batch) if mode == "sdk" else batch)
    recorder = MODES[mode](directory / f"{mode}.jsonl")
    recorder.emit("warm_up")
    time.sleep(0.5)  # threads, and a side-car, have started
    gc.collect()
    gc.freeze()
    measured = asyncio.run(_train(recorder, lines, rate))
    recorder.close()
    return measured


if __name__ == "__main__":
    os.environ.setdefault("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    result = main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
    print(json.dumps(result))  # noqa: T201 - the parent reads it
