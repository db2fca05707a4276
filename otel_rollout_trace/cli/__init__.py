"""The command line, ``otel-rollout-trace``: arguments, progress and tables, no logic."""

from __future__ import annotations

import os
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

    try:
        try:
            app(prog_name="otel-rollout-trace")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if sys.stdout is not None:  # or Python tries once more at its end, and says so
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(1) from None
        name = error.filename or "standard output"
        print(f"otel-rollout-trace: {name}: {error.strerror or error}", file=sys.stderr)
        raise SystemExit(2) from None
