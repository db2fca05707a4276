"""Emits as it is told: ``driven.py LOG file|process|sidecar ENDPOINT PROTOCOL``.

Commands come on standard input, one a line; each is answered with how things stand, as JSON.
"""

import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from otel_rollout_trace import RolloutTrace, configure

log, export, endpoint, protocol = sys.argv[1:5]


class State:
    """How things stand."""

    trace = RolloutTrace(None)
    number = groups = 0
    worst = closed = 0.0
    flushed = True


state = State()


def emit(event: str, **fields: Any) -> None:
    started = time.perf_counter()
    state.trace.emit(event, **fields)
    state.worst = max(state.worst, time.perf_counter() - started)


def emit_numbers(many: int, padding: int, pause: float) -> None:
    pad = "y" * padding
    for _ in range(many):
        emit("x", number=state.number, pad=pad)
        state.number += 1
        if pause:
            time.sleep(pause)


def emit_groups(many: int, padding: int) -> None:
    pad = {"pad": "z" * padding} if padding else {}
    for _ in range(many):
        group = f"g{state.groups}"
        state.groups += 1
        emit("group_reserved", group_id=group, prompt_id=state.groups)
        for attempt in range(4):
            ids = {"group_id": group, "attempt_id": f"{group}-{attempt}"}
            emit("attempt_dispatched", **ids, generation_index=attempt)
            emit("attempt_sealed", **ids, tokens=100, **pad)
        emit("group_discarded", group_id=group, reason="filtered")


for line in sys.stdin:
    command, *arguments = line.split()
    if command == "open":
        if export == "file":
            state.trace = RolloutTrace(log, close_timeout=3)
        else:
            state.trace = configure(log, export=export, endpoint=endpoint, protocol=protocol)  # type: ignore[arg-type] # one of the two
    elif command == "emit":
        padding, pause = (*arguments[1:], 0, 0)[:2]
        emit_numbers(int(arguments[0]), int(padding), float(pause))
    elif command == "groups":
        emit_groups(int(arguments[0]), int((*arguments[1:], 0)[0]))
    elif command == "flush":
        state.flushed = state.trace.flush(float(arguments[0]))
    elif command == "limit":
        size = int(arguments[0]) if arguments else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    elif command == "user":
        os.setgid(int(arguments[0]))
        os.setuid(int(arguments[0]))
    elif command == "close":
        started = time.monotonic()
        state.trace.close()
        state.closed = time.monotonic() - started
    found = {
        "run": state.trace.run,
        "emitted": 1 + state.number + 10 * state.groups,
        "numbers": state.number,
        "dropped": state.trace.dropped,
        "flushed": state.flushed,
        "worst_ms": state.worst * 1000,
        "close_s": state.closed,
        "rss": 0,
    }
    with contextlib.suppress(OSError):
        found["rss"] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    print(json.dumps(found), flush=True)  # noqa: T201 - the answer
