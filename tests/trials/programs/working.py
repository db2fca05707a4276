"""Records from workers of every kind: ``working.py LOG ENDPOINT file|process|sidecar WAY``.

Prints how many events each of its processes emitted, by tag.
"""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from otel_rollout_trace import RolloutTrace, configure

WORKERS = 3
GROUPS = 150


def opened(log: str, endpoint: str, export: str) -> RolloutTrace:
    if export == "file":
        return RolloutTrace(log)
    return configure(log, export=export, endpoint=endpoint, protocol="grpc")  # type: ignore[arg-type] # one of the two


def record(trace: RolloutTrace, tag: str) -> None:
    for number in range(GROUPS):
        group = f"{tag}-{number}"
        trace.emit("group_reserved", group_id=group, tag=tag)
        trace.emit("attempt_dispatched", group_id=group, attempt_id=group, tag=tag)
        trace.emit("attempt_sealed", group_id=group, attempt_id=group, tag=tag)
        trace.emit("group_discarded", group_id=group, reason="filtered", tag=tag)
        if not number % 10:
            time.sleep(0.001)


async def record_in_task(trace: RolloutTrace, tag: str) -> None:
    for number in range(GROUPS):
        group = f"{tag}-{number}"
        trace.emit("group_reserved", group_id=group, tag=tag)
        await asyncio.sleep(0)
        trace.emit("attempt_dispatched", group_id=group, attempt_id=group, tag=tag)
        await asyncio.sleep(0)
        trace.emit("attempt_sealed", group_id=group, attempt_id=group, tag=tag)
        trace.emit("group_discarded", group_id=group, reason="filtered", tag=tag)


def work(disabled: RolloutTrace, tag: str, *settings: str) -> None:
    """In a process of `multiprocessing`: one trace came disabled, another is opened here."""
    assert not disabled.enabled
    record(disabled, "nobody")
    with opened(*settings) as trace:
        record(trace, tag)


def inherit(trace: RolloutTrace, tag: str) -> None:
    """In a forked child: the parent's trace is the child's own by now; it is not closed."""
    record(trace, tag)


async def in_tasks(trace: RolloutTrace, tags: list[str]) -> None:
    await asyncio.gather(*(record_in_task(trace, tag) for tag in tags))


def main(log: str, endpoint: str, export: str, way: str) -> None:
    settings = (log, endpoint, export)
    if way.startswith("child "):
        with opened(*settings) as own:
            record(own, way.removeprefix("child "))
        return
    tags = [f"worker {number}" for number in range(WORKERS)]
    trace = opened(*settings)
    record(trace, "before")
    workers: list[Any] = []
    if way == "fork":
        for tag in tags:
            child = os.fork()
            if not child:
                record(trace, tag)
                trace.close()
                os._exit(0)
            workers.append(child)
        record(trace, "meanwhile")
        for child in workers:
            assert os.waitpid(child, 0)[1] == 0
    elif way == "fork and exec":
        command = [sys.executable, __file__, *settings]
        workers = [subprocess.Popen([*command, f"child {tag}"]) for tag in tags]
        record(trace, "meanwhile")
        for process in workers:
            assert process.wait() == 0
    elif way in ("multiprocessing spawn", "multiprocessing fork"):
        context = multiprocessing.get_context(way.split()[1])
        for tag in tags:
            target: Any = inherit if way.endswith("fork") else work
            args = (trace, tag) if way.endswith("fork") else (RolloutTrace(None), tag, *settings)
            workers.append(context.Process(target=target, args=args))  # type: ignore[attr-defined] # either has it
            workers[-1].start()
        record(trace, "meanwhile")
        for process in workers:
            process.join()
            assert process.exitcode == 0
    elif way == "threads":
        workers = [threading.Thread(target=record, args=(trace, tag)) for tag in tags]
        for thread in workers:
            thread.start()
        record(trace, "meanwhile")
        for thread in workers:
            thread.join()
    elif way == "asyncio":
        asyncio.run(in_tasks(trace, [*tags, "meanwhile"]))
    record(trace, "after")
    trace.close()
    names = ["before", "meanwhile", "after", *tags]
    print(json.dumps(dict.fromkeys(names, 4 * GROUPS)))  # noqa: T201 - the trial reads it


if __name__ == "__main__":
    assert Path(sys.argv[1]).is_absolute()
    main(*sys.argv[1:])
