"""Records, and ends in one way or another: ``ending.py LOG ENDPOINT file|process|sidecar WAY``.

A process of another way to end records nothing but its own opening: it finds the log.
"""

import os
import signal
import sys
import threading
import time

from otel_rollout_trace import RolloutTrace, configure

log, endpoint, export, way = sys.argv[1:]
if export == "file":
    trace = RolloutTrace(log)
else:
    trace = configure(log, export=export, endpoint=endpoint, protocol="grpc")  # type: ignore[arg-type] # one of the two


def record(thread: int) -> None:
    for number in range(300):
        group = f"{thread}-{number}"
        trace.emit("group_reserved", group_id=group, number=number)
        trace.emit("attempt_dispatched", group_id=group, attempt_id=group)
        if number % 4:
            trace.emit("attempt_sealed", group_id=group, attempt_id=group, tokens=10)
            trace.emit("group_discarded", group_id=group, reason="filtered")


if way == "nothing":
    trace.close()
    sys.exit()
threads = [threading.Thread(target=record, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()
if way == "return while threads record":
    threads = []
for thread in threads:
    thread.join()
if way == "exception":
    raise RuntimeError("a bug")
if way == "sys.exit":
    sys.exit(4)
if way in ("os._exit", "SIGTERM", "SIGKILL"):
    trace.flush()
    time.sleep(1.2)  # some is sent
    if way == "os._exit":
        os._exit(5)
    os.kill(os.getpid(), getattr(signal, way))
if way == "close":
    trace.close()
    print("closed", flush=True)  # noqa: T201 - the trial reads it
    time.sleep(0.1)
