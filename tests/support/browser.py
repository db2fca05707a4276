"""A headless Chromium that tests drive as a person would, over its DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import websocket

__all__ = ["CHROMIUM", "Browser", "Page", "chromium"]

CHROMIUM: Final = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""The program; None where there is none."""

_PATIENCE_S: Final = 60.0


class Page:
    """A tab, and everything that went wrong or over the network in it.

    Attributes:
        requests: addresses that it asked for.
        complaints: what its console said, of warnings and errors, and uncaught exceptions.
    """

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(
            address, timeout=_PATIENCE_S, suppress_origin=True
        )
        self._numbers = itertools.count(1)
        self._loaded = False
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self._hear(message["method"], message["params"])

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled":
            if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["entry"])[:500])

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is."""
        self._loaded = False
        self.call("Page.navigate", url=path.absolute().as_uri())
        self.wait_until("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression, or of the promise that it gives."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + _PATIENCE_S
        while not self.run(condition):
            assert time.monotonic() < until, f"never: {condition}"
            time.sleep(0.05)

    def look(self, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Set the size of the window, and which colours the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def mouse(self, kind: str, x: float, y: float, *, held: bool = False) -> None:
        """Move, press or release the left button."""
        button = "none" if kind == "mouseMoved" and not held else "left"
        self.call(
            "Input.dispatchMouseEvent",
            type=kind, x=x, y=y, button=button, buttons=int(held), clickCount=1,
        )  # fmt: skip

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """Press, move and release."""
        self.mouse("mouseMoved", x0, y0)
        self.mouse("mousePressed", x0, y0, held=True)
        for part in (0.3, 0.6, 1.0):
            self.mouse("mouseMoved", x0 + part * (x1 - x0), y0 + part * (y1 - y0), held=True)
        self.mouse("mouseReleased", x1, y1)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """What is in view, or the whole page, as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        """Let go of the tab."""
        self._socket.close()


class Browser:
    """A running Chromium.

    Args:
        port: of its DevTools.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def new_page(self) -> Page:
        """An empty tab."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT"
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            return Page(json.load(answer)["webSocketDebuggerUrl"])


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium with a profile of its own; it and the profile are gone afterwards."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                # WebGL without a graphics card.
                "--enable-unsafe-swiftshader",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield Browser(_port_of(Path(profile), process))
        finally:
            # It and the processes that it started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _port_of(profile: Path, process: subprocess.Popen[bytes]) -> int:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        try:
            return int((profile / "DevToolsActivePort").read_text().splitlines()[0])
        except (OSError, IndexError):
            time.sleep(0.05)
    raise AssertionError("Chromium did not open its DevTools")
