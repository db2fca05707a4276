"""Builds the backends that tests run against, each from the Go module in its folder.

    python tests/backends/build.py           # every backend
    python tests/backends/build.py jaeger    # one of them

A folder's ``go.mod`` names the program as a ``tool`` (or the folder holds the Go
source of one), and its ``go.sum`` fixes every version. Programs are kept outside
the checkout, under ``$XDG_CACHE_HOME`` (``~/.cache``), by the hash of both: what
is built already is not built again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

__all__ = ["BACKENDS", "build", "program_of"]

_HERE: Final = Path(__file__).resolve().parent

BACKENDS: Final = sorted(go_mod.parent.name for go_mod in _HERE.glob("*/go.mod"))
"""Folders with a Go module, which are the names of the backends."""


def program_of(backend: str) -> Path:
    """Where a backend's program is, or would be once built."""
    folder = _HERE / backend
    digest = hashlib.sha256((folder / "go.sum").read_bytes())
    for source in sorted(folder.glob("*.go")):
        digest.update(source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = digest.hexdigest()[:16]
    return cache / "otel-rollout-trace" / f"{backend}-{version}" / backend


def build(backend: str) -> Path:
    """Build a backend, unless it is built already.

    Returns:
        The program.

    Raises:
        FileNotFoundError: if there is no Go.
        subprocess.CalledProcessError: if it does not build.
    """
    program = program_of(backend)
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError("Go is needed to build backends, and there is no 'go' on PATH")
    folder = _HERE / backend
    package = "." if list(folder.glob("*.go")) else "tool"
    program.parent.mkdir(parents=True, exist_ok=True)
    # Built beside where it goes, then moved: a build that is cut short leaves no program.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="build-") as unfinished:
        made = Path(unfinished) / backend
        subprocess.run(
            [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), package],
            cwd=folder,
            check=True,
        )
        made.replace(program)
    return program


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the backends that tests run against.")
    parser.add_argument("backend", nargs="*", help=f"any of: {', '.join(BACKENDS)}")
    chosen = parser.parse_args().backend or BACKENDS
    for unknown in set(chosen).difference(BACKENDS):
        parser.error(f"no backend {unknown!r}; there is: {', '.join(BACKENDS)}")
    for backend in chosen:
        started = time.monotonic()
        try:
            program = build(backend)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{backend}: {error}", file=sys.stderr)  # noqa: T201 - a command
            return 1
        print(f"{backend}: {program} ({time.monotonic() - started:.0f} s)")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
