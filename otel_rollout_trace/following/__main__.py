"""The side-car: a follower as a child of the process that records.

``python -m otel_rollout_trace.following LOG`` follows a log until nobody writes it
any more and all is delivered. `otel_rollout_trace.setup.sidecar` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Final

from ..events import Vocabulary
from ..journal import LogError
from ..receipts import Process, Receipt, Receipts
from .follower import Followed, Until
from .lock import AlreadyFollowedError
from .wiring import StopRequest, make_follower

logger = logging.getLogger("otel_rollout_trace")

# How often it is looked whether the other side-car still follows the log.
_LOOK_S: Final = 0.2

# For how long it goes on trying to reach a receiver that is away, once nobody writes
# the log any more. What is left then is sent when the log is opened or followed again.
_LINGER_S: Final = 900.0


class _Linger:
    """Gives up on a receiver that stays away when there is nothing else to wait for."""

    def __init__(self, stop: StopRequest, owner: Process) -> None:
        self._stop = stop
        self._owner = owner
        self._since: float | None = None

    def __call__(self, found: Followed) -> None:
        if not found.outage or self._owner.runs():
            self._since = None
            return
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > _LINGER_S:
            logger.error("%d span(s) wait; nothing arrives: %s", found.waiting, found.outage)
            self._stop.make()


def main(arguments: list[str] | None = None) -> int:
    """Run the side-car; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m otel_rollout_trace.following")
    parser.add_argument("log", type=Path)
    parser.add_argument("--run", default="", help="the run that this was started for")
    parser.add_argument("--owner", type=int, default=0, help="the process that records it")
    parser.add_argument("--begun-only", action="store_true", help="finish what others began")
    parser.add_argument("--synonym", action="append", default=[], metavar="WORD=EVENT")
    options = parser.parse_args(arguments)
    with contextlib.suppress(OSError):
        os.nice(5)  # training comes first
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    synonyms = dict(synonym.split("=", 1) for synonym in options.synonym)
    receipts = Receipts(options.log)
    owner = Process(options.owner, socket.gethostname())
    stop = StopRequest()
    stop.on_signals()

    def awaits(met: Container[str]) -> bool:
        return bool(options.run) and options.run not in met and bool(owner.runs())

    while not stop.made:
        try:
            follower, _ = make_follower(
                options.log,
                stop,
                vocabulary=Vocabulary(synonyms),
                until=Until.WRITERS_GONE,
                begun_only=options.begun_only,
                metrics=not options.begun_only,
                processes={options.run: owner} if options.run else None,
                awaits=awaits,
                progress=_Linger(stop, owner),
            )
            follower.run()
        except AlreadyFollowedError:
            receipt = receipts.read(options.run)
            if options.begun_only or not owner.runs() or _is_cared_for(receipt):
                return 0
            # The other one may be about to end, without having seen our run.
            if stop.wait(_LOOK_S):
                return 0
        except (LogError, OSError, ValueError) as error:
            logger.error("%s", error)
            return 1
        else:
            return 0
    return 0


def _is_cared_for(receipt: Receipt | None) -> bool:
    if receipt is None:
        return False
    return receipt.done or (receipt.sender is not None and bool(receipt.sender.runs()))


if __name__ == "__main__":
    sys.exit(main())
