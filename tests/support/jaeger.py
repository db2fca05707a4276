"""A Jaeger: where it listens, what it stores; and one of our own."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from .programs import free_ports
from .wire import WireSpan, spans_of_json

__all__ = ["Jaeger", "as_jaeger_shows", "jaeger_of_environment", "running_jaeger"]

_PORTS: Final = ("HEALTH", "QUERY", "QUERY_GRPC", "OTLP_GRPC", "OTLP_HTTP")
_UP_WITHIN_S: Final = 20


@dataclass(frozen=True)
class Jaeger:
    """A running Jaeger.

    Attributes:
        query: address of its API.
        otlp: addresses of its OTLP receivers, by protocol.
    """

    query: str
    otlp: Mapping[str, str]

    def trace(self, trace_id: str) -> list[WireSpan]:
        """The spans that it has of a trace; none where it has no such trace."""
        found = self._get(f"/api/v3/traces/{trace_id}")
        return spans_of_json(found["result"]["resourceSpans"]) if found else []

    def traces(self, trace_ids: Iterator[str] | list[str]) -> dict[str, list[WireSpan]]:
        """The spans of each trace."""
        return {trace_id: self.trace(trace_id) for trace_id in trace_ids}

    def services(self) -> list[str]:
        """The services that spans were of."""
        return list((self._get("/api/v3/services") or {}).get("services") or [])

    def _get(self, path: str) -> Any:
        try:
            with urlopen(self.query + path, timeout=10) as response:
                return json.load(response)
        except HTTPError as error:
            with error:
                if error.code == http.client.NOT_FOUND:
                    return None
            raise


def as_jaeger_shows(span: WireSpan) -> WireSpan:
    """A span with what Jaeger may change done to it.

    Jaeger sorts events, makes of no duration the shortest that it has, and says
    so in an attribute.
    """
    attributes = {name: value for name, value in span.attributes.items() if name[:1] != "@"}
    return span._replace(
        attributes=attributes,
        events=sorted(span.events, key=lambda event: (event.time, event.name, str(event))),
        ended=max(span.ended, span.started + 1),
    )


def jaeger_of_environment() -> Jaeger | None:
    """The Jaeger that ``ROLLOUT_TEST_JAEGER`` names, if it is set.

    Its OTLP receivers are on the usual ports of the same host, unless
    ``ROLLOUT_TEST_JAEGER_GRPC`` and ``ROLLOUT_TEST_JAEGER_HTTP`` say otherwise.
    """
    query = os.environ.get("ROLLOUT_TEST_JAEGER")
    if not query:
        return None
    host = urlsplit(query).hostname
    return Jaeger(
        query.rstrip("/"),
        {
            "grpc": os.environ.get("ROLLOUT_TEST_JAEGER_GRPC") or f"http://{host}:4317",
            "http/protobuf": os.environ.get("ROLLOUT_TEST_JAEGER_HTTP") or f"http://{host}:4318",
        },
    )


@contextmanager
def running_jaeger(program: Path, config: Path, log: Path) -> Iterator[Jaeger]:
    """A Jaeger of our own, on free ports of loopback, until the end of the block.

    Args:
        program: the program.
        config: its configuration, with a variable for each port.
        log: where it logs to.

    Raises:
        RuntimeError: if it does not come up; the message has what it logged.
    """
    for _ in range(4):  # another process may take a port that was free a moment ago
        ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [program, "--config", config],
                env={
                    **os.environ,
                    **{f"JAEGER_{name}_PORT": str(port) for name, port in ports.items()},
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            if _comes_up(process, ports["HEALTH"]):
                yield Jaeger(
                    f"http://127.0.0.1:{ports['QUERY']}",
                    {
                        "grpc": f"http://127.0.0.1:{ports['OTLP_GRPC']}",
                        "http/protobuf": f"http://127.0.0.1:{ports['OTLP_HTTP']}",
                    },
                )
                return
        finally:
            _stop(process)
    raise RuntimeError(f"Jaeger does not come up; it says:\n{log.read_text(errors='replace')}")


def _comes_up(process: subprocess.Popen[bytes], health_port: int) -> bool:
    deadline = time.monotonic() + _UP_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{health_port}/status", timeout=2) as response:
                if json.load(response).get("healthy"):
                    # Whoever answers may be another one, which took the port first.
                    return process.poll() is None
        except (OSError, http.client.HTTPException, ValueError):
            pass
        time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
