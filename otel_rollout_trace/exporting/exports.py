"""What every format is: something that is told of a log's items, and of their spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..lifecycle import Attempt, Group, Listener, Segment
from ..lifecycle.items import Item
from ..spans import SpanRecord

__all__ = ["Export", "MissingExtraError", "Pairing", "missing", "well_formed"]


class MissingExtraError(ValueError):
    """A package that a format needs is not installed; the message says how to get it."""


def missing(format_name: str, package: str) -> MissingExtraError:
    """The error for a package that is not there, named as its extra is."""
    return MissingExtraError(
        f"the {format_name} format needs {package!r}; "
        f"install it with: pip install 'otel-rollout-trace[{format_name}]'"
    )


class Export(Protocol):
    """A format being written; it is also where a replay's spans go.

    Attributes:
        written: how many of what were written, by what they are, in the plural.
    """

    written: Counter[str]

    @property
    def advice(self) -> str:
        """What to mind about the result; empty for nothing."""

    def begin(self, log: Path) -> Sequence[Listener]:
        """The next log comes; what is to hear of its items."""

    def emit(self, record: SpanRecord) -> None:
        """Take a span."""

    def flush(self) -> None:
        """The log is over."""

    def close(self) -> None:
        """Write what is left: every log is over."""


class Pairing(Listener):
    """Hears of each thing that ended together with its span.

    The span has everything that can be said of it in plain values; the item says
    where it belongs. Both come from the one reading of the log: a projection tells
    its listeners of an item before it makes the span.
    """

    def __init__(self) -> None:
        self._item: Item | None = None

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self._item = attempt

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        self._item = group

    def segment_ended(self, segment: Segment) -> None:
        """See `Listener`."""
        self._item = segment

    def emit(self, record: SpanRecord) -> None:
        """See `Export`."""
        item, self._item = self._item, None
        if isinstance(item, Attempt):
            self.attempt_over(item, record)
        elif isinstance(item, Group):
            self.group_over(item, record)
        elif isinstance(item, Segment):
            self.segment_over(item, record)

    def attempt_over(self, attempt: Attempt, span: SpanRecord) -> None:
        """An attempt ended, and this is its span."""

    def group_over(self, group: Group, span: SpanRecord) -> None:
        """A group ended, and this is its span."""

    def segment_over(self, segment: Segment, span: SpanRecord) -> None:
        """A segment of a run ended, and this is its span."""


def well_formed(text: str) -> str:
    """A text that every encoder takes: half a surrogate pair, which JSON can spell, is none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
