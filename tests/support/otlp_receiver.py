"""An OTLP receiver inside the test process, over gRPC and HTTP, that can misbehave."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple

import grpc  # type: ignore[import-untyped] # no types
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from .wire import WireSpan, spans_of_protobuf, values_of

__all__ = ["MOST_BYTES", "PROTOCOLS", "OtlpReceiver", "Point", "nobody", "resetting"]

Behaviour = Literal["answer", "hang", "unavailable"]

PROTOCOLS: Final = ("grpc", "http/protobuf")

#: The largest request that is taken: what gRPC's servers take if nothing else is said.
MOST_BYTES: Final = 4 * 1024 * 1024

_REQUESTS: Final[dict[str, Any]] = {
    "trace": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_RESPONSES: Final[dict[str, Any]] = {
    "trace": ExportTraceServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_CODES: Final = {
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_PATHS: Final = {"/v1/traces": "trace", "/v1/metrics": "metrics"}


class Point(NamedTuple):
    """A data point of a gauge or a sum."""

    name: str
    value: float
    attributes: dict[str, Any]
    unit: str
    resource: dict[str, Any]


class OtlpReceiver:
    """Takes spans and metrics on loopback, and keeps the requests.

    Args:
        behaviour: ``answer``; ``hang``, which takes requests and never answers; or
            ``unavailable``, which answers with `refusal`. May be set at any time.

    Attributes:
        refusal: what ``unavailable`` is over HTTP; over gRPC it is the code that OTLP
            has for it.
        takes_empty: whether requests without anything in them are answered even so.
        requests: what was taken, as protobuf, by signal: ``trace`` and ``metrics``.
        refused: requests that were not answered, or answered with an error; over gRPC
            without those of more than `MOST_BYTES`, which its server does not pass on.
        headers: of each request, HTTP headers or gRPC metadata, names in lower case.
    """

    def __init__(self, behaviour: Behaviour = "answer") -> None:
        self.behaviour = behaviour
        self.refusal = HTTPStatus.SERVICE_UNAVAILABLE
        self.takes_empty = False
        self.requests: dict[str, list[Any]] = {"trace": [], "metrics": []}
        self.refused = 0
        self.headers: list[dict[str, str]] = []
        self._released = threading.Event()
        self._http = _HttpServer(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._grpc = grpc.server(ThreadPoolExecutor(8))
        self._grpc.add_generic_rpc_handlers(tuple(map(self._service, ("trace", "metrics"))))
        self._grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> OtlpReceiver:  # noqa: PYI034 - typing.Self is newer than 3.10
        self._thread.start()
        self._grpc.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._grpc.stop(grace=None).wait()

    def endpoint(self, protocol: str) -> str:
        """The address for a protocol of OTLP."""
        port = self._grpc_port if protocol == "grpc" else self._http.server_address[1]
        return f"http://127.0.0.1:{port}"

    @property
    def spans(self) -> list[WireSpan]:
        """The spans taken so far."""
        return [span for request in self.requests["trace"] for span in spans_of_protobuf(request)]

    def points(self, name: str) -> list[Point]:
        """The points taken so far of a gauge or sum, in the order in which they came."""
        return [point for request in self.requests["metrics"] for point in _points(request, name)]

    def take(self, signal: str, body: bytes, headers: dict[str, str]) -> bool:
        """Behave as told to; whether the request was taken."""
        self.headers.append(headers)
        if self.behaviour == "answer" or (self.takes_empty and not body):
            request = _REQUESTS[signal]()
            request.ParseFromString(body)
            self.requests[signal].append(request)
            return True
        self.refused += 1
        if self.behaviour == "hang":
            self._released.wait()
        return False

    def _service(self, signal: str) -> Any:
        def export(body: bytes, context: Any) -> Any:
            metadata = {key: str(value) for key, value in context.invocation_metadata()}
            if not self.take(signal, body, metadata):
                context.abort(_CODES[self.refusal], "told to be")
            return _RESPONSES[signal]().SerializeToString()

        return grpc.method_handlers_generic_handler(
            f"opentelemetry.proto.collector.{signal}.v1.{signal.capitalize()}Service",
            {"Export": grpc.unary_unary_rpc_method_handler(export)},
        )


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, receiver: OtlpReceiver) -> None:
        super().__init__(("127.0.0.1", 0), _HttpHandler)
        self.receiver = receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


class _HttpHandler(BaseHTTPRequestHandler):
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        headers = {key.lower(): value for key, value in self.headers.items()}
        signal = _PATHS[self.path]
        if len(body) > MOST_BYTES:
            self.server.receiver.refused += 1
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        elif self.server.receiver.take(signal, body, headers):
            status = HTTPStatus.OK
        else:
            status = self.server.receiver.refusal
        answer = _RESPONSES[signal]().SerializeToString() if status == HTTPStatus.OK else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Nothing."""


@contextmanager
def nobody() -> Iterator[str]:
    """An address that refuses connections; nobody else gets its port meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def resetting() -> Iterator[str]:
    """An address that accepts each connection and resets it at once."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.05)
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                # To linger for no time is to reset.
                option = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            thread.join()


def _points(request: Any, name: str) -> Iterator[Point]:
    for of_resource in MessageToDict(request).get("resourceMetrics", []):
        resource = values_of(of_resource.get("resource", {}).get("attributes", []))
        for of_scope in of_resource.get("scopeMetrics", []):
            for metric in of_scope.get("metrics", []):
                if metric["name"] != name:
                    continue
                data = metric.get("gauge") or metric.get("sum") or {}
                for point in data.get("dataPoints", []):
                    yield Point(
                        name,
                        float(point["asDouble"] if "asDouble" in point else point["asInt"]),
                        values_of(point.get("attributes", [])),
                        metric.get("unit", ""),
                        resource,
                    )
