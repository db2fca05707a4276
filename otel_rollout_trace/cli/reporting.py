"""``report``: which files, its progress, and what it says at the end."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..events import Vocabulary
from ..journal import LogReader
from ..report import default_output, write_report
from ..words import many
from .replaying import _whole_id
from .tables import reading

__all__ = ["ReportOptions", "report_files"]


@dataclass
class ReportOptions:
    """What ``report`` was asked for.

    Attributes:
        output: a path; None for a name after the first log's.
        title: of the page; None for one made of the logs' names.
        run: the beginning of a run's id; None for every run.
        force: whether what is there already is replaced.
        vocabulary: which words mean which row.
    """

    output: Path | None
    title: str | None
    run: str | None
    force: bool
    vocabulary: Vocabulary


def report_files(paths: list[Path], options: ReportOptions) -> None:
    """Write one page about the files, and say where it is.

    Raises:
        LogError: for the first file that is no log; nothing is written then.
        ValueError: for options that cannot be used.
        OSError: if the page cannot be written.
    """
    for path in paths:
        next(iter(LogReader(path, required=True)), None)
    runs = [_whole_id(path, options.run) for path in paths]
    # Lines that are bad are told on the page.
    logging.getLogger("otel_rollout_trace").setLevel(logging.ERROR)
    report = write_report(
        paths,
        options.output or default_output(paths[0]),
        title=options.title,
        runs=runs,
        vocabulary=options.vocabulary,
        force=options.force,
        reading=reading,
    )
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    for section in report.sections:
        events, runs_of = section.found.events, len(section.found.spans)
        console.print(
            f"[bold]{escape(section.path.name)}[/bold]: {many(events, 'event')} of "
            f"{many(runs_of, 'run')}"
        )
        if section.bad_lines:
            console.print(
                f"  skipped   {many(section.bad_lines, 'bad line')}, "
                f"first: {escape(section.first_bad)}"
            )
    console.print(f"  wrote     {escape(str(report.output))}: {report.size / 1e6:.1f} MB")
