"""Records from Ray's actors: ``acting.py FOLDER ENDPOINT``. Prints what each did, as JSON."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from otel_rollout_trace import RolloutTrace, configure

ray: Any = importlib.import_module("ray")  # no types where it is not installed

folder, endpoint = sys.argv[1:]
GROUPS = 100
NOTHING = RolloutTrace(None)


def opened(log: str, export: str) -> RolloutTrace:
    if export == "file":
        return RolloutTrace(log)
    return configure(log, export=export, endpoint=endpoint, protocol="grpc")  # type: ignore[arg-type] # one of the two


class Actor:
    """Records; what it is given to record with defaults to nothing."""

    def __init__(self, trace: RolloutTrace = NOTHING, log: str = "", export: str = "") -> None:
        self.trace = trace
        if export:
            self.trace = opened(log, export)

    def record(self, tag: str) -> tuple[bool, str]:
        """Groups, the last attempt of which stays out."""
        for number in range(GROUPS):
            group = f"{tag}-{number}"
            self.trace.emit("group_reserved", group_id=group, tag=tag)
            self.trace.emit("attempt_dispatched", group_id=group, attempt_id=group, tag=tag)
            if number < GROUPS - 1:
                self.trace.emit("attempt_sealed", group_id=group, attempt_id=group, tag=tag)
        return self.trace.enabled, self.trace.run

    def flush(self) -> bool:
        """Wait until it is written."""
        return self.trace.flush(30)

    def close(self) -> int:
        """Close the trace; how many events were lost."""
        self.trace.close()
        return self.trace.dropped


ray.init(
    num_cpus=2,
    include_dashboard=False,
    log_to_driver=False,
    configure_logging=False,
    runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parents[3])}},
)
try:
    remote = ray.remote(num_cpus=0)(Actor)
    idle = remote.remote(RolloutTrace(None))
    default = remote.remote()
    found: dict[str, Any] = {
        "disabled": [ray.get(actor.record.remote("nobody"))[0] for actor in (idle, default)]
    }
    for export in ("file", "process", "sidecar"):
        log = str(Path(folder) / f"{export}.jsonl")
        # The driver's own trace of the same log, as a controller has it.
        with opened(log, export) as trace:
            trace.emit("group_reserved", group_id="driver", tag="driver")
            closes, killed = (remote.remote(log=log, export=export) for _ in range(2))
            runs = ray.get([closes.record.remote("closes"), killed.record.remote("killed")])
            flushed = ray.get(killed.flush.remote())
            dropped = ray.get(closes.close.remote())
            ray.kill(killed)
            ray.kill(closes)
        found[export] = {"runs": runs, "flushed": flushed, "dropped": dropped}
finally:
    ray.shutdown()
print(json.dumps(found))  # noqa: T201 - the trial reads it
