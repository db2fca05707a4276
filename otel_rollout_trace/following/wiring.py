"""A follower with exporters, as the standard variables name them."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from ..events import Event, Vocabulary
from ..receipts import Process
from ..setup.configuring import make_meter_provider, resource_of_run
from ..setup.exporters import (
    exporter_names,
    label_of,
    make_exporter,
    protocol_of,
    target_of,
)
from ..spans.emit import GroupSampling
from .follower import Followed, Follower, Until

__all__ = ["StopRequest", "make_follower"]

logger = logging.getLogger(__name__)


class StopRequest:
    """Says when to stop, and sees to it that this is within a bound.

    Args:
        bound: for how many seconds what is under way may go on after that.
    """

    def __init__(self, bound: float = 5.0) -> None:
        self._event = threading.Event()
        self._bound = bound
        self._exporter: Any = None

    @property
    def made(self) -> bool:
        """Whether it was told to stop."""
        return self._event.is_set()

    def make(self) -> None:
        """Stop. A try that is under way is ended after the bound."""
        if self._event.is_set():
            return
        self._event.set()
        exporter = self._exporter
        if exporter is not None:
            watchdog = threading.Timer(self._bound, exporter.shutdown)
            watchdog.daemon = True
            watchdog.start()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is told to stop; whether it is."""
        return self._event.wait(seconds) if seconds else self._event.is_set()

    def ends(self, exporter: Any) -> None:
        """This exporter is shut down where it takes too long."""
        self._exporter = exporter

    def on_signals(self) -> None:
        """SIGTERM and SIGINT tell it to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.make())


def make_follower(
    log: Path,
    stop: StopRequest,
    *,
    endpoint: str | None = None,
    protocol: str | None = None,
    metrics: bool = True,
    vocabulary: Vocabulary | None = None,
    until: Until = Until.STOPPED,
    begun_only: bool = False,
    silence: float = 1800.0,
    processes: Mapping[str, Process] | None = None,
    awaits: Callable[[Container[str]], bool] = lambda _: False,
    progress: Callable[[Followed], object] = lambda _: None,
) -> tuple[Follower, str]:
    """A follower that sends to an OTLP receiver, and where that is.

    Args:
        log: the log.
        stop: tells it to stop.
        endpoint: of the receiver; None for the environment's.
        protocol: of the receiver; None for the environment's.
        metrics: whether metrics are sent too.
        vocabulary: which words mean which row.
        until: see `Follower`, as for those below.
        begun_only: send only what another process began to send.
        silence: of a writer, in seconds.
        processes: of runs.
        awaits: whether to wait for another run.
        progress: hears of it.

    Raises:
        ValueError: for a receiver that cannot be used.
    """
    otlp = {"endpoint": endpoint, "protocol": protocol}
    # Writing the log again is not for a reader of it.
    names = [name for name in exporter_names("traces") if name != "rollout_jsonl"]
    if len(names) != 1:
        raise ValueError(
            f"a follower sends to one exporter; OTEL_TRACES_EXPORTER names {len(names)}"
        )
    name = names[0]
    exporter = make_exporter(name, "traces", **(otlp if name == "otlp" else {}))
    target = name
    if name == "otlp":
        chosen = protocol_of("traces", endpoint, protocol)
        target = label_of(target_of("traces", endpoint, protocol), chosen)
    stop.ends(exporter)

    def resource(run: str, opened: Event | None) -> Any:
        return resource_of_run(run, opened or {})

    follower = Follower(
        log,
        exporter=exporter,
        target=target,
        resource=resource,
        meter_provider=lambda of: make_meter_provider(of, **otlp) if metrics else None,
        # The SDK leaves this constructor untyped; its sampler is the environment's.
        sampled=GroupSampling(TracerProvider(shutdown_on_exit=False).sampler),
        vocabulary=vocabulary,
        until=until,
        begun_only=begun_only,
        silence=silence,
        processes=processes,
        awaits=awaits,
        wait=stop.wait,
        progress=progress,
    )
    return follower, target
