"""The command line, ``otel-rollout-trace``: arguments, progress and tables, no logic."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, or say what it lacks."""
    try:
        import rich  # noqa: F401 - asked for here, used by the commands
        import typer  # noqa: F401 - the same
    except ModuleNotFoundError as error:
        print(
            f"otel-rollout-trace: the command line needs {error.name!r}; "
            "install it with: pip install 'otel-rollout-trace[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    from .app import app

    app(prog_name="otel-rollout-trace")
