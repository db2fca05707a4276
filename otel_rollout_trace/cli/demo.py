"""The ``demo`` command."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer

__all__ = ["demo"]


def demo(
    log: Annotated[
        Path,
        typer.Option(
            metavar="PATH",
            envvar="OTEL_ROLLOUT_TRACE_PATH",
            help="The log, or its directory. Checkpoints go beside it; a log of the demo "
            "that is there is appended to.",
        ),
    ] = Path("rollout_trace.jsonl"),
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="How many steps to train; 30 by default.")
    ] = None,
    forever: Annotated[
        bool,
        typer.Option(
            "--forever",
            help="Train without end, going on from the last checkpoint if there is one.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The same seed gives the same rewards and outcomes.")
    ] = 0,
    speed: Annotated[
        float, typer.Option(metavar="X", help="So many times as fast; 30 steps take about 30 s.")
    ] = 1.0,
    checkpoint_every: Annotated[
        int, typer.Option(metavar="N", help="Steps between checkpoints.")
    ] = 5,
    kill_at_step: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Kill the training with SIGKILL during this step, and start it again from "
            "its last checkpoint.",
        ),
    ] = None,
    links: Annotated[
        list[str] | None,
        typer.Option(
            "--open",
            metavar="NAME=URL[@POLLED]",
            envvar="OTEL_ROLLOUT_TRACE_DEMO_OPEN",
            help="Print this address once it answers (or once POLLED does).",
        ),
    ] = None,
) -> None:
    """Train a small policy with asynchronous GRPO, and trace it.

    Writes a log, and sends spans and metrics where OTEL_EXPORTER_OTLP_ENDPOINT says.
    """
    try:
        import numpy  # noqa: F401 - asked for here, used by the training
    except ModuleNotFoundError:
        _fail(
            "the demo needs 'numpy'; install it with: pip install 'otel-rollout-trace[demo]'",
        )
    from ..demo.links import Link
    from ..demo.main import claimed, run_demo
    from ..demo.run import DEFAULT_STEPS, Settings

    try:
        if forever and steps is not None:
            raise ValueError("--steps or --forever, not both")
        settings = Settings(
            log=log,
            steps=None if forever else DEFAULT_STEPS if steps is None else steps,
            seed=seed,
            speed=speed,
            checkpoint_every=checkpoint_every,
            kill_at_step=kill_at_step,
            resume=forever,
            links=tuple(Link.parse(text) for text in links or ()),
        )
        settings = replace(settings, log=claimed(log))
    except (ValueError, OSError) as error:
        _fail(str(error))
    status = run_demo(settings)
    if status:
        raise typer.Exit(status)


def _fail(message: str) -> NoReturn:
    print(f"otel-rollout-trace: {message}", file=sys.stderr)
    raise typer.Exit(2)
