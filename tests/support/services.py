"""Programs that serve: started on free ports of loopback, stopped, killed, started again."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, final
from urllib.request import urlopen

__all__ = ["Service", "loopback_addresses"]

_PORTS: Final = range(20_000, 32_000)
_UP_WITHIN_S: Final = 30
_DOWN_WITHIN_S: Final = 20


def loopback_addresses(*names: str) -> dict[str, str]:
    """An address of loopback that is free, for each name.

    It stays free while its service is down: its port is none that the system gives to
    those who connect somewhere.
    """
    found: dict[str, str] = {}
    waiting = [*names]
    while waiting:
        port = random.choice(_PORTS)
        address = f"127.0.0.1:{port}"
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if address not in found.values():
            found[waiting.pop()] = address
    return found


@final
class Service:
    """A program that serves, from the beginning of the block to its end.

    Args:
        name: what it is, for messages.
        command: the program and its arguments.
        environment: its variables, besides this process's own.
        ready: an address that answers with 200 once it is up.
        log: the file that its output is appended to.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        ready: str,
        log: Path,
    ) -> None:
        self.name = name
        self._command = [*map(str, command)]
        self._environment = dict(environment)
        self._ready = ready
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Service:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it, if it runs."""
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it is up.

        Raises:
            RuntimeError: if it does not come up; the message has the end of its log.
        """
        assert self._process is None, f"{self.name} runs already"
        inherited = {key: value for key, value in os.environ.items() if key[:5] != "OTEL_"}
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                env={**inherited, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _UP_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"{self.name} does not come up; it says:\n{self.said[-4000:]}")

    def stop(self) -> None:
        """Ask it to end, as a machine that shuts down does, and wait until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, as when memory is short: it cannot put anything in order."""
        self._end(signal.SIGKILL)

    @property
    def said(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(errors="replace")

    def _answers(self) -> bool:
        try:
            with urlopen(self._ready, timeout=2) as response:
                return bool(response.status == http.client.OK)
        except (OSError, http.client.HTTPException):
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_DOWN_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
