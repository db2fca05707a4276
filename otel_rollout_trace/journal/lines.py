"""One line of the log: from bytes to an event, repairing what can be repaired."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from ..events import Event, NotAnEvent, check_event

__all__ = ["MAX_LINE_BYTES", "decode_line", "encode_line", "recover"]

#: A longer line is passed over: it is no event, and would have to be held whole.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode

# Where a record may begin inside a torn line. Its keys may stand in any order.
_RECORD_START: Final = re.compile(rb'\{\s*"(?:t|run|event)"\s*:')

# How many such places are tried. A torn line has one or two; a line made to be
# slow has thousands, and each try reads it to its end.
_MOST_TRIES: Final = 32


def encode_line(event: Event) -> bytes:
    """An event as a line of the log, without its line end."""
    return _encode(event)


def decode_line(line: bytes, *, strict: bool = False) -> Event:
    """One line, without its line end, as an event.

    Args:
        line: the bytes between two line ends.
        strict: take strict JSON only. Otherwise bare ``NaN`` and ``Infinity``
            (which Python's ``json`` writes) and numbers past a double's range
            become None, and bytes that are no UTF-8 become U+FFFD.

    Raises:
        NotAnEvent: if the line holds no event; the message says why.
    """
    try:
        value = _decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        if strict:
            raise NotAnEvent(f"not JSON: {error}") from None
        value = _decode_leniently(line)
    return check_event(value)


def _decode_leniently(line: bytes) -> Any:
    try:
        value = json.loads(
            line.decode("utf-8", "replace"),
            parse_constant=lambda _: None,
            parse_float=_finite,
            strict=False,
        )
        return _without_surrogates(value)
    except (ValueError, RecursionError) as error:
        raise NotAnEvent(f"not JSON: {error}") from None


def recover(line: bytes) -> Event | None:
    """The record that was fused to a torn line, if there is one.

    A process killed in the middle of a line leaves it without a line end; where
    the next one simply appends, its first record stands on the same line.
    """
    for tries, match in enumerate(_RECORD_START.finditer(line, 1)):
        if tries == _MOST_TRIES:
            return None
        try:
            return decode_line(line[match.start() :])
        except NotAnEvent:
            continue
    return None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if abs(value) != float("inf") else None


def _without_surrogates(value: Any) -> Any:
    """The same value with lone surrogates, which UTF-8 cannot hold, replaced."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(v) for key, v in value.items()}
    return value
