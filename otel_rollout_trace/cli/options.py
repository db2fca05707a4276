"""What the commands have in common: options, where a log comes from, how errors end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ..events import Vocabulary
from ..journal import LogError
from ..recorder import ROLLOUT_TRACE_FILENAME

__all__ = [
    "Endpoint",
    "ExportFormat",
    "Force",
    "Json",
    "LogFile",
    "LogFiles",
    "OneRun",
    "Protocol",
    "ProtocolName",
    "Sample",
    "Synonyms",
    "fail",
    "one_clear_error",
    "readable_twice",
    "the_log",
    "the_logs",
    "vocabulary_of",
]


class Protocol(str, Enum):
    """OTLP protocols."""

    GRPC = "grpc"
    HTTP = "http/protobuf"


class ExportFormat(str, Enum):
    """What ``export`` writes."""

    PERFETTO = "perfetto"
    CHROME = "chrome"
    OTLP_JSON = "otlp-json"
    PARQUET = "parquet"


LogFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="A rollout_trace.jsonl, plain or gzip.")
]
LogFiles = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE...", help="Rollout logs, plain or gzip."),
]
OneRun = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="Only this run (the id's beginning will do)."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]
Sample = Annotated[bool, typer.Option("--sample", help="Use the sample log in the package.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Synonyms = Annotated[
    list[str] | None,
    typer.Option("--synonym", metavar="WORD=EVENT", help="Another word for an event of the log."),
]


Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="OTLP receiver; OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4317.",
    ),
]
ProtocolName = Annotated[
    Protocol | None, typer.Option("--protocol", help="By default what the endpoint's port is for.")
]


def the_log(file: Path | None, sample: bool) -> Path:
    """The log that a command was given, or the sample.

    Raises:
        typer.Exit: with status 2, where it was given none or both.
    """
    if sample and file is not None:
        fail("name a FILE or use --sample, not both")
    if sample:
        from ..sample import SAMPLE_LOG

        return SAMPLE_LOG
    if file is None:
        fail("name a FILE, or use --sample")
    return readable_twice(file)


def the_logs(files: list[Path] | None, sample: bool) -> list[Path]:
    """The logs that a command was given, each once, and the sample.

    Raises:
        typer.Exit: with status 2, where it was given none.
    """
    given = [readable_twice(file) for file in files or []]
    paths = [*{os.path.realpath(path): path for path in given}.values()]
    if sample or not paths:
        paths.append(the_log(None, sample))
    return paths


def readable_twice(file: Path) -> Path:
    """A log that can be read from its beginning more than once."""
    if (file / ROLLOUT_TRACE_FILENAME).is_file():
        return file / ROLLOUT_TRACE_FILENAME  # as `configure` takes a directory
    if file.exists() and not file.is_file() and not file.is_dir():
        fail(f"{file}: a pipe cannot be read; write the log to a file first")
    return file


def vocabulary_of(synonyms: list[str] | None) -> Vocabulary:
    """The vocabulary with the given synonyms.

    Raises:
        ValueError: for one that is not like ``WORD=EVENT``, or means no event.
    """
    words: dict[str, Any] = {}
    for synonym in synonyms or []:
        word, equals, event = synonym.partition("=")
        if not equals or not word or not event:
            raise ValueError(f"--synonym {synonym!r} is not like WORD=EVENT")
        words[word] = event
    return Vocabulary(words)


@contextmanager
def one_clear_error() -> Iterator[None]:
    """Bad input ends the program with one line and status 2."""
    try:
        yield
    except (LogError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        if error.filename is None:
            raise  # the standard output's: see `main`
        fail(f"{error.filename}: {error.strerror or error}")


def fail(message: str) -> NoReturn:
    """Say what is wrong, and end the program with status 2."""
    print(f"otel-rollout-trace: {message}", file=sys.stderr)
    raise typer.Exit(2)
