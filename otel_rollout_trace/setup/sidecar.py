"""The side-car: another process that follows the log and sends what it tells.

It is in a session of its own, so what kills the training process, or the signals
that a terminal sends to both, do not reach it.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ..receipts import Process, Receipts, note_closed, this_process

__all__ = ["SideCar", "recover"]

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.02

_LOG_FILE: Final = "follower.log"


class SideCar:
    """Starts a follower of a log, and waits for it at the end.

    Args:
        log: the log.
        otlp: endpoint, protocol and headers that were given; None for the environment's.
        synonyms: other words for events of the log.
    """

    def __init__(
        self, log: Path, otlp: Mapping[str, Any], synonyms: Mapping[str, str] | None
    ) -> None:
        self._log = log
        self._receipts = Receipts(log)
        self._environ = _environment(otlp)
        self._synonyms = dict(synonyms or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._starting: threading.Thread | None = None

    def ensure(self, run: str) -> None:
        """Start it if there is none, as for a run in the child of a fork.

        Does not wait for that: whoever calls it has a log to write.
        """
        if not self._goes_on():
            self._starting = in_background(lambda: self.start(run))

    def start(self, run: str) -> None:
        """Start it for a run of this process. It ends by itself if the log has one already."""
        self._owner = os.getpid()
        self._process = _spawn(
            self._log,
            self._environ,
            "--run",
            run,
            "--owner",
            str(os.getpid()),
            *(part for pair in self._synonyms.items() for part in ("--synonym", "=".join(pair))),
        )

    def finish(self, run: str, timeout: float) -> None:
        """Tell it that a run is over, and wait until all of that is delivered.

        Args:
            run: the run's id.
            timeout: for how many seconds at most; it goes on after that.
        """
        deadline = time.monotonic() + timeout
        try:
            note_closed(self._receipts.directory, run)
        except OSError as error:
            logger.warning("%s: %s", self._receipts.directory, error.strerror or error)
        if self._starting is not None:
            self._starting.join(timeout)
        started_again = False
        while time.monotonic() < deadline:
            receipt = self._receipts.read(run)
            if receipt is not None and receipt.done:
                return
            if not started_again and self._is_gone(receipt):
                started_again = True
                self.start(run)
            time.sleep(_LOOK_S)
        goes_on = self._goes_on()
        logger.warning(
            "%s: not all of run %s is delivered yet; %s%s",
            self._log,
            run,
            "the side-car goes on with it"
            if goes_on
            else f"the side-car has ended, otel-rollout-trace follow {self._log} goes on with it",
            self._last_words(),
        )

    def _goes_on(self) -> bool:
        process = self._process
        if process is None:
            return False
        if self._owner == os.getpid():
            return process.poll() is None
        return bool(Process(process.pid, socket.gethostname()).runs())

    def _last_words(self) -> str:
        try:
            lines = (self._receipts.directory / _LOG_FILE).read_text("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((f" ({line})" for line in reversed(lines) if line), "")

    def _is_gone(self, receipt: Any) -> bool:
        if self._goes_on():
            return False
        return receipt is None or receipt.sender is None or not receipt.sender.runs()


def recover(log: Path, otlp: Mapping[str, Any]) -> None:
    """Have another process send what earlier runs of a log began to send and did not finish.

    Runs whose process is still there are left alone.
    """
    unfinished = [
        receipt
        for receipt in Receipts(log).all()
        if not receipt.done and not (receipt.sender is not None and receipt.sender.runs())
    ]
    if unfinished:
        owner = str(this_process().pid)
        in_background(lambda: _spawn(log, _environment(otlp), "--begun-only", "--owner", owner))


def in_background(work: Callable[[], object]) -> threading.Thread | None:
    """Do it on a thread; where none starts any more, at the interpreter's end, at once."""
    thread = threading.Thread(target=work, name="rollout-trace-sidecar", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        work()
        return None
    return thread


def _spawn(log: Path, environ: dict[str, str], *arguments: str) -> subprocess.Popen[bytes] | None:
    directory = Receipts(log).directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Not into this process's own streams: whoever waits for their end would wait for
        # the side-car too.
        with (directory / _LOG_FILE).open("ab") as messages:
            return subprocess.Popen(  # noqa: S603 - this very interpreter and package
                [sys.executable, "-m", "otel_rollout_trace.following", *arguments, str(log)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        logger.error(
            "%s: no side-car can be started (%s); otel-rollout-trace follow sends the log",
            log,
            error,
        )
        return None


def _environment(otlp: Mapping[str, Any]) -> dict[str, str]:
    """This process's environment, with what was given in place of what it says."""
    environ = dict(os.environ)
    headers: Mapping[str, str] | None = otlp.get("headers")
    given = {
        "ENDPOINT": otlp.get("endpoint"),
        "PROTOCOL": otlp.get("protocol"),
        # Not in the arguments, which everyone on the machine can see.
        "HEADERS": ",".join(f"{name}={quote(value)}" for name, value in headers.items())
        if headers
        else None,
    }
    for setting, value in given.items():
        if value:
            environ[f"OTEL_EXPORTER_OTLP_{setting}"] = value
            for signal in ("TRACES", "METRICS"):
                environ.pop(f"OTEL_EXPORTER_OTLP_{signal}_{setting}", None)
    # It may not be installed where Python looks, but found by how this was started.
    package_parent = str(Path(__file__).parents[2])
    path = [package_parent, *filter(None, [environ.get("PYTHONPATH")])]
    environ["PYTHONPATH"] = os.pathsep.join(path)
    # Its spans come from the log only.
    environ.pop("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", None)
    return environ
