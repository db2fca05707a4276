"""Chrome's JSON trace events: for chrome://tracing, Perfetto, and many other viewers.

A run is a process here and a track a thread, since the format has nothing else to
put things on. Slices are complete events (``X``), written as they come: viewers sort.
"""

from __future__ import annotations

from collections import Counter
from typing import IO, Any, Final

import msgspec

from .timeline import Details, Slice

__all__ = ["ChromeCanvas"]

_encode: Final = msgspec.json.Encoder().encode

# Where the children of a track are sorted among all threads of a run.
_BELOW: Final = 1_000


class ChromeCanvas:
    """Writes a timeline as trace events, one a line.

    Args:
        file: takes the bytes.

    Attributes:
        written: how many of what were written.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.written: Counter[str] = Counter()
        self._file = file
        # Of a track's id, its process and its thread, and how it is sorted.
        self._places: list[tuple[int, int, int]] = []
        self._counters: list[tuple[int, str]] = []
        self._processes = 0
        self._between = b'{"displayTimeUnit":"ms","traceEvents":[\n'

    def run(self, name: str) -> int:
        """See `Canvas`."""
        self._processes += 1
        pid = self._processes
        self._write({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        self._write(
            {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        )
        self._places.append((pid, 0, -_BELOW))
        return len(self._places) - 1

    def track(self, parent: int, name: str, rank: int) -> int:
        """See `Canvas`."""
        pid, tid, before = self._places[parent]
        # Below a run every rank has room for its own children.
        order = rank * _BELOW if tid == 0 else before + 1 + min(rank, _BELOW - 2)
        track = len(self._places)
        self._places.append((pid, track, order))
        at = {"ph": "M", "pid": pid, "tid": track}
        self._write(at | {"name": "thread_name", "args": {"name": name}})
        self._write(at | {"name": "thread_sort_index", "args": {"sort_index": order}})
        self.written["tracks"] += 1
        return track

    def counter(self, parent: int, name: str, unit: str, rank: int) -> int:
        """See `Canvas`."""
        self._counters.append((self._places[parent][0], name))
        self.written["tracks"] += 1
        return len(self._counters) - 1

    def slice(self, track: int, drawn: Slice) -> None:
        """See `Canvas`."""
        pid, tid, _ = self._places[track]
        at = {"ts": drawn.started, "pid": pid, "tid": tid}
        self._write(
            {
                "ph": "X",
                "name": drawn.name,
                "cat": drawn.category,
                **at,
                "dur": drawn.ended - drawn.started,
                "args": drawn.details,
            }
        )
        for time, name, details in drawn.moments:
            self.instant(track, time, name, details)
        flow = {"name": "resumed", "cat": "resumed", **at}
        if drawn.flow_out is not None:
            self._write({"ph": "s", "id": f"{drawn.flow_out:x}", **flow})
        for flow_id in drawn.flows_in:
            self._write({"ph": "f", "bp": "e", "id": f"{flow_id:x}", **flow})

    def instant(self, track: int, time: int, name: str, details: Details) -> None:
        """See `Canvas`."""
        pid, tid, _ = self._places[track]
        at = {"ts": time, "pid": pid, "tid": tid}
        self._write({"ph": "i", "s": "t", "name": name, **at, "args": details})
        self.written["instants"] += 1

    def value(self, counter: int, time: int, value: float) -> None:
        """See `Canvas`."""
        pid, name = self._counters[counter]
        self._write({"ph": "C", "name": name, "ts": time, "pid": pid, "args": {"value": value}})

    def close(self) -> None:
        """See `Canvas`."""
        self._file.write(self._between if not self._places else b"\n")
        self._file.write(b"]}\n")

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(self._between)
        self._file.write(_encode(event))
        self._between = b",\n"
