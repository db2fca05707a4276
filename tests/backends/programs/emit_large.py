"""Emits groups whose attempts note a large text: LOG GROUPS LENGTH."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from opentelemetry import trace as tracing

from otel_rollout_trace import configure

logging.basicConfig(format="%(levelname)s %(message)s")

path, groups, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
trace = configure(path, close_timeout=20)
for group in range(groups):
    ids = {"group_id": f"g{group}", "attempt_id": "a"}
    trace.emit("group_reserved", group_id=f"g{group}")
    trace.emit("attempt_dispatched", **ids)
    trace.emit("note", **ids, text="x" * length, length=length)
    trace.emit("attempt_sealed", **ids, tokens=5)
    trace.emit("group_discarded", group_id=f"g{group}", reason="stale")
trace.close()
provider: Any = tracing.get_tracer_provider()
(exporter,) = provider.telemetry._exporters
print(json.dumps({"handed": exporter.handed, "sent": exporter.sent}))  # noqa: T201 - a program
