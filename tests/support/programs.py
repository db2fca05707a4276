"""Other processes: free ports for them, scripts in an environment of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

__all__ = ["Finished", "free_ports", "run_program", "running_program", "wait_for"]

_T = TypeVar("_T")

# The HTTP client of the OTLP exporters leaves its connections to the garbage collector.
_WARNINGS = "error,ignore::ResourceWarning"


class Finished(NamedTuple):
    """What a process left."""

    status: int
    output: str
    errors: str
    seconds: float


def free_ports(count: int) -> list[int]:
    """So many loopback ports that nobody listens on, and nobody did a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def run_program(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    *,
    timeout: float = 60,
) -> Finished:
    """Run this Python, with no ``OTEL_*`` variables but the given ones, and no input.

    Raises:
        subprocess.TimeoutExpired: if it takes longer; it is ended then.
    """
    started = time.monotonic()
    with running_program(arguments, environment) as process:
        output, errors = process.communicate(timeout=timeout)
    return Finished(process.returncode, output, errors, time.monotonic() - started)


@contextmanager
def running_program(
    arguments: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The same, while it runs. What has not ended at the end of the block is killed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**inherited, "PYTHONWARNINGS": _WARNINGS, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(look: Callable[[], _T | None], what: str, *, timeout: float = 15) -> _T:
    """Look until there is something, and return it.

    Raises:
        TimeoutError: if there is nothing in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise TimeoutError(f"no {what} within {timeout:g} s")
        time.sleep(0.02)
