"""``export``: which files, its progress, and what it says at the end."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..events import Vocabulary
from ..exporting import Exported, default_output, export_logs
from ..journal import LogReader
from .replaying import _whole_id
from .tables import many, reading

__all__ = ["ExportOptions", "export_files"]

_STANDARD_OUTPUT = "-"


@dataclass
class ExportOptions:
    """What ``export`` was asked for.

    Attributes:
        format: the format's name.
        output: a path, ``-`` for the standard output, None for a name after the log's.
        force: whether what is there already is replaced.
        metrics: whether metrics are written too.
        run: the beginning of a run's id; None for every run.
        as_json: whether what it ends with is JSON.
        vocabulary: which words mean which row.
    """

    format: str
    output: str | None
    force: bool
    metrics: bool
    run: str | None
    as_json: bool
    vocabulary: Vocabulary


def export_files(paths: list[Path], options: ExportOptions) -> None:
    """Export the files into one output, and say what is in it.

    Raises:
        LogError: for the first file that is no log; nothing is written then.
        ValueError: for options that cannot be used.
        OSError: if the output cannot be written.
    """
    for path in paths:
        next(iter(LogReader(path, required=True)), None)
    runs = [_whole_id(path, options.run) for path in paths]
    output: Path | None = default_output(paths[0], options.format)
    if options.output is not None:
        output = None if options.output == _STANDARD_OUTPUT else Path(options.output)
    # Lines that are bad are told at the end.
    logging.getLogger("otel_rollout_trace").setLevel(logging.ERROR)
    with _tidy_when_terminated():
        exported = export_logs(
            paths,
            options.format,
            output,
            runs=runs,
            vocabulary=options.vocabulary,
            metrics=options.metrics,
            force=options.force,
            reading=reading,
        )
    # The standard output is the export's where it went there.
    console = Console(stderr=output is None, highlight=False, soft_wrap=True, emoji=False)
    if options.as_json:
        print(json.dumps(_as_dict(exported)), file=sys.stderr if output is None else sys.stdout)
    else:
        _print(console, exported)
    if exported.advice:
        print(f"otel-rollout-trace: {exported.advice}", file=sys.stderr)


@contextmanager
def _tidy_when_terminated() -> Iterator[None]:
    """Leave nothing half-written where a job's time is over, which SIGTERM tells."""

    def terminated(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print(console: Console, exported: Exported) -> None:
    for path, found in exported.logs:
        runs = many(found.runs, "run")
        console.print(f"[bold]{escape(path.name)}[/bold]: {many(found.events, 'event')} of {runs}")
        if found.bad_lines:
            console.print(
                f"  skipped   {many(found.bad_lines, 'bad line')}, first: {escape(found.first_bad)}"
            )
    written = ", ".join(
        many(number, what.removesuffix("s")) for what, number in exported.written.items()
    )
    where = "the standard output" if exported.output is None else str(exported.output)
    console.print(f"  wrote     {escape(where)}: {written or 'nothing'}")


def _as_dict(exported: Exported) -> dict[str, Any]:
    return {
        "output": None if exported.output is None else str(exported.output),
        "written": dict(exported.written),
        "logs": [
            {
                "path": str(path),
                "events": found.events,
                "runs": found.runs,
                "bad_lines": found.bad_lines,
                "first_bad": found.first_bad,
            }
            for path, found in exported.logs
        ],
    }
