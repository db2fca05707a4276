"""Saying once that a backend is away, where the exporters say it at every try.

A collector can be away for hours, and an exporter that retries logs each of its
tries into the training run's log. While one of ours exports, what it logs is
kept back, and the first of it becomes the reason in a single message.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["Outage"]

logger = logging.getLogger(__name__)

_LONGEST_REASON: Final = 160

_exporting = threading.local()


class _KeptBack(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        messages: list[str] | None = getattr(_exporting, "messages", None)
        if messages is None:
            return True  # another exporter's thread
        messages.append(record.getMessage())
        return False


_FILTER: Final = _KeptBack()


class Outage:
    """Whether what an exporter sends arrives, said when it changes for the first time.

    Args:
        exporter: whose logging is kept back while it exports.
        what: what it sends, for messages.
        target: where to, for messages.

    Attributes:
        going_on: whether the last try failed.
    """

    def __init__(self, exporter: Any, what: str, target: str) -> None:
        self._what = what
        self._target = target
        self._said = False
        self.going_on = False
        for base in type(exporter).__mro__:
            if base.__module__.startswith("opentelemetry.exporter"):
                logging.getLogger(base.__module__).addFilter(_FILTER)

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Keep back what the exporter logs; gives the list that it goes into."""
        messages: list[str] = []
        _exporting.messages = messages
        try:
            yield messages
        finally:
            _exporting.messages = None

    def note(self, arrived: bool, messages: list[str]) -> None:
        """Say that nothing arrives, or that it does again; each once."""
        if not arrived and not self._said:
            self._said = True
            reason = messages[0][:_LONGEST_REASON] if messages else "the export failed"
            logger.warning(
                "%s do not reach %s; the log file is complete and can be replayed (said once): %s",
                self._what,
                self._target,
                reason,
            )
        elif arrived and self.going_on:
            logger.warning("%s reach %s again", self._what, self._target)
        self.going_on = not arrived
