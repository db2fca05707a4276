"""Runs the work of ``child.py`` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["run_child"]

_CHILD: Final = Path(__file__).with_name("child.py")


def run_child(work: str, argument: object) -> dict[str, Any]:
    """What a process of its own measured, and as ``wall`` the seconds from its start to its end."""
    command = [sys.executable, str(_CHILD), work, str(argument)]
    started = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True, env=_environment()).stdout
    found: dict[str, Any] = json.loads(output)
    return {**found, "wall": time.perf_counter() - started}


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _environment() -> dict[str, str]:
    """Variables with which modules are compiled once, as those that are installed have been."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": _compiled().name}
