"""Reads a log in every way: ``reading_long.py LOG``; prints by how much it grew, and events."""

import sys
from pathlib import Path

import every_way  # type: ignore[import-not-found] # beside this program

from otel_rollout_trace import read_events


def size(key: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(key))


before = size("VmRSS:")
assert every_way.read_in_every_way(Path(sys.argv[1]))
print(size("VmHWM:") - before, sum(1 for _ in read_events(sys.argv[1])))  # noqa: T201 - the trial reads it
