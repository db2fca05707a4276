"""Spans and points as OTLP carries them, in plain values that can be compared."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped] # no types
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

__all__ = [
    "WireEvent",
    "WireSpan",
    "spans_of_json",
    "spans_of_protobuf",
    "spans_of_sdk",
    "values_of",
]

ERROR = 2


class WireEvent(NamedTuple):
    """A span event; its time in nanoseconds since the epoch."""

    name: str
    time: int
    attributes: dict[str, Any]


class WireSpan(NamedTuple):
    """A span; ids in hex, times in nanoseconds since the epoch."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    started: int
    ended: int
    attributes: dict[str, Any]
    events: list[WireEvent]
    links: list[tuple[str, str]]
    status: int
    scope: str
    resource: dict[str, Any]

    @property
    def happened(self) -> list[tuple[int, str]]:
        """Times and names of what the log says happened, in order of time.

        A backend may change the order. What a stop cost is worked out, not said.
        """
        return sorted(
            (event.time, event.name) for event in self.events if event.name != "rl.restore"
        )


def spans_of_json(resource_spans: Iterable[Mapping[str, Any]]) -> list[WireSpan]:
    """Spans of OTLP's JSON encoding, whose ids are hex."""
    return list(_spans(resource_spans, str))


def spans_of_protobuf(request: Any) -> list[WireSpan]:
    """Spans of an OTLP trace request."""
    data = MessageToDict(request, use_integers_for_enums=True)
    return list(_spans(data.get("resourceSpans", []), _hex_of_base64))


def spans_of_sdk(spans: Sequence[ReadableSpan]) -> list[WireSpan]:
    """Spans of the SDK, as its OTLP exporters send them."""
    return spans_of_protobuf(encode_spans(spans))


def values_of(attributes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """OTLP's key-value lists as a mapping."""
    return {pair["key"]: _value(pair.get("value", {})) for pair in attributes}


def _spans(
    resource_spans: Iterable[Mapping[str, Any]], id_of: Callable[[str], str]
) -> Iterator[WireSpan]:
    for of_resource in resource_spans:
        resource = values_of(of_resource.get("resource", {}).get("attributes", []))
        for of_scope in of_resource.get("scopeSpans", []):
            scope = of_scope.get("scope", {}).get("name", "")
            for span in of_scope.get("spans", []):
                yield WireSpan(
                    name=span["name"],
                    trace_id=id_of(span["traceId"]),
                    span_id=id_of(span["spanId"]),
                    parent_id=id_of(span.get("parentSpanId", "")),
                    started=int(span["startTimeUnixNano"]),
                    ended=int(span["endTimeUnixNano"]),
                    attributes=values_of(span.get("attributes", [])),
                    events=[
                        WireEvent(
                            event["name"],
                            int(event["timeUnixNano"]),
                            values_of(event.get("attributes", [])),
                        )
                        for event in span.get("events", [])
                    ],
                    links=[
                        (id_of(link["traceId"]), id_of(link["spanId"]))
                        for link in span.get("links", [])
                    ],
                    status=span.get("status", {}).get("code", 0),
                    scope=scope,
                    resource=resource,
                )


def _value(value: Mapping[str, Any]) -> Any:
    for kind, content in value.items():
        if kind == "intValue":
            return int(content)
        if kind == "doubleValue":
            return float(content)
        if kind == "arrayValue":
            return [_value(each) for each in content.get("values", [])]
        if kind == "kvlistValue":
            return values_of(content.get("values", []))
        return content
    return None


def _hex_of_base64(text: str) -> str:
    return base64.b64decode(text).hex()
