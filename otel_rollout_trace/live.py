"""The projection of a log that this process writes: from the lines, as they are written.

Providers may be set after the log was opened. What happened before is then read
back from the file, so that the spans are those of the whole run.
"""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .events import Event, Vocabulary
from .journal import LogError, LogReader, decode_line
from .lifecycle import Carried
from .lifecycle.carried import EARLIER_ROWS

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .projection import Projection

__all__ = ["LiveProjection", "global_provider"]

logger = logging.getLogger(__name__)


# Lines that wait to be projected. More are left to a replay.
MOST_BEHIND: Final = 500_000

# Events that are read from the file without looking at anything else.
_SLICE: Final = 256

_REST_S: Final = 0.001

# How often it is looked for providers while there are none.
_LOOK_S: Final = 0.1


class LiveProjection:
    """Projects one run of a log while it is written.

    Args:
        path: the log.
        run: the run's id.
        tracer_provider, meter_provider: where spans and metrics go; None for the
            global ones, once they are set.
        vocabulary: which words mean which row.
        enabled: whether this process projects at all.
        between: called now and then where reading the file takes long.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        *,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        vocabulary: Vocabulary,
        enabled: bool = True,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._path = path
        self._run = run
        self._given_tracer_provider = tracer_provider
        self._given_meter_provider = meter_provider
        self._vocabulary = vocabulary
        self._between = between
        self._projections: list[Projection] = []
        self._has_tracer = self._has_meter = not enabled
        self._written = 0
        self._backlog: deque[bytes] = deque()
        #: Lines that are in the file and were not projected, since too many waited.
        self.skipped = 0
        self._failed = False
        # In the middle of an event, or of reading the file: `add` may be called from there.
        self._busy = False
        self._next_look = 0.0

    @property
    def behind(self) -> int:
        """How many written lines were not projected yet."""
        return len(self._backlog)

    def add(self, block: bytes) -> None:
        """Take whole lines that were written, to be projected later."""
        now = time.monotonic()
        if now >= self._next_look and not self._busy:
            self._next_look = now + _LOOK_S
            self.look_for_providers()
        number = block.count(b"\n")
        self._written += number
        if not self._projections and not self._busy:
            return
        if len(self._backlog) + number > MOST_BEHIND:
            self.skipped += number
        else:
            self._backlog.extend(block.split(b"\n")[:-1])

    def project(self, most: int) -> None:
        """Project at most so many lines."""
        backlog = self._backlog
        self._busy = True
        for _ in range(min(most, len(backlog))):
            line = backlog.popleft()
            try:
                event = decode_line(line)
                for projection in self._projections:
                    projection.feed(event)
            # What a processor of the user's raises may be no Exception, as what cancels a
            # task is not.
            except BaseException as error:
                self._report(error)
        self._busy = False

    def close(self) -> None:
        """End what is open."""
        for projection in self._projections:
            try:
                projection.close()
            except BaseException as error:
                self._report(error)

    def forget(self) -> None:
        """Send nothing more, as in the child of a fork."""
        for projection in self._projections:
            projection.forget()
        self._projections.clear()
        self._backlog.clear()

    def look_for_providers(self) -> None:
        """Use providers that were set since; what was written before is in the file."""
        if self._busy or (self._has_tracer and self._has_meter):
            return
        tracer_provider = meter_provider = None
        if not self._has_tracer:
            tracer_provider = self._given_tracer_provider or global_provider("trace", "tracer")
        if not self._has_meter:
            meter_provider = self._given_meter_provider or global_provider("metrics", "meter")
        if tracer_provider is None and meter_provider is None:
            return
        self._has_tracer = self._has_tracer or tracer_provider is not None
        self._has_meter = self._has_meter or meter_provider is not None
        try:
            self._add_projection(tracer_provider, meter_provider)
        except Exception as error:
            self._report(error)

    def _add_projection(self, tracer_provider: Any, meter_provider: Any) -> None:
        from .pricing import Prices
        from .projection import Projection, sink_of

        carried = Carried(self._earlier_runs, vocabulary=self._vocabulary)
        projection = Projection(
            sink_of(tracer_provider) if tracer_provider is not None else None,
            meter_provider,
            vocabulary=self._vocabulary,
            carried=carried,
            prices=Prices(lambda: LogReader(self._path), self._vocabulary, self._rest),
        )
        # What was written before the provider was there is in the file.
        self.project(len(self._backlog))
        if self._written:
            self._busy = True
            try:
                projection.feed_all(itertools.islice(self._own_events(), self._written))
            finally:
                self._busy = False
        self._projections.append(projection)

    def _own_events(self) -> Iterator[Event]:
        reader = self._in_slices(LogReader(self._path))
        return (event for event in reader if event["run"] == self._run)

    def _earlier_runs(self) -> Iterator[Event]:
        """What stands in the file before this run."""
        try:
            words = self._vocabulary.words_for("trace_opened", *EARLIER_ROWS)
            for event in self._in_slices(LogReader(self._path, containing=words)):
                if event["run"] == self._run:
                    return
                yield event
        except LogError:
            return

    def _in_slices(self, events: Iterable[Event]) -> Iterator[Event]:
        for number, event in enumerate(events):
            if not number % _SLICE:
                self._between()
            yield event

    def _rest(self) -> None:
        """Reading a long log must not keep the interpreter from the training code."""
        self._between()
        time.sleep(_REST_S)

    def _report(self, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            logger.error(
                "%s: projecting an event failed; the file is complete (said once)",
                self._path,
                exc_info=error,
            )


def global_provider(package: str, kind: str) -> Any:
    """The global provider of a signal, if one was set. Imports nothing for it."""
    # Another thread may be in the middle of importing it.
    module = sys.modules.get(f"opentelemetry.{package}")
    get_provider = getattr(module, f"get_{kind}_provider", None)
    if get_provider is None:
        return None
    provider = get_provider()
    # Until one is set the API hands out a stand-in of its own.
    owner = type(provider).__module__
    return None if owner.startswith(("opentelemetry.trace", "opentelemetry.metrics")) else provider
