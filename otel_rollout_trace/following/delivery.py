"""Delivering spans: each of them once, however long the receiver is away."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..receipts import Process, Receipts
from ..setup.quiet import Outage
from ..spans import SpanRecord, names
from ..spans.emit import ProcessorSink

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["Delivery", "StoppedError"]

logger = logging.getLogger(__name__)

_BATCH_SPANS: Final = 256
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0

# A span that is refused alone, while the receiver takes others, is given up after so
# many tries.
_TRIES: Final = 6

# Requests without any success, in the search for what spoils a batch. One span among
# them takes fewer.
_PROBES: Final = 12


class StoppedError(Exception):
    """It was told to stop, or to give up, while spans waited."""


class _Probes:
    """How many requests in a row found nothing that the receiver takes."""

    made = 0


class _Numbered(NamedTuple):
    run: str
    number: int
    span: ReadableSpan


class Delivery:
    """Takes span records, and returns once their spans have arrived or will never.

    While the receiver is away it waits: the log is the queue, and is not read
    further than what is delivered. So memory stays bounded.

    Args:
        exporter: sends spans.
        target: where to, for messages.
        resource: the spans' resource, by the run they are of.
        receipts: what was delivered before, and by whom.
        sampled: whether a record is to be sent at all.
        sender: who this is, for the receipts.
        wait: waits so many seconds; True where it is to stop.

    Attributes:
        sent: spans that arrived.
        refused: spans that the receiver will not take.
        left: runs that another process sends.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        target: str,
        resource: Callable[[str], Any],
        receipts: Receipts,
        *,
        sampled: Callable[[SpanRecord], bool],
        sender: Process,
        wait: Callable[[float], bool],
    ) -> None:
        from opentelemetry.sdk.trace import SpanProcessor
        from opentelemetry.sdk.trace.export import SpanExportResult

        delivery = self

        class Collector(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                delivery._built_span = span

        self._exporter = exporter
        self._success = SpanExportResult.SUCCESS
        self._builder = ProcessorSink(Collector(), resource)
        self._built_span: ReadableSpan
        self._receipts = receipts
        self._sampled = sampled
        self._sender = sender
        self._wait = wait
        self.outage = Outage(exporter, "spans", target)
        self._target = target
        self._numbers: Counter[str] = Counter()
        self._pending: list[_Numbered] = []
        # How often each was refused alone, and what had arrived the first time.
        self._suspects: dict[tuple[str, int], tuple[int, int]] = {}
        self.left: set[str] = set()
        self.sent = 0
        self.refused = 0

    @property
    def waiting(self) -> int:
        """Spans that were taken and not delivered yet."""
        return len(self._pending)

    def number_of(self, run: str) -> int:
        """How many spans of a run there are so far."""
        return self._numbers[run]

    def emit(self, record: SpanRecord) -> None:
        """Take a span record, unless its span was delivered before.

        Raises:
            StoppedError: see `flush`.
        """
        run: str = record.attributes[names.RUN_ID]  # type: ignore[assignment] # text
        if run in self.left or not self._sampled(record):
            return
        self._numbers[run] += 1
        receipt = self._receipts.of(run)
        if receipt.done or not receipt.wants(self._numbers[run]):
            return
        self._builder.emit(record)
        self._pending.append(_Numbered(run, self._numbers[run], self._built_span))
        if len(self._pending) >= _BATCH_SPANS:
            self.flush()

    def flush(self) -> None:
        """Deliver what was taken.

        Spans that the receiver takes on no condition, while it answers, may be left:
        whether it is they, or the receiver, shows when others arrive.

        Raises:
            StoppedError: where it is to stop before the receiver has answered. What was
                not delivered is not in the receipts, and comes again.
        """
        pause, tries = _FIRST_PAUSE_S, 0
        while self._pending:
            settled = self.sent + self.refused
            batch = self._pending[:_BATCH_SPANS]
            try:
                self._deliver(batch, _Probes())
            finally:
                self._pending = [each for each in batch if self._is_wanted(each)] + self._pending[
                    _BATCH_SPANS:
                ]
            if self.sent + self.refused > settled:
                pause, tries = _FIRST_PAUSE_S, 0
                continue
            tries += 1
            if tries >= _TRIES and self._suspects:
                return
            if self._wait(pause):
                raise StoppedError
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def has_waiting(self, run: str) -> bool:
        """Whether spans of a run were taken and not delivered yet."""
        return any(numbered.run == run for numbered in self._pending)

    def _is_wanted(self, numbered: _Numbered) -> bool:
        return self._receipts.of(numbered.run).wants(numbered.number)

    def _deliver(self, batch: list[_Numbered], probes: _Probes) -> None:
        """Try to deliver a batch; one span that is refused may spoil the others'."""
        if self._wait(0):
            raise StoppedError
        arrived = self._export([numbered.span for numbered in batch])
        self._note(batch[:arrived], refused=False)
        batch = batch[arrived:]
        probes.made = 0 if arrived else probes.made + 1
        if not batch or probes.made >= _PROBES or not self._is_up():
            return
        if len(batch) == 1:
            self._suspect(batch[0])
            return
        half = len(batch) // 2
        self._deliver(batch[:half], probes)
        self._deliver(batch[half:], probes)

    def _suspect(self, numbered: _Numbered) -> None:
        """A span was refused alone by a receiver that answers."""
        key = (numbered.run, numbered.number)
        times, sent = self._suspects.get(key, (0, self.sent))
        self._suspects[key] = times + 1, sent
        # Others arrived since the first time: it is not that the receiver is overloaded.
        if times + 1 >= _TRIES and self.sent > sent:
            del self._suspects[key]
            self._note([numbered], refused=True)

    def _export(self, spans: list[ReadableSpan]) -> int:
        """Send them; how many of them arrived, from the first on."""
        with self.outage.watch() as messages:
            try:
                result = self._exporter.export(spans)
            except Exception as error:
                messages.append(f"{type(error).__name__}: {error}")
                result = None
        if result is self._success:
            self.outage.note(True)
            return len(spans)
        arrived: int = getattr(self._exporter, "arrived", 0)
        self.outage.note(arrived > 0)
        return arrived

    def _is_up(self) -> bool:
        """Whether the receiver takes a request that there can be nothing wrong with."""
        inner: SpanExporter = getattr(self._exporter, "inner", self._exporter)
        with self.outage.watch():
            try:
                return inner.export(()) is self._success
            except Exception:
                return False

    def _note(self, batch: list[_Numbered], *, refused: bool) -> None:
        """Put it on disk that these were dealt with."""
        if not batch:
            return
        for numbered in batch:
            self._suspects.pop((numbered.run, numbered.number), None)
            receipt = self._receipts.of(numbered.run)
            receipt.arrived(numbered.number)
            if numbered.span.name == names.RUN_SPAN:
                receipt.segments += 1
            receipt.sender = self._sender
            receipt.refused += refused
        if refused:
            self.refused += len(batch)
            logger.warning(
                "%s refuses span %r: %s", self._target, batch[0].span.name, self.outage.reason
            )
        else:
            self.sent += len(batch)
        for run in {numbered.run for numbered in batch}:
            self._receipts.save(self._receipts.of(run))
