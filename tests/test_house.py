"""The rooms know only those above them, and what can do without the SDK does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "otel_rollout_trace"

# From the ground up: a room may import itself and those before it.
ROOMS = (
    "version",
    "events",
    "recent",
    "values",
    "journal",
    "batch_age",
    "lifecycle",
    "words",
    "cost",
    "comparing",
    "pricing",
    "spans",
    "metrics",
    "projection",
    "live",
    "closing",
    "worker",
    "recorder",
    "exporter",
    "resource",
    "receipts",
    "setup",
    "replaying",
    "history",
    "exporting",
    "report",
    "following",
    "check",
    "sample",
    "demo",
    "cli",
)

MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")
)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported_by(path: Path) -> set[str]:
    """Names of the rooms that a module imports, relatively or by the package's name."""
    depth = len(path.relative_to(PACKAGE).parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            module = node.module
            names = [module.split(".")[0]] if module else [alias.name for alias in node.names]
            found.update(names)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_those_above_it(path: Path) -> None:
    order = {room: number for number, room in enumerate(ROOMS)}
    own = room_of(path)
    for room in rooms_imported_by(path):
        assert order[room] <= order[own], f"{own} imports {room}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_one_room(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 420


def imported_after(statement: str) -> set[str]:
    """The modules that are loaded in a fresh interpreter after a statement."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "from otel_rollout_trace import RolloutTrace; RolloutTrace(None).emit('x')",
        "from otel_rollout_trace import batch_age_by_step, read_events",
        "import otel_rollout_trace.lifecycle, otel_rollout_trace.check",
    ],
)
def test_opentelemetry_is_not_imported_by_what_can_do_without(statement: str) -> None:
    assert not {name for name in imported_after(statement) if name.startswith("opentelemetry")}


def test_nothing_imports_the_command_line() -> None:
    assert not [
        path for path in MODULES if room_of(path) != "cli" and "cli" in rooms_imported_by(path)
    ]
