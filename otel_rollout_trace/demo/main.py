"""The demo: a run or two, and a summary of what the log says.

With a step to be killed at, the training is a child process. It kills itself with
SIGKILL in the middle of that step, as a preempted machine or the kernel's
out-of-memory killer would, and is started again from its last checkpoint, into the
same log.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final

from otel_rollout_trace import ROLLOUT_TRACE_FILENAME

from . import checkpoint
from .display import print_summary, say, say_killed
from .run import Settings, train

__all__ = ["claimed", "run_demo"]

_DOWN_SECONDS: Final = 1.0


def claimed(log: Path) -> Path:
    """Make sure that a log is there for the demo to write to.

    Args:
        log: the log, or its directory.

    Returns:
        The log's file.

    Raises:
        ValueError: if the log is there and is not the demo's.
        OSError: if it, or the directory of its checkpoints, cannot be made.
    """
    if log.is_dir():
        log /= ROLLOUT_TRACE_FILENAME
    directory = checkpoint.directory_of(log)
    if log.exists() and log.stat().st_size:
        if not directory.is_dir():
            raise ValueError(f"{log} is there and is not the demo's: name another with --log")
        say(f"{log} is there: this run is appended to it")
    directory.mkdir(parents=True, exist_ok=True)
    return log


def run_demo(settings: Settings) -> int:
    """Run the demo to its end.

    Returns:
        The exit status: 0, or 128 and a signal's number where one ended it.
    """
    started = time.time()
    status = train(settings) if settings.kill_at_step is None else _supervise(settings)
    if settings.steps is not None:  # the log of a run without end takes too long to read
        print_summary(settings.log, since=started)
    return status


def _supervise(settings: Settings) -> int:
    """Start the training, and once more from its checkpoint when it was killed."""
    processes = multiprocessing.get_context("spawn")
    child = processes.Process(target=_train_and_exit, args=(settings,))
    ended_by: list[int] = []

    def pass_on(signum: int, _frame: FrameType | None) -> None:
        ended_by.append(signum)
        if child.pid is not None and child.is_alive():
            os.kill(child.pid, signum)

    before = {each: signal.signal(each, pass_on) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        child.start()
        child.join()
        if child.exitcode == -signal.SIGKILL and not ended_by:
            path = checkpoint.latest(checkpoint.directory_of(settings.log))
            place = path.stem.replace("_", " ") if path else "nothing: there is no checkpoint yet"
            say_killed(f"killed during step {settings.kill_at_step}; going on from {place}")
            time.sleep(_DOWN_SECONDS / settings.speed)
            again = replace(settings, kill_at_step=None, resume=True)
            if not ended_by:
                child = processes.Process(target=_train_and_exit, args=(again,))
                child.start()
                child.join()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    status = child.exitcode or 0
    if ended_by:
        return 128 + ended_by[0]
    return status if status >= 0 else 128 - status


def _train_and_exit(settings: Settings) -> None:
    raise SystemExit(train(settings))
