"""Replaying a log: the spans and metrics that a live run would have made, from its file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from .events import Event, EventRow, Vocabulary
from .journal import LogReader
from .lifecycle import Attempt, Carried, Group, Lifecycle, Listener, Step
from .live import global_provider
from .metrics.accumulators import RolloutMetrics
from .pricing import Prices
from .projection import Projection, SpanSink, sink_of
from .spans import SpanRecord

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Replayed", "replay", "replay_into"]

# Less than the queue of the SDK's batch processor.
_PACE: Final = 1_000


@dataclass
class Replayed:
    """What a replay found, and what became of it.

    Attributes:
        events: events read.
        bad_lines: lines passed over, or their beginning.
        first_bad: what is wrong with the first of them; empty for none.
        runs: how many runs the events are of.
        first_t, last_t: the earliest and the latest time, in seconds since the epoch.
        spans: spans made.
        not_sent: spans that did not arrive, where that is known.
        attempts, groups: how many ended, by outcome.
        tokens: tokens by what became of them.
        batch_age: batch age in weight updates, by step.
    """

    events: int = 0
    bad_lines: int = 0
    first_bad: str = ""
    runs: int = 0
    first_t: float = 0.0
    last_t: float = 0.0
    spans: int = 0
    not_sent: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    batch_age: dict[int, float] = field(default_factory=dict)


class FlushingSink(SpanSink, Protocol):
    """A sink that may hold spans back."""

    def flush(self) -> None:
        """Send what is held back."""


def replay(
    path: str | os.PathLike[str],
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    run: str | None = None,
    synonyms: Mapping[str, str] | None = None,
) -> Replayed:
    """Send a log's spans and metrics as the live run would have.

    The spans are the live run's own, byte for byte: a backend that has some of
    them already gets the rest. Do not replay a run that is still going: what is
    open in it would be sent as interrupted.

    Args:
        path: the log.
        tracer_provider: where spans go; the global one by default.
        meter_provider: where metrics go; the global one by default.
        run: only this run of the file.
        synonyms: other words for events of the log, as ``{word: event}``.

    Raises:
        LogError: if the file cannot be read, or is no rollout log.
        ValueError: for synonyms that mean no event.
    """
    from .spans.batch import PacedSink

    tracer_provider = tracer_provider or global_provider("trace", "tracer")
    sink = None
    if tracer_provider is not None:
        sink = PacedSink(sink_of(tracer_provider), tracer_provider, _pace())
    return replay_into(
        path,
        sink,
        meter_provider or global_provider("metrics", "meter"),
        run=run,
        vocabulary=Vocabulary(synonyms),
    )


def replay_into(
    path: str | os.PathLike[str],
    sink: FlushingSink | None,
    meter_provider: MeterProvider | None = None,
    *,
    run: str | None = None,
    vocabulary: Vocabulary | None = None,
    listeners: Iterable[Listener] = (),
    progress: Callable[[int], object] = lambda _: None,
) -> Replayed:
    """`replay`, with the place that spans go to made by the caller.

    Args:
        path: the log.
        sink: where spans go; None counts them only.
        meter_provider: where metrics go; None for nowhere.
        run: only this run of the file.
        vocabulary: which words mean which row.
        listeners: hear of every item too.
        progress: called now and then with the bytes of the file read so far.
    """
    vocabulary = vocabulary or Vocabulary()
    reader = LogReader(path, required=True)
    tally = _Tally()
    counted = _CountingSink(sink)
    # Other runs are followed, not shown: a later one may go on from what they began.
    carried = Carried(vocabulary=vocabulary)
    others = Lifecycle([], vocabulary=vocabulary, carried=carried)
    projection = Projection(
        counted,
        meter_provider,
        vocabulary=vocabulary,
        carried=carried,
        prices=Prices(lambda: LogReader(path), vocabulary),
        listeners=(*listeners, tally),
    )
    for number, event in enumerate(reader):
        if not number % 1000:
            progress(reader.position)
        if run is None or event["run"] == run:
            projection.feed(event)
        else:
            others.feed(event)
    projection.close()
    if sink is not None:
        sink.flush()
    reader.warn()
    found = tally.found
    found.spans = counted.spans
    found.bad_lines = reader.bad_lines
    if reader.first_bad is not None:
        found.first_bad = f"line {reader.first_bad.number}: {reader.first_bad.reason}"
    found.runs = len(tally.runs)
    found.tokens = Counter({labels[0][1]: n for labels, n in tally.metrics.tokens.items()})
    found.batch_age = dict(sorted(found.batch_age.items()))
    return found


def _pace() -> int:
    try:
        return min(_PACE, int(os.environ["OTEL_BSP_MAX_QUEUE_SIZE"]) // 2)
    except (KeyError, ValueError):
        return _PACE


class _CountingSink:
    def __init__(self, sink: SpanSink | None) -> None:
        self._sink = sink
        self.spans = 0

    def emit(self, record: SpanRecord) -> None:
        self.spans += 1
        if self._sink is not None:
            self._sink.emit(record)


class _Tally(Listener):
    """Counts what `Replayed` tells."""

    def __init__(self) -> None:
        self.found = Replayed()
        self.runs: set[str] = set()
        self.metrics = RolloutMetrics()

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        self.found.events += 1
        self.found.first_t = min(self.found.first_t or event["t"], event["t"])
        self.found.last_t = max(self.found.last_t, event["t"])
        self.runs.add(run)

    def attempt_ended(self, attempt: Attempt) -> None:
        self.found.attempts[attempt.outcome] += 1
        self.metrics.attempt_ended(attempt)

    def group_ended(self, group: Group) -> None:
        self.found.groups[group.outcome] += 1
        self.metrics.group_ended(group)

    def stepped(self, step: Step) -> None:
        age = step.batch_age
        if step.number is not None and age is not None:
            self.found.batch_age[step.number] = age
