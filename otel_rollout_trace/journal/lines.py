"""One line of the log: from bytes to an event, repairing what can be repaired."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from ..events import Event, NotAnEvent, check_event

__all__ = ["MAX_LINE_BYTES", "LineMaker", "decode_line", "encode_line", "recover"]

#: A longer line is passed over: it is no event, and would have to be held whole.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode

# Where a record may begin inside a torn line. Its keys may stand in any order.
_RECORD_START: Final = re.compile(rb'\{\s*"(?:t|run|event)"\s*:')

# How many such places are tried. A torn line has one or two; a line made to be
# slow has thousands, and each try reads it to its end.
_MOST_TRIES: Final = 32

# The digits of any time since 2001 in nanoseconds, with a comma behind them.
_NANO_DIGITS: Final = 20

# What ends a line and begins the next, to the microsecond; and the places of its digits.
_START: Final = b',\n{"t":0000000000.000000'
_PLACES: Final = [place for place, char in enumerate(_START) if char == ord("0")]

_without_brace: Final = itemgetter(slice(1, None))

# How many events' names are kept encoded. A run has a dozen.
_MOST_NAMES: Final = 1_000


def encode_line(event: Event) -> bytes:
    """An event as a line of the log, without its line end."""
    return _encode(event)


class LineMaker:
    """Puts the header of one run's lines before fields that are encoded already.

    Args:
        run: the run's id.
    """

    def __init__(self, run: str) -> None:
        self._headers = _Headers(b',"run":' + _encode(run) + b',"event":')

    def block(self, events: list[Any]) -> bytes:
        """The events' lines, each with its line end.

        Args:
            events: flat, of one event after the other the nanoseconds since the epoch,
                its name, and its other fields as a JSON object without spaces. Used up.
        """
        if not events:
            return b""
        # All lines at once, which takes a third of the time that one after the other does.
        times = _times(events[0::3])
        headers = [*map(self._headers.__getitem__, events[1::3])]
        rests = [*map(_without_brace, events[2::3])]
        if b"}" in rests:  # no fields, and no comma before them
            headers = [
                header[:-1] if rest == b"}" else header
                for header, rest in zip(headers, rests, strict=True)
            ]
        events[0::3], events[1::3], events[2::3] = times, headers, rests
        events.append(b"\n")
        return b"".join(events)


def _times(nanos: list[int]) -> Sequence[bytes | bytearray]:
    """How a line begins, for each time, with the line end before it but for the first.

    Whole microseconds, which survive the way into nanoseconds and back.
    """
    digits = _encode(nanos)[1:]
    if len(digits) != _NANO_DIGITS * len(nanos):
        alone = [b'\n{"t":' + _encode(nano // 1000 / 1e6) for nano in nanos]
        return [alone[0][1:], *alone[1:]]
    # The digits of all of them are put in their places one column at a time.
    starts = bytearray(_START * len(nanos))
    for digit, place in enumerate(_PLACES):
        starts[place :: len(_START)] = digits[digit::_NANO_DIGITS]
    return starts[2:].split(b",")


class _Headers(dict[str, bytes]):
    """What stands between a line's time and its fields, by the event's name."""

    def __init__(self, run: bytes) -> None:
        super().__init__()
        self._run = run

    def __missing__(self, event: str) -> bytes:
        name = event.encode("utf-8", "replace").decode()  # a lone surrogate does not encode
        header = self._run + _encode(name) + b","
        if len(self) < _MOST_NAMES:
            self[event] = header
        return header


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
    except json.JSONDecodeError as error:  # which counts lines of its own
        raise NotAnEvent(f"not JSON: {error.msg} at column {error.colno}") from None
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
