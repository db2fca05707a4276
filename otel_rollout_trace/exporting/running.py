"""The use case: logs in, one file (or directory) out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ..events import Vocabulary
from ..replaying import Replayed, replay_into
from .columns import TABLES
from .exports import Export
from .formats import FORMATS
from .output import look_at_output, new_directory, new_file

__all__ = ["Exported", "default_output", "export_logs"]

Reading = Callable[[Path], AbstractContextManager[Callable[[int], object]]]
"""Shows how far a file was read: called with bytes, inside the context."""


@dataclass
class Exported:
    """What was exported.

    Attributes:
        output: the file or directory; None for the standard output.
        logs: what was found in each log.
        written: how many of what were written, by what they are, in the plural.
        advice: what to mind about the result; empty for nothing.
    """

    output: Path | None
    logs: list[tuple[Path, Replayed]] = field(default_factory=list)
    written: Counter[str] = field(default_factory=Counter)
    advice: str = ""


def default_output(log: Path, format_name: str) -> Path:
    """The name of a log's export: in the working directory, after the log's own name."""
    stem = log.name
    for suffix in (".gz", ".jsonl", ".json"):
        stem = stem.removesuffix(suffix) or stem
    return Path(stem + FORMATS[format_name].suffix)


def export_logs(
    logs: Sequence[Path],
    format_name: str,
    output: Path | None,
    *,
    runs: Sequence[str | None] = (),
    vocabulary: Vocabulary | None = None,
    metrics: bool = False,
    force: bool = False,
    reading: Reading = lambda _: nullcontext(lambda _: None),
) -> Exported:
    """Write logs in another tool's format.

    Nothing is left where it fails, and what was there before stays.

    Args:
        logs: the logs; everything goes into one output.
        format_name: one of `FORMATS`.
        output: the file, or the directory for a format that is several files; None for
            the standard output.
        runs: of each log, only this run; None for all of them.
        vocabulary: which words mean which row.
        metrics: whether metrics are written too.
        force: whether what is there already is replaced.
        reading: shows progress.

    Raises:
        LogError: if a log cannot be read, or is none.
        MissingExtraError: where a package that the format needs is not installed.
        ValueError: for what cannot be done.
        OSError: if the output cannot be written.
    """
    chosen = FORMATS[format_name]
    if metrics and not chosen.metrics:
        able = ", ".join(each.name for each in FORMATS.values() if each.metrics)
        raise ValueError(f"metrics are in no {format_name} export, only in: {able}")
    if output is None and not chosen.text:
        able = ", ".join(each.name for each in FORMATS.values() if each.text)
        raise ValueError(f"{format_name} is not for the standard output; these are: {able}")
    if output is not None:
        inside = tuple(f"{name}.parquet" for name in TABLES) if chosen.directory else ()
        look_at_output(output, logs, force=force, inside=inside)
    elif sys.stdout is None:
        raise ValueError("the standard output is closed")
    exported = Exported(output)
    with ExitStack() as stack:
        target: Path | IO[bytes]
        if output is None:
            target = sys.stdout.buffer
        elif chosen.directory:
            target = stack.enter_context(new_directory(output))
        else:
            target = stack.enter_context(new_file(output))
        export = chosen.make(target, **({"metrics": metrics} if chosen.metrics else {}))
        for number, log in enumerate(logs):
            run = runs[number] if runs else None
            with reading(log) as progress:
                found = _read(log, export, run, vocabulary, progress)
            exported.logs.append((log, found))
        export.close()
        if output is None:
            sys.stdout.buffer.flush()
    exported.written, exported.advice = export.written, export.advice
    return exported


def _read(
    log: Path,
    export: Export,
    run: str | None,
    vocabulary: Vocabulary | None,
    progress: Callable[[int], object],
) -> Replayed:
    listeners = export.begin(log)
    return replay_into(
        log, export, run=run, vocabulary=vocabulary, listeners=listeners, progress=progress
    )
