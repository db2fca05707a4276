"""What the benchmarks found, as tables for the terminal and the README."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from pytest_benchmark.fixture import BenchmarkFixture

__all__ = ["Report", "median_ratio", "take_turns"]

_NOTE: Final = "Medians of rounds in turn. Ratios of an event: the caller's CPU / the process's."


class Report:
    """Collects tables, and targets with what was measured for them."""

    def __init__(self) -> None:
        self._tables: list[str] = []
        self._targets: list[tuple[str, str, str]] = []

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Add a table; its first column is text, the others are numbers."""
        self._tables.append(_markdown(header, list(rows)))

    def target(self, what: str, limit: str, measured: str) -> None:
        """Add a row to the table of targets."""
        self._targets.append((what, limit, measured))

    def text(self) -> str:
        """All of it; empty where nothing was measured."""
        tables = self._tables
        if self._targets:
            tables = [*tables, _markdown(("target", "limit", "measured"), self._targets)]
        return "\n\n".join([_NOTE, *tables]) if tables else ""


def take_turns(
    benchmark: BenchmarkFixture,
    ours: Callable[[], object],
    others: Callable[[], None],
    *,
    rounds: int,
) -> None:
    """Run others, ours, others, ours, ...; pytest-benchmark's table shows ours."""
    benchmark.pedantic(ours, setup=others, rounds=rounds)  # type: ignore[no-untyped-call] # - it has no types


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of two sides measured in turn: the ratio of each turn, so that drift cancels."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append(" | ".join([f"{row[0]:<{widths[0]}}", *cells[1:]]))
    rules = ["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]
    head, *body = (f"| {line} |" for line in lines)
    return "\n".join([head, f"|{'|'.join(rules)}|", *body])
