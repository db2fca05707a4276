"""The events of ``tests/data/steady.jsonl``, as often as wanted, with new ids each time."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

__all__ = ["STEADY_EVENTS", "Call", "Written", "calls", "copies", "write_log", "written"]

Call: TypeAlias = tuple[str, dict[str, Any]]
"""An event's name and its fields."""

Written: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]
"""A line of training code that emits, as a function of ``emit`` and its values; and those."""

_STEADY: Final = (Path(__file__).parent.parent / "data" / "steady.jsonl").read_bytes()
STEADY_EVENTS: Final = _STEADY.count(b"\n")

_RUN: Final[bytes] = json.loads(_STEADY.splitlines()[0])["run"].encode()
_ID: Final = re.compile(rb'"[0-9a-f]{4}([0-9a-f]{12})"')
_STEP: Final = re.compile(rb'"step": ([0-9]+)')


def copies() -> Iterator[bytes]:
    """The log without end, each time as another run with other groups, attempts and steps."""
    for number in range(0x10000):
        copy = _ID.sub(rb'"%04x\1"' % number, _STEADY)
        copy = _STEP.sub(rb'"step": %d\g<1>' % (number + 1), copy)
        yield copy.replace(_RUN, b"%04x" % number + _RUN[4:])


def calls(number: int) -> list[Call]:
    """The first so many events, as they would be passed to ``emit``."""
    found: list[Call] = []
    for copy in copies():
        for line in copy.splitlines():
            fields = {sys.intern(key): value for key, value in json.loads(line).items()}
            event = sys.intern(fields.pop("event"))
            if event == "trace_opened":
                continue  # opening a log writes that
            del fields["t"], fields["run"]
            found.append((event, fields))
            if len(found) == number:
                return found
    raise AssertionError("there are enough copies")


def written(batch: Iterable[Call]) -> list[Written]:
    """The calls as they stand in training code, the name of each field written out.

    Passing on a mapping of fields would cost every side as much again as such a call.
    """
    return [(_line(event, tuple(fields)), tuple(fields.values())) for event, fields in batch]


@lru_cache
def _line(event: str, names: tuple[str, ...]) -> Callable[..., None]:
    fields = "".join(f", {name}={name}" for name in names)
    line: Callable[..., None] = eval(f"lambda emit, {', '.join(names)}: emit({event!r}{fields})")
    return line


def write_log(path: Path, events: int) -> int:
    """Write at least so many events; returns how many it were."""
    written = 0
    with path.open("wb") as file:
        for copy in copies():
            file.write(copy)
            written += STEADY_EVENTS
            if written >= events:
                break
    return written
