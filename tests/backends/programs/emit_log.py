"""Emits the events of a log anew, as training code would: ``emit_log.py LOG SOURCE``.

All settings come from the environment. Prints the run, and how long things took.
"""

import json
import logging
import sys
import time

import otel_rollout_trace

logging.basicConfig(format="%(name)s %(levelname)s %(message)s")

trace = otel_rollout_trace.configure(sys.argv[1])
started = time.monotonic()
with open(sys.argv[2]) as source:
    for line in source:
        event = json.loads(line)
        del event["run"]
        trace.emit(event.pop("event"), **event)
emitted = time.monotonic()
trace.close()
closed = time.monotonic()
print(  # noqa: T201 - a program
    json.dumps(
        {
            "run": trace.run,
            "dropped": trace.dropped,
            "emit_s": emitted - started,
            "close_s": closed - emitted,
        }
    )
)
