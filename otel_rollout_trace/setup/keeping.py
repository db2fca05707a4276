"""Receipts for what this process sends itself."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..receipts import Receipt, Receipts, this_process
from ..spans import names

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["ReceiptKeeper"]

logger = logging.getLogger(__name__)

_NUMBER: Final = "_rollout_trace_number"


class ReceiptKeeper:
    """Numbers the spans of runs as they end, and keeps which of them were delivered.

    A process that is killed takes spans with it. Whoever opens or follows the log
    next finds in the run's receipt what is missing, and sends that.
    """

    def __init__(self) -> None:
        self._failed = False
        self.renew()
        _keepers.add(self)

    def renew(self) -> None:
        """In the child of a fork: the runs are the parent's, and so is who holds the lock."""
        self._lock = threading.Lock()
        self._receipts: dict[str, Receipts] = {}
        self._numbers: Counter[str] = Counter()

    def begin(self, run: str, log: Path) -> None:
        """A run of this process is sent from here on."""
        receipts = Receipts(log)
        self._receipts[run] = receipts
        receipts.of(run).sender = this_process(time.time())
        self._save(receipts, receipts.of(run))

    def number(self, span: ReadableSpan) -> None:
        """A span has ended, and is on its way."""
        run = (span.attributes or {}).get(names.RUN_ID)
        if isinstance(run, str) and run in self._receipts:
            with self._lock:
                self._numbers[run] += 1
                setattr(span, _NUMBER, (run, self._numbers[run]))

    def settle(self, spans: Sequence[ReadableSpan], arrived: int) -> None:
        """The first so many of these were delivered, the others were not."""
        changed: dict[str, Receipt] = {}
        with self._lock:
            for place, span in enumerate(spans):
                run, number = getattr(span, _NUMBER, ("", 0))
                if run not in self._receipts:
                    continue
                receipt = changed[run] = self._receipts[run].of(run)
                if place < arrived:
                    receipt.arrived(number)
                else:
                    receipt.lose(number)
        for run, receipt in changed.items():
            self._save(self._receipts[run], receipt)

    def finish(self, run: str) -> None:
        """A run is over; nothing of it is sent any more."""
        receipts = self._receipts.pop(run, None)
        if receipts is None:
            return
        receipt = receipts.of(run)
        receipt.done = receipt.sent == self._numbers.pop(run, 0) and not receipt.missing
        receipt.sender = None  # whoever comes next may send what is missing
        self._save(receipts, receipt)

    def _save(self, receipts: Receipts, receipt: Receipt) -> None:
        try:
            receipts.save(receipt)
        except OSError as error:
            if not self._failed:
                self._failed = True
                logger.warning(
                    "%s: %s; after a kill it is not known what was sent (said once)",
                    receipts.directory,
                    error.strerror or error,
                )


_keepers: Final[weakref.WeakSet[ReceiptKeeper]] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for keeper in list(_keepers):
        keeper.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
