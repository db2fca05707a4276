"""Programs of their own, for what would end, fork or bend the test's process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from os import environ
from pathlib import Path

__all__ = ["run_python", "start_python"]


def start_python(
    code: str, *arguments: object, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a Python program, with warnings as errors; its arguments are in ``sys.argv[1:]``."""
    clean = {name: value for name, value in environ.items() if not name.startswith("OTEL_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=clean | dict(env or {}),
    )


def run_python(
    code: str,
    *arguments: object,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    status: int = 0,
    timeout: float = 60,
) -> tuple[str, str]:
    """Run a Python program to its end; what it wrote to stdout and stderr.

    It must end with the status, within the time.
    """
    process = start_python(code, *arguments, cwd=cwd, env=env)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running after {timeout} s\n{out}\n{err}") from None
    assert process.returncode == status, f"ended with {process.returncode}\n{out}\n{err}"
    return out, err
