"""Emits from threads and says what was emitted when, until it is killed.

``acknowledging.py LOG TIMES file|process|sidecar ENDPOINT THREADS SLOTS BURST RESUME``

Times go into a file of doubles, mapped into memory so that a kill loses none: first
`SLOTS` moments at which a thread of this process could run, then `SLOTS` for each thread,
when its event of that number had been emitted.
"""

import mmap
import random
import struct
import sys
import threading
import time
from typing import Any

from otel_rollout_trace import RolloutTrace, configure

log, times, export, endpoint, *numbers = sys.argv[1:]
threads, slots, burst, resume = map(int, numbers)
with open(times, "r+b") as file:
    stamps = mmap.mmap(file.fileno(), 0)

if export == "file":
    trace = RolloutTrace(log)
else:
    trace = configure(log, export=export, endpoint=endpoint, protocol="grpc")  # type: ignore[arg-type] # one of the two


def stamp(row: int, slot: int) -> None:
    struct.pack_into("d", stamps, 8 * (row * slots + slot), time.monotonic())


def tick() -> None:
    for slot in range(slots):
        stamp(0, slot)
        time.sleep(0.005)


def emit(thread: int) -> None:
    pauses = random.Random(thread)
    for number in range(slots):
        # Every third attempt stays out.
        event = "attempt_sealed" if number % 2 and number % 3 else "attempt_dispatched"
        fields: dict[str, Any] = {"number": number, "thread": thread}
        attempt = number // 2 if number % 3 else number
        trace.emit(event, group_id=f"g{thread}", attempt_id=f"{thread}-{attempt}", **fields)
        stamp(1 + thread, number)
        time.sleep(pauses.uniform(0.001, 0.003))


for number in range(burst):
    ids = {"group_id": f"b{number // 8}", "attempt_id": f"b{number // 2}"}
    trace.emit("attempt_sealed" if number % 2 else "attempt_dispatched", **ids)
if resume:
    trace.emit("attempt_resumed", group_id="n", attempt_id="n", resumed_from="a5")
threading.Thread(target=tick, daemon=True).start()
for thread in range(threads):
    threading.Thread(target=emit, args=(thread,), daemon=True).start()
time.sleep(120)
