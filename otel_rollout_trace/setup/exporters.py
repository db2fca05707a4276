"""Exporters as the standard environment variables name them."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from .fitting import FittingExporter
from .quiet import Outage

__all__ = [
    "PROTOCOLS",
    "check_endpoint",
    "exporter_names",
    "hint_of",
    "label_of",
    "make_exporter",
    "make_otlp_exporter",
    "protocol_of",
    "target_of",
]

Signal = Literal["traces", "metrics"]

PROTOCOLS: Final = ("grpc", "http/protobuf")
"""The OTLP protocols that there are exporters for."""

_GRPC_PORT: Final = 4317
# The plug-ins that are meant by ``otlp``, which may also be named themselves.
_OTLP_NAMES: Final = ("otlp_proto_grpc", "otlp_proto_http")

_DEFAULTS: Final = {"grpc": "http://localhost:4317", "http/protobuf": "http://localhost:4318"}
_GROUPS: Final = {
    "traces": "opentelemetry_traces_exporter",
    "metrics": "opentelemetry_metrics_exporter",
}


def exporter_names(signal: Signal) -> list[str]:
    """The names in ``OTEL_TRACES_EXPORTER`` or ``OTEL_METRICS_EXPORTER``; ``otlp`` by default."""
    names = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() or "otlp"
    found = [name.strip() for name in names.split(",") if name.strip()]
    return [] if found == ["none"] else found


def protocol_of(signal: Signal, endpoint: str | None = None, protocol: str | None = None) -> str:
    """The OTLP protocol to use.

    What is given, else what the environment says, else what the endpoint's port
    is for: 4317 is gRPC's, as is any that ends so (14317, forwarded), and any other
    HTTP's. Without an endpoint it is gRPC, as in the SDK's own start-up.

    Raises:
        ValueError: for a protocol that there is no exporter for.
    """
    environ = os.environ
    protocol = (
        protocol
        or environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or ""
    ).strip()
    if not protocol:
        endpoint = endpoint or endpoint_of(signal)
        if not endpoint:
            return "grpc"
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        return "grpc" if (_port(parts) or 0) % 10_000 == _GRPC_PORT else "http/protobuf"
    if protocol not in PROTOCOLS:
        raise ValueError(f"OTLP protocol {protocol!r} is none of: {', '.join(PROTOCOLS)}")
    return protocol


def endpoint_of(signal: Signal) -> str:
    """The endpoint that the environment gives for a signal; empty for none."""
    return (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or ""
    )


def target_of(signal: Signal, endpoint: str | None = None, protocol: str | None = None) -> str:
    """The receiver's address, as it is told to people."""
    return endpoint or endpoint_of(signal) or _DEFAULTS[protocol_of(signal, endpoint, protocol)]


def label_of(target: str, protocol: str) -> str:
    """A receiver as it is told to people who may have to find out why nothing arrives."""
    return f"{target} ({'gRPC' if protocol == 'grpc' else 'HTTP'})"


def hint_of(protocol: str, reason: str) -> str:
    """What to try where nothing arrives; empty where that is not about the protocol."""
    if protocol != "grpc" and re.search("Connection aborted|BadStatusLine|reset by peer", reason):
        return "; if that is a gRPC port: --protocol grpc"
    if protocol == "grpc" and re.search("INTERNAL|UNAVAILABLE|UNIMPLEMENTED", reason):
        return "; if that is an HTTP port: --protocol http/protobuf"
    return ""


def make_otlp_exporter(
    signal: Signal,
    *,
    endpoint: str | None = None,
    protocol: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """An OTLP exporter for a signal; what is not given comes from the environment.

    One of spans sends no request that is too large for a receiver.

    Args:
        signal: what it exports.
        endpoint: the receiver's base address, ``http://host:4318``, without the
            signal's path.
        protocol: one of `PROTOCOLS`.
        headers: sent with every request.

    Raises:
        ValueError: for an unknown protocol, or an endpoint that is no address.
    """
    settings: dict[str, Any] = {}
    chosen = protocol_of(signal, endpoint, protocol)
    if headers:
        settings["headers"] = dict(headers)
    if endpoint:
        parts = check_endpoint(endpoint)
        settings["endpoint"] = endpoint
        if chosen == "grpc":
            settings["insecure"] = parts.scheme == "http"
        elif not parts.path.rstrip("/").endswith(f"/v1/{signal}"):
            settings["endpoint"] = f"{endpoint.rstrip('/')}/v1/{signal}"
    name = "otlp_proto_grpc" if chosen == "grpc" else "otlp_proto_http"
    kind = _load(signal, name)
    if signal == "metrics":
        return _quiet(kind, target_of(signal, endpoint, protocol))(**settings)
    return FittingExporter(kind(**settings))


def check_endpoint(endpoint: str) -> SplitResult:
    """The parts of a receiver's address.

    Raises:
        ValueError: if it is none.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or _port(parts) == -1:
        raise ValueError(f"endpoint {endpoint!r} is not like http://host:4318")
    return parts


def _quiet(kind: Any, target: str) -> Any:
    """A metric exporter's class, which says once that nothing arrives."""

    class Quiet(kind):  # type: ignore[misc] # known when it runs
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.outage = Outage(self, "metrics", target)

        def export(self, *args: Any, **kwargs: Any) -> Any:
            with self.outage.watch():
                result = super().export(*args, **kwargs)
            self.outage.note(bool(result.value == 0))
            return result

    return Quiet


def make_exporter(name: str, signal: Signal, **otlp: Any) -> Any:
    """The exporter (or metric reader) of that name.

    Args:
        name: ``otlp``, or any that is installed as an SDK plug-in.
        signal: what it exports.
        otlp: settings for `make_otlp_exporter`.

    Raises:
        ValueError: for a name that is not installed.
    """
    if name == "otlp":
        return make_otlp_exporter(signal, **otlp)
    made = _load(signal, name)()
    return FittingExporter(made) if signal == "traces" and name in _OTLP_NAMES else made


def _load(signal: Signal, name: str) -> Any:
    found = next(iter(entry_points(group=_GROUPS[signal], name=name)), None)
    if found is None:
        raise ValueError(f"no {signal} exporter named {name!r} is installed")
    loaded = found.load()
    if not inspect.isclass(loaded):
        raise ValueError(f"the {signal} exporter {name!r} is not a class")
    return loaded


def _port(parts: Any) -> int | None:
    try:
        port: int | None = parts.port
    except ValueError:
        return -1
    return port
