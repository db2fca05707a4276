"""The formats there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, NamedTuple

from .exports import Export

__all__ = ["FORMATS", "Format"]


class Format(NamedTuple):
    """A format.

    Attributes:
        name: what it is called on the command line.
        suffix: what its files' names end with.
        make: begins one in a file or in a directory; takes ``metrics`` where it can have them.
        directory: whether it is several files in a directory.
        text: whether it may go to a terminal or a pipe.
        metrics: whether it can have metrics.
    """

    name: str
    suffix: str
    make: Callable[..., Export]
    directory: bool = False
    text: bool = False
    metrics: bool = False


# What a format needs is imported when it is made: some of it is an extra, most is slow.


def _perfetto(file: IO[bytes]) -> Export:
    from .perfetto import PerfettoCanvas
    from .timeline import Timeline

    return Timeline(PerfettoCanvas(file))


def _chrome(file: IO[bytes]) -> Export:
    from .chrome import ChromeCanvas
    from .timeline import Timeline

    return Timeline(ChromeCanvas(file))


def _otlp_json(file: IO[bytes], *, metrics: bool) -> Export:
    from .otlp_json import OtlpJson

    return OtlpJson(file, metrics=metrics)


def _parquet(directory: Path) -> Export:
    from .parquet import ParquetTables

    return ParquetTables(directory)


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Format("perfetto", ".pftrace", _perfetto),
            Format("chrome", ".trace.json", _chrome, text=True),
            Format("otlp-json", ".otlp.jsonl", _otlp_json, text=True, metrics=True),
            Format("parquet", "-parquet", _parquet, directory=True),
        )
    }
)
"""Every format, by name."""
