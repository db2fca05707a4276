"""Replays a log and says what it took: ``million.py LOG``. Spans are forgotten as they come."""

import gc
import json
import sys
import time
from pathlib import Path

from otel_rollout_trace.replaying import replay_into


class Nowhere:
    def emit(self, record: object) -> None:
        pass

    def flush(self) -> None:
        pass


def size(key: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(key))


replay_into(sys.argv[2], Nowhere())
gc.collect()
before = size("VmRSS:")
started = time.perf_counter()
found = replay_into(sys.argv[1], Nowhere())
seconds = time.perf_counter() - started
print(  # noqa: T201 - the trial reads it
    json.dumps(
        {
            "events": found.events,
            "spans": found.spans,
            "attempts": found.attempts,
            "seconds": seconds,
            "grown": size("VmHWM:") - before,
        }
    )
)
