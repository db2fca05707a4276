"""Forks while its spans are sent: ``forking.py LOG ENDPOINT FORKS``.

Prints how long each child took to close.
"""

import json
import os
import sys
import threading
import time

os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "5"
os.environ["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"] = "16"

from otel_rollout_trace import configure

log, endpoint, forks = sys.argv[1:]
trace = configure(log, endpoint=endpoint, protocol="http/protobuf")
stop = threading.Event()


def record() -> None:
    number = 0
    while not stop.is_set():
        group = f"p{number}"
        number += 1
        trace.emit("attempt_dispatched", group_id=group, attempt_id="a")
        trace.emit("attempt_sealed", group_id=group, attempt_id="a")
        trace.emit("group_discarded", group_id=group)
        time.sleep(0.001)


thread = threading.Thread(target=record)
thread.start()
closes = []
for fork in range(int(forks)):
    time.sleep(0.01)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        for number in range(100):
            trace.emit("x", number=number)
        trace.emit("attempt_dispatched", group_id=f"c{fork}", attempt_id="a")
        trace.flush(10)
        started = time.monotonic()
        trace.close()
        os.write(writing, str(time.monotonic() - started).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    closes.append(float(os.read(reading, 32)))
    os.close(reading)
    os.close(writing)
stop.set()
thread.join()
trace.close()
print(json.dumps(closes))  # noqa: T201 - the trial reads it
