"""The command line, run as its user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["Command", "check_golden"]

GOLDEN = Path(__file__).parent.parent / "golden"


class Command:
    """How a command ended, and what it wrote: 80 columns, no terminal, warnings are errors."""

    def __init__(
        self, *arguments: object, cwd: Path | None = None, stdin: bytes = b"", **env: str
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-m", "otel_rollout_trace", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=clean | {"COLUMNS": "80", "TERM": "dumb", "PYTHONUTF8": "1"} | env,
            timeout=90,
            check=False,
        )
        self.status = ended.returncode
        self.out = ended.stdout.decode()
        self.err = ended.stderr.decode()

    def refused(self) -> str:
        """The one line that says why; nothing else may have been written."""
        assert self.status == 2, self.err
        assert self.out == ""
        [line] = self.err.splitlines()
        assert line.startswith("otel-rollout-trace: ")
        return line


def check_golden(name: str, shown: str) -> None:
    """A file to be looked at; written anew where it is missing.

    Trailing blanks of table cells are no part of what one sees.
    """
    shown = "".join(line.rstrip() + "\n" for line in shown.splitlines())
    golden = GOLDEN / name
    if not golden.exists():
        golden.write_text(shown)
        pytest.fail(f"{golden} was written; look at it")
    assert shown == golden.read_text()
