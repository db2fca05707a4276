"""Threads go on emitting while a trace is closed: ``closing_early.py FOLDER ROUNDS``.

Prints for each round how many events were emitted, how many are in the file, and `dropped`.
"""

import json
import sys
import threading
import time
from pathlib import Path

from otel_rollout_trace import RolloutTrace, read_events

rounds = []
for number in range(int(sys.argv[2])):
    log = Path(sys.argv[1]) / f"{number}.jsonl"
    trace = RolloutTrace(log)
    stop = threading.Event()
    counts = [0] * 4

    def emit(
        thread: int,
        trace: RolloutTrace = trace,
        stop: threading.Event = stop,
        counts: list[int] = counts,
    ) -> None:
        while not stop.is_set():
            trace.emit("x", number=counts[thread])
            counts[thread] += 1
            if counts[thread] % 50 == 0:
                time.sleep(0.0005)

    threads = [threading.Thread(target=emit, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    closing = threading.Thread(target=trace.close)
    closing.start()
    time.sleep(0.001 * (number % 6))
    stop.set()
    for thread in (*threads, closing):
        thread.join()
    written = sum(event["event"] == "x" for event in read_events(log))
    rounds.append((sum(counts), written, trace.dropped))
print(json.dumps(rounds))  # noqa: T201 - the trial reads it
