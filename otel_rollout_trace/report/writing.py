"""The use case: logs in, one page out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ..events import Vocabulary
from ..exporting.output import look_at_output, new_file
from .page import page_of
from .sections import Section, read_section

__all__ = ["Report", "default_output", "write_report"]

Reading = Callable[[Path], AbstractContextManager[Callable[[int], object]]]
"""Shows how far a file was read: called with bytes, inside the context."""


@dataclass
class Report:
    """A page that was written.

    Attributes:
        output: where.
        size: of the file, in bytes.
        sections: what it says of each log.
    """

    output: Path
    size: int = 0
    sections: list[Section] = field(default_factory=list)


def default_output(log: Path) -> Path:
    """The name of a log's page: in the working directory, after the log's own name."""
    stem = log.name
    for suffix in (".gz", ".jsonl", ".json"):
        stem = stem.removesuffix(suffix) or stem
    return Path(f"{stem}.report.html")


def write_report(
    logs: Sequence[Path],
    output: Path,
    *,
    title: str | None = None,
    runs: Sequence[str | None] = (),
    vocabulary: Vocabulary | None = None,
    force: bool = False,
    reading: Reading = lambda _: nullcontext(lambda _: None),
) -> Report:
    """Write the page of some logs, one after another.

    Nothing is left where it fails, and what was there before stays.

    Args:
        logs: the logs.
        output: the page's file.
        title: its heading; by default made of the logs' names.
        runs: of each log, only this run; None for all of them.
        vocabulary: which words mean which row.
        force: whether what is there already is replaced.
        reading: shows progress.

    Raises:
        LogError: if a log cannot be read, or is none.
        ValueError: if Plotly is not installed, or something would be overwritten.
        OSError: if the page cannot be written.
    """
    plotly = _plotly()
    look_at_output(output, logs, force=force)
    report = Report(output)
    for number, log in enumerate(logs):
        with reading(log) as progress:
            section = read_section(
                log,
                run=runs[number] if runs else None,
                vocabulary=vocabulary,
                progress=progress,
            )
        report.sections.append(section)
    if title is None:
        title = "Rollout report: " + ", ".join(log.name for log in logs[:3])
        title += ", …" if len(logs) > 3 else ""
    with new_file(output) as file:
        for part in page_of(report.sections, title, plotly):
            # A log may hold halves of characters, which no encoding has.
            file.write(part.encode("utf-8", "replace"))
    report.size = output.stat().st_size
    return report


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ValueError(
            "the report needs 'plotly'; install it with: pip install 'otel-rollout-trace[report]'"
        ) from None
    script: str = get_plotlyjs()
    return script
