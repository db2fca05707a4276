"""What trials have in common: programs, spans by id, waiting."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias

import msgspec
from support.otlp_receiver import OtlpReceiver

from otel_rollout_trace.replaying import replay_into
from otel_rollout_trace.spans import SpanRecord

__all__ = [
    "FOLLOW",
    "PROGRAMS",
    "Driven",
    "Ids",
    "counted_lines",
    "events_in",
    "eventually",
    "follow_once",
    "ids_at",
    "ids_by_run",
    "ids_of_log",
    "one_span_each",
    "outcomes_at",
    "program",
    "run",
    "running",
    "side_cars",
    "spans_at",
]

PROGRAMS: Final = Path(__file__).parent / "programs"
FOLLOW: Final = ("-m", "otel_rollout_trace", "follow")

Ids: TypeAlias = Counter[tuple[str, str]]
"""Trace and span ids in hex, and how often each of them is there."""

# Programs fork with threads, and leave connections to the garbage collector.
_WARNINGS: Final = "error,ignore::ResourceWarning,ignore::DeprecationWarning"


def _environ(environment: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {
        **inherited,
        "PYTHONWARNINGS": _WARNINGS,
        "OTEL_METRICS_EXPORTER": "none",
        **(environment or {}),
    }


def program(name: str, *arguments: object) -> list[str]:
    """The arguments that run one of the programs here."""
    return [str(PROGRAMS / f"{name}.py"), *map(str, arguments)]


@contextmanager
def running(
    arguments: Iterable[object], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """This Python with arguments, killed at the end of the block if it is still there."""
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=_environ(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run(
    arguments: Iterable[object],
    environment: Mapping[str, str] | None = None,
    *,
    status: int = 0,
    timeout: float = 90,
) -> tuple[str, str]:
    """Run this Python to its end, which must be this one; what it wrote to its streams."""
    with running(arguments, environment) as process:
        out, err = process.communicate(timeout=timeout)
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{err}"
    return out, err


def follow_once(log: Path, endpoint: str, protocol: str, *more: str) -> dict[str, Any]:
    """Send what a log holds and was not sent; what the command says of it."""
    arguments = (*FOLLOW, log, "--once", "--no-metrics", "--json", *more)
    out, _ = run([*arguments, "--endpoint", endpoint, "--protocol", protocol])
    found: dict[str, Any] = json.loads(out)
    return found


class Driven:
    """The program ``driven.py``, told what to do a command at a time.

    Args:
        log: the log it writes.
        export: ``file``, ``process`` or ``sidecar``.
        endpoint, protocol: of a receiver.
        environment: more variables.
    """

    def __init__(
        self,
        log: Path,
        export: str = "file",
        endpoint: str = "http://127.0.0.1:9",
        protocol: str = "grpc",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._running = running(program("driven", log, export, endpoint, protocol), environment)

    def __enter__(self) -> Driven:  # noqa: PYI034 - typing.Self is newer than 3.10
        self._process = self._running.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.__exit__(exc_type, exc, traceback)

    def say(self, *command: object) -> None:
        """Give a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, command)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it answers to a command: how it stands then."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, err = self._process.communicate(timeout=30)
            raise AssertionError(f"it ended with {self._process.returncode}\n{err}")
        found: dict[str, Any] = json.loads(line)
        return found

    def do(self, *command: object) -> dict[str, Any]:
        """Give a command, and wait until it is done."""
        self.say(*command)
        return self.answer()

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def end(self) -> str:
        """Let it come to its end; what it said on stderr."""
        _, err = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, err
        return err


class _Ids:
    def __init__(self) -> None:
        self.found: Ids = Counter()

    def emit(self, record: SpanRecord) -> None:
        self.found[f"{record.trace_id:032x}", f"{record.span_id:016x}"] += 1

    def flush(self) -> None:
        pass


def ids_of_log(log: Path, run: str | None = None) -> Ids:
    """The spans of a replay of a log."""
    kept = _Ids()
    replay_into(log, kept, run=run)
    return kept.found


def spans_at(receiver: OtlpReceiver) -> Iterator[Any]:
    """The spans that a receiver took, as protobuf."""
    for request in list(receiver.requests["trace"]):
        for of_resource in request.resource_spans:
            for of_scope in of_resource.scope_spans:
                yield from of_scope.spans


def ids_at(receiver: OtlpReceiver) -> Ids:
    """The spans that a receiver took."""
    return Counter((span.trace_id.hex(), span.span_id.hex()) for span in spans_at(receiver))


def ids_by_run(receiver: OtlpReceiver) -> dict[str, Ids]:
    """The same, for each run."""
    found: defaultdict[str, Ids] = defaultdict(Counter)
    for span in spans_at(receiver):
        found[_attribute(span, "rl.run.id")][span.trace_id.hex(), span.span_id.hex()] += 1
    return found


def outcomes_at(receiver: OtlpReceiver) -> dict[str, dict[str, str]]:
    """How attempts ended, by run and attempt id."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for span in spans_at(receiver):
        if span.name == "rl.rollout.attempt":
            attempt = _attribute(span, "rl.attempt.id")
            found[_attribute(span, "rl.run.id")][attempt] = _attribute(span, "rl.outcome")
    return found


def _attribute(span: Any, name: str) -> str:
    return next((pair.value.string_value for pair in span.attributes if pair.key == name), "")


def one_span_each(receiver: OtlpReceiver) -> int:
    """How many spans came more than once. They must have been the same, byte for byte."""
    seen: dict[tuple[bytes, bytes], bytes] = {}
    again = 0
    for span in spans_at(receiver):
        key = span.trace_id, span.span_id
        text = span.SerializeToString(deterministic=True)
        again += key in seen
        assert seen.setdefault(key, text) == text, "two different spans under one id"
    return again


def events_in(*logs: Path) -> list[dict[str, Any]]:
    """The events of files, each line of which must be one."""
    decode = msgspec.json.decode
    return [
        decode(line)
        for log in logs
        if log.exists()
        for line in log.read_bytes().split(b"\n")
        if line
    ]


def counted_lines(*logs: Path) -> tuple[list[int], int]:
    """The numbers that ``driven.py`` emitted into files, and how many events gaps tell of."""
    events = events_in(*logs)
    numbers = [event["number"] for event in events if event["event"] == "x"]
    return numbers, sum(event["lost"] for event in events if event["event"] == "trace_gap")


def eventually(holds: Callable[[], object], what: str, *, timeout: float = 60) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(0.02)


def side_cars(folder: Path) -> list[int]:
    """Followers of logs in a directory."""
    listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True)
    pattern = (
        rf"^ *(\d+) .*otel_rollout_trace(?:\.following| follow) .*{re.escape(str(folder))}/.*$"
    )
    return [int(found) for found in re.findall(pattern, listed.stdout, re.M)]
