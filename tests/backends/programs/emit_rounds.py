"""Emits groups of attempts for a while, through `configure`: ``emit_rounds.py LOG ROUNDS PAUSE_S``.

All settings come from the environment. Prints how much it emitted, how long
things took, and when it came to its end.
"""

import json
import logging
import sys
import time

import otel_rollout_trace

GROUPS = 50
ATTEMPTS = 4

logging.basicConfig(format="%(name)s %(levelname)s %(message)s")

trace = otel_rollout_trace.configure(sys.argv[1])
emit_s = 0.0
emitted = spans = 0
for number in range(int(sys.argv[2])):
    if number:
        time.sleep(float(sys.argv[3]))
    started = time.monotonic()
    for index in range(GROUPS):
        group = f"g{number}-{index}"
        trace.emit("group_reserved", group_id=group, prompt_id=index)
        for attempt in range(ATTEMPTS):
            ids = {"group_id": group, "attempt_id": f"{group}-a{attempt}"}
            trace.emit("attempt_dispatched", **ids, generation_index=attempt)
            trace.emit("attempt_sealed", **ids, tokens=100)
        trace.emit("group_discarded", group_id=group, reason="filtered")
        emitted += 2 + 2 * ATTEMPTS
        spans += 1 + ATTEMPTS
    emit_s += time.monotonic() - started
started = time.monotonic()
trace.close()
closed = time.monotonic()
print(  # noqa: T201 - a program
    json.dumps(
        {
            "run": trace.run,
            "dropped": trace.dropped,
            "emitted": emitted,
            "group_and_attempt_spans": spans,
            "emit_s": emit_s,
            "close_s": closed - started,
            "ended_at": time.time(),
        }
    )
)
