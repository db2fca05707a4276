"""Accumulators through a meter provider's instruments."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from opentelemetry import metrics as api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation

from ..spans import attempt_context, ids, names
from ..version import __version__
from .accumulators import RolloutMetrics, Sample
from .table import HISTOGRAMS, OBSERVED, Observed

__all__ = ["MetricsView"]

logger = logging.getLogger(__name__)

# Never the ambient span: whatever a user's code has open is not ours. An empty context
# will not do, the SDK takes it for none.
_NO_SPAN: Final = trace.set_span_in_context(trace.INVALID_SPAN, Context())

_OLDEST_ATTEMPT: Final = "rl.oldest_attempt.age"


class MetricsView:
    """Shows one log's metrics through a meter provider.

    Args:
        provider: where the instruments are made.
        oldest_attempt: when the attempt that has been out longest began, in
            microseconds; None where none is out.
        clock: seconds since the epoch, for how long that is.

    Attributes:
        accumulators: the figures, to be fed by a lifecycle.
    """

    def __init__(
        self,
        provider: api.MeterProvider,
        *,
        oldest_attempt: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._instruments = _Instruments.of(provider)
        self.accumulators = RolloutMetrics(self._instruments.record)
        self.oldest_attempt = oldest_attempt
        self.clock = clock
        self._instruments.shown.append(self)

    def close(self) -> None:
        """Nothing more will come: counters stay as they are, nothing is out any more."""
        self.oldest_attempt = lambda: None

    def forget(self) -> None:
        """Show nothing of it any more, as in the child of a fork: it is the parent's."""
        self.close()
        if self in self._instruments.shown:
            self._instruments.shown.remove(self)

    def oldest_age(self) -> float | None:
        """How long the oldest attempt has been out, in seconds; None where none is."""
        started = self.oldest_attempt()
        return None if started is None else max(0.0, self.clock() - started / 1e6)


class _Instruments:
    """A provider's instruments, made once: the SDK ignores the callbacks of a second set.

    Every log that this process shows through the provider adds to its counters;
    gauges show the one that was opened last.
    """

    _made: ClassVar[weakref.WeakKeyDictionary[api.MeterProvider, _Instruments]] = (
        weakref.WeakKeyDictionary()
    )
    _making = threading.Lock()

    @classmethod
    def of(cls, provider: api.MeterProvider) -> _Instruments:
        """The provider's instruments."""
        with cls._making:
            found = cls._made.get(provider)
            if found is None:
                found = cls._made[provider] = cls(provider)
            return found

    def __init__(self, provider: api.MeterProvider) -> None:
        #: The logs that are shown, in the order in which they were opened.
        self.shown: list[MetricsView] = []
        meter = provider.get_meter(names.SCOPE, __version__)
        make: dict[str, Callable[..., Any]] = {
            "gauge": meter.create_observable_gauge,
            "counter": meter.create_observable_counter,
            "up_down_counter": meter.create_observable_up_down_counter,
        }
        for row in OBSERVED:
            make[row.kind](
                row.name,
                callbacks=[self._reader(row)],
                unit=row.unit,
                description=row.description,
            )
        meter.create_observable_gauge(
            _OLDEST_ATTEMPT,
            callbacks=[self._read_oldest],
            unit="s",
            description="How long the oldest attempt that is out has been out",
        )
        self._histograms = {
            row.name: meter.create_histogram(
                row.name,
                unit=row.unit,
                description=row.description,
                explicit_bucket_boundaries_advisory=list(row.bounds),
            )
            for row in HISTOGRAMS
        }

    def record(self, sample: Sample) -> None:
        """Put one value into its histogram, linked to the span it is of."""
        self._histograms[sample.name].record(
            sample.value, dict(sample.labels), context=_exemplar_context(sample)
        )

    def _reader(self, row: Observed) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            try:
                return self._observe(row)
            except Exception:  # one that gets out ends the SDK's export thread for good
                logger.exception("reading %s failed", row.name)
                return []

        return read

    def _observe(self, row: Observed) -> list[Observation]:
        total: dict[Any, float] = {}
        for view in list(self.shown):
            value = row.read(view.accumulators)
            if value is None:
                continue
            values = dict(value) if isinstance(value, dict) else {(): value}
            for labels, number in values.items():
                before = total.get(labels, 0) if row.kind != "gauge" else 0
                total[labels] = before + number
        return [Observation(number, dict(labels)) for labels, number in total.items()]

    def _read_oldest(self, _: CallbackOptions) -> Iterable[Observation]:
        try:
            ages = [age for view in list(self.shown) if (age := view.oldest_age()) is not None]
        except Exception:
            logger.exception("reading %s failed", _OLDEST_ATTEMPT)
            return []
        return [Observation(max(ages))] if ages else []


def _exemplar_context(sample: Sample) -> Context:
    if sample.group_id is None:
        return _NO_SPAN
    if sample.attempt_id is not None:
        return attempt_context(sample.run, sample.group_id, sample.attempt_id)
    span_context = trace.SpanContext(
        ids.group_trace_id(sample.run, sample.group_id),
        ids.group_span_id(sample.run, sample.group_id),
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(span_context), Context())
