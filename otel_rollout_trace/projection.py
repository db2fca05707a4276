"""One log through OpenTelemetry: the same code for a live run, a replay and a follower."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from .events import Event, Vocabulary
from .lifecycle import Carried, Lifecycle, Listener
from .pricing import Prices
from .spans import SpanRecord, SpanView

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .metrics import MetricsView

__all__ = ["Projection", "SpanSink", "most_events", "sink_of"]


class SpanSink(Protocol):
    """Where span records go."""

    def emit(self, record: SpanRecord) -> None:
        """Send one."""


class Projection:
    """Turns events into spans and metrics.

    Args:
        sink: where spans go, see `sink_of`; None for nowhere.
        meter_provider: where metrics go; None for none.
        vocabulary: which words mean which row.
        carried: what is known of the log's other runs.
        prices: finds what stops had cost; see `Lifecycle`.
        listeners: hear of the same items too.

    Attributes:
        metrics: the metrics view, where there is a meter provider.
    """

    def __init__(
        self,
        sink: SpanSink | None,
        meter_provider: MeterProvider | None,
        *,
        vocabulary: Vocabulary | None = None,
        carried: Carried | None = None,
        prices: Prices | None = None,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.metrics: MetricsView | None = None
        listeners = list(listeners)
        if sink is not None:
            listeners.append(SpanView(sink.emit, most_events()))
        if meter_provider is not None:
            from .metrics import MetricsView

            self.metrics = MetricsView(meter_provider, oldest_attempt=self._oldest_attempt)
            listeners.append(self.metrics.accumulators)
        self._lifecycle = Lifecycle(
            listeners,
            vocabulary=vocabulary,
            carried=carried,
            prices=prices or (lambda *_: ()),
        )

    def feed(self, event: Event) -> None:
        """Take the next event of the log."""
        self._lifecycle.feed(event)

    def feed_all(self, events: Iterable[Event]) -> None:
        """`feed` for each event."""
        self._lifecycle.feed_all(events)

    def close(self) -> None:
        """End what is open, at its run's last event."""
        self._lifecycle.close()
        if self.metrics is not None:
            self.metrics.close()

    def forget(self) -> None:
        """Send nothing more and show nothing, as in the child of a fork."""
        if self.metrics is not None:
            self.metrics.forget()

    def _oldest_attempt(self) -> int | None:
        # Read from an export thread while the worker changes it.
        for _ in range(8):
            try:
                attempt = self._lifecycle.oldest_attempt()
            except RuntimeError:
                continue
            return None if attempt is None else attempt.started
        return None


def sink_of(provider: TracerProvider) -> SpanSink:
    """The way to send spans to a provider.

    A provider of `configure` may offer a shorter one than its tracers.
    """
    from .spans.emit import TracerSink

    own: Any = getattr(provider, "rollout_sink", None)
    return own if own is not None else TracerSink(provider)


def most_events() -> int:
    """How many events a span keeps, as the environment says or the SDK has it."""
    try:
        return int(os.environ["OTEL_SPAN_EVENT_COUNT_LIMIT"])
    except (KeyError, ValueError):
        return 128
