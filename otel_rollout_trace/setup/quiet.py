"""Saying once that a backend is away, where the exporters say it at every try.

A collector can be away for hours, and an exporter that retries logs each of its
tries into the training run's log. While one of ours exports, what it logs is
kept back, and the first of it becomes the reason in a single message.
"""

from __future__ import annotations

import logging
import re
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["Outage", "Quiet"]

logger = logging.getLogger(__name__)

_LONGEST_REASON: Final = 200

# By the time that this is shown it has given up, and what it sent is said already.
_RETRYING: Final = re.compile(
    r"^Transient error | encountered while exporting .*?, retrying in [\d.]+s\.?$"
)

# How receivers of traces only answer metrics.
_NO_METRICS: Final = re.compile(r"UNIMPLEMENTED|\b404\b")

_exporting = threading.local()


class _KeptBack(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        messages: list[str] | None = getattr(_exporting, "messages", None)
        if messages is None:
            return True  # another exporter's thread
        messages.append(record.getMessage())
        return False


_FILTER: Final = _KeptBack()


class Quiet:
    """Keeps back what an exporter logs while it exports.

    Args:
        exporter: the exporter; where it wraps another, that is its ``inner``.
    """

    def __init__(self, exporter: Any) -> None:
        self._messages: list[str] = []
        for base in type(getattr(exporter, "inner", exporter)).__mro__:
            if base.__module__.startswith("opentelemetry.exporter"):
                logging.getLogger(base.__module__).addFilter(_FILTER)

    @property
    def reason(self) -> str:
        """The first that the latest export had to say; empty for nothing."""
        first = _RETRYING.sub("", next(iter(self._messages), ""))
        return textwrap.shorten(first, _LONGEST_REASON, placeholder=" ...")

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """While an export goes on; gives the list that its messages go into."""
        _exporting.messages = self._messages = []
        try:
            yield self._messages
        finally:
            _exporting.messages = None


class Outage(Quiet):
    """Whether what an exporter sends arrives, said when that changes.

    Args:
        exporter: whose logging is kept back while it exports.
        what: what it sends, for messages.
        target: where to, for messages.

    Attributes:
        going_on: whether the last try failed.
    """

    def __init__(self, exporter: Any, what: str, target: str) -> None:
        super().__init__(exporter)
        self._what = what
        self._target = target
        self._said = False
        self.going_on = False

    def note(self, arrived: bool) -> None:
        """Say that nothing arrives, once, or that it does again."""
        if not arrived and not self._said:
            self._said = True
            if self._what == "metrics" and _NO_METRICS.search(self.reason):
                logger.warning(
                    "%s takes no metrics, as Jaeger does not; OTEL_METRICS_EXPORTER=none "
                    "sends none",
                    self._target,
                )
            else:
                logger.warning(
                    "%s do not reach %s; what the log file holds can be replayed (said once): %s",
                    self._what,
                    self._target,
                    self.reason or "no answer yet",
                )
        elif arrived and self.going_on:
            logger.warning("%s reach %s again", self._what, self._target)
        self.going_on = not arrived
