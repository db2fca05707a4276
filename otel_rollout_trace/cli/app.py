"""The commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..batch_age import BATCH_AGE_FIELDS, batch_age_by_step
from ..journal import LogReader
from ..recorder import ROLLOUT_TRACE_FILENAME
from ..version import __version__
from .demo import demo
from .options import (
    Endpoint,
    ExportFormat,
    Force,
    Json,
    LogFile,
    LogFiles,
    OneRun,
    ProtocolName,
    Sample,
    Synonyms,
    fail,
    one_clear_error,
    readable_twice,
    the_log,
    the_logs,
    vocabulary_of,
)

__all__ = ["app"]

app = typer.Typer(
    help="Rollout logs of asynchronous RL post-training, as OpenTelemetry.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def start(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Rollout logs of asynchronous RL post-training, as OpenTelemetry."""
    if version:
        print(f"otel-rollout-trace {__version__}")
        raise typer.Exit


@app.command("batch-age")
def batch_age(
    file: LogFile = None,
    sample: Sample = False,
    as_json: Json = False,
    synonym: Synonyms = None,
) -> None:
    """Print each trained step's batch age, in weight updates.

    Of a step that was trained again after a restore, the last training counts.
    """
    path = the_log(file, sample)
    with one_clear_error():
        vocabulary = vocabulary_of(synonym)
        # Only lines that matter are decoded, so first see that it is a log at all.
        next(iter(LogReader(path, required=True)), None)
        ages = batch_age_by_step(
            LogReader(path, containing=BATCH_AGE_FIELDS), vocabulary=vocabulary
        )
    if as_json:
        print(json.dumps({str(step): age for step, age in ages.items()}))
        return
    for step, age in ages.items():
        print(f"step {step}: batch age {age:.3f}")


@app.command()
def replay(
    files: LogFiles = None,
    endpoint: Endpoint = None,
    protocol: ProtocolName = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Send gauges and counters too, at the log's times.")
    ] = False,
    run: OneRun = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing; print what would be sent.")
    ] = False,
    sample: Sample = False,
    as_json: Json = False,
    synonym: Synonyms = None,
) -> None:
    """Send the spans of a log to an OTLP backend such as Jaeger or Tempo."""
    from .replaying import ReplayOptions, replay_files

    paths = the_logs(files, sample)
    with one_clear_error():
        options = ReplayOptions(
            endpoint=endpoint,
            protocol=protocol.value if protocol is not None else None,
            metrics=metrics,
            run=run,
            dry_run=dry_run,
            as_json=as_json,
            vocabulary=vocabulary_of(synonym),
        )
        arrived = replay_files(paths, options)
    if not arrived:
        raise typer.Exit(1)


@app.command()
def follow(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A rollout_trace.jsonl; it need not exist yet.")
    ],
    endpoint: Endpoint = None,
    protocol: ProtocolName = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all that the log holds now is sent.")
    ] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics/--no-metrics", help="Send the metrics of runs that go on.")
    ] = True,
    silence: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            help="After so long without an event a run is over, where its process cannot be seen.",
        ),
    ] = 1800,
    as_json: Json = False,
    synonym: Synonyms = None,
) -> None:
    """Send the spans and metrics of a log as it grows, each of them once.

    Goes on where it left off, and ends what a killed process left open as interrupted.
    """
    from ..following import AlreadyFollowedError
    from .following import FollowOptions, follow_file

    if file.is_dir():
        file = file / ROLLOUT_TRACE_FILENAME
    if once and not file.exists():
        fail(f"{file}: No such file or directory")
    with one_clear_error():
        if once and file.stat().st_size:
            next(iter(LogReader(file, required=True)), None)  # leaves nothing beside another file
        options = FollowOptions(
            endpoint=endpoint,
            protocol=protocol.value if protocol is not None else None,
            once=once,
            metrics=metrics,
            silence=silence,
            as_json=as_json,
            vocabulary=vocabulary_of(synonym),
        )
        try:
            arrived = follow_file(file, options)
        except AlreadyFollowedError as holder:
            fail(f"{file}: {holder} follows it already")
        except OSError as error:
            fail(f"{error.filename or file}: {error.strerror or error}")
    if not arrived:
        raise typer.Exit(1)


@app.command()
def check(
    file: LogFile = None,
    sample: Sample = False,
    as_json: Json = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where anything is odd.")
    ] = False,
    synonym: Synonyms = None,
) -> None:
    """Say what is in a log, and what is odd about it."""
    from ..check import check_log
    from .tables import print_check, reading

    path = the_log(file, sample)
    with one_clear_error(), reading(path) as progress:
        result = check_log(path, vocabulary=vocabulary_of(synonym), progress=progress)
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        print_check(result)
    if strict and result.findings:
        raise typer.Exit(1)


@app.command()
def export(
    files: LogFiles = None,
    format_name: Annotated[
        ExportFormat, typer.Option("--format", help="What to write.")
    ] = ExportFormat.PERFETTO,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The file, or for parquet the directory; by default named after the log, in "
            "the working directory. '-' is the standard output; what ends in .gz is compressed.",
        ),
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="In otlp-json: gauges and counters too.")
    ] = False,
    run: OneRun = None,
    force: Force = False,
    sample: Sample = False,
    as_json: Json = False,
    synonym: Synonyms = None,
) -> None:
    """Write a log for other tools: a timeline, OTLP lines, or tables for SQL."""
    from .exporting import ExportOptions, export_files

    paths = the_logs(files, sample)
    with one_clear_error():
        options = ExportOptions(
            format=format_name.value,
            output=output,
            force=force,
            metrics=metrics,
            run=run,
            as_json=as_json,
            vocabulary=vocabulary_of(synonym),
        )
        export_files(paths, options)


@app.command()
def cost(
    file: LogFile = None,
    run: OneRun = None,
    steps: Annotated[
        str | None, typer.Option(metavar="A:B", help="Only what was made for these steps.")
    ] = None,
    sample: Sample = False,
    as_json: Json = False,
    synonym: Synonyms = None,
) -> None:
    """Say what each stop and restore cost, and what became of every token."""
    from .cost import CostOptions, show_cost

    path = the_log(file, sample)
    with one_clear_error():
        show_cost(path, CostOptions(run, steps, as_json, vocabulary_of(synonym)))


@app.command()
def diff(
    log_a: Annotated[str, typer.Argument(metavar="A", help="A log, or FILE@RUN for one run.")],
    log_b: Annotated[str, typer.Argument(metavar="B", help="The log or run to compare it with.")],
    as_json: Json = False,
    synonym: Synonyms = None,
) -> None:
    """Compare two logs, or two runs: exit status 0 for the same work, 1 for different work."""
    from .diff import DiffOptions, log_and_run, show_diff

    a, b = ((readable_twice(path), run) for path, run in map(log_and_run, (log_a, log_b)))
    with one_clear_error():
        same = show_diff(a, b, DiffOptions(as_json, vocabulary_of(synonym)))
    if not same:
        raise typer.Exit(1)


@app.command()
def report(
    files: LogFiles = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The page; by default named after the log, in the working directory.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The page's heading.")] = None,
    run: OneRun = None,
    force: Force = False,
    sample: Sample = False,
    synonym: Synonyms = None,
) -> None:
    """Write one HTML page about a log, which opens without a network."""
    from .reporting import ReportOptions, report_files

    if output == Path("-"):
        fail("a report is not for the standard output; name a file")
    paths = the_logs(files, sample)
    with one_clear_error():
        options = ReportOptions(
            output=output,
            title=title,
            run=run,
            force=force,
            vocabulary=vocabulary_of(synonym),
        )
        report_files(paths, options)


app.command()(demo)
