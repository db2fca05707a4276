"""Builds the programs that tests run, each from the Go module in a folder beside this file.

    python tests/backends/build.py           # every program
    python tests/backends/build.py jaeger    # one of them

A folder's ``go.mod`` names programs as its ``tool`` (or the folder holds the Go
source of one), and its ``go.sum`` fixes every version. Programs are kept outside
the checkout, under ``$XDG_CACHE_HOME`` (``~/.cache``), by the hash of what they are
made from: what is built already is not built again.
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
from typing import Final, NamedTuple

__all__ = ["PROGRAMS", "build", "program_of"]

_HERE: Final = Path(__file__).resolve().parent

# Static, so that a program runs in any container; without what only a debugger reads.
_OPTIONS: Final = ("-trimpath", "-ldflags=-s -w")
_VARIABLES: Final = {"CGO_ENABLED": "0"}


class _Recipe(NamedTuple):
    """How a program is built.

    Attributes:
        folder: the one with its Go module.
        package: the package in it, or among what it depends on.
        tags: build tags.
    """

    folder: str
    package: str
    tags: str = ""


PROGRAMS: Final = {
    "jaeger": _Recipe("jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger"),
    "otelcol": _Recipe("collector", "."),
    # Service discovery is most of Prometheus, in time and size; everything pushes here.
    "prometheus": _Recipe(
        "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "remove_all_sd"
    ),
    "promtool": _Recipe(
        "prometheus", "github.com/prometheus/prometheus/cmd/promtool", "remove_all_sd"
    ),
    "docker-compose": _Recipe("compose", "github.com/docker/compose/v2/cmd"),
}
"""Every program, by name."""


def program_of(name: str) -> Path:
    """Where a program is, or would be once built."""
    recipe = PROGRAMS[name]
    folder = _HERE / recipe.folder
    digest = hashlib.sha256((folder / "go.sum").read_bytes())
    for source in sorted(folder.glob("*.go")):
        digest.update(source.read_bytes())
    digest.update(repr((_OPTIONS, _VARIABLES, recipe.tags)).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = digest.hexdigest()[:16]
    return cache / "otel-rollout-trace" / f"{name}-{version}" / name


def build(name: str) -> Path:
    """Build a program, unless it is built already.

    Returns:
        The program.

    Raises:
        FileNotFoundError: if there is no Go.
        subprocess.CalledProcessError: if it does not build.
    """
    program = program_of(name)
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise FileNotFoundError("Go is needed to build programs, and there is no 'go' on PATH")
    recipe = PROGRAMS[name]
    program.parent.mkdir(parents=True, exist_ok=True)
    # Built beside where it goes, then moved: a build that is cut short leaves no program.
    with tempfile.TemporaryDirectory(dir=program.parent, prefix="build-") as unfinished:
        made = Path(unfinished) / name
        subprocess.run(
            [go, "build", *_OPTIONS, f"-tags={recipe.tags}", "-o", str(made), recipe.package],
            cwd=_HERE / recipe.folder,
            env={**os.environ, **_VARIABLES},
            check=True,
        )
        made.replace(program)
    return program


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the programs that tests run.")
    parser.add_argument("program", nargs="*", help=f"any of: {', '.join(PROGRAMS)}")
    chosen = parser.parse_args().program or list(PROGRAMS)
    for unknown in set(chosen).difference(PROGRAMS):
        parser.error(f"no program {unknown!r}; there is: {', '.join(PROGRAMS)}")
    for name in chosen:
        started = time.monotonic()
        try:
            program = build(name)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name}: {error}", file=sys.stderr)  # noqa: T201 - a command
            return 1
        print(f"{name}: {program} ({time.monotonic() - started:.0f} s)")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
