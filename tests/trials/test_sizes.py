"""Much at once: two writers of a file, a million events, hundreds of runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from support.logs import EXAMPLE

from otel_rollout_trace import read_events

from .common import Driven, events_in, program, run

pytestmark = [pytest.mark.trial, pytest.mark.timeout(240)]

_OPEN: Final = 100_000
_EVENTS: Final = 1_000_000


def test_processes_that_write_one_file_do_not_mix_their_lines(
    log: Path, figure: Callable[[str, object], None]
) -> None:
    """In bursts and at a pace: whole lines, and each run in its order."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(Driven(log, export)) for export in ("file", "file", "process")
        ]
        for writer in writers:
            writer.do("open")
        for command in (("emit", 20_000, 100), ("emit", 1_000, 3_000, 0.0002), ("emit", 20_000, 1)):
            for writer in writers:
                writer.say(*command)
            for writer in writers:
                writer.answer()
        for writer in writers:
            writer.say("close")
        ends = [writer.answer() for writer in writers]
        for writer in writers:
            writer.end()
    events = events_in(log)
    assert list(read_events(log, strict=True)) == events
    for end in ends:
        own = [event for event in events if event["run"] == end["run"]]
        assert own[0]["event"] == "trace_opened"
        assert [event["number"] for event in own[1:]] == list(range(41_000))
        assert end["dropped"] == 0
    assert len({end["run"] for end in ends}) == 3
    changes = sum(a["run"] != b["run"] for a, b in pairwise(events))
    figure("lines of 3 runs, how often they take turns", f"{len(events):,}, {changes:,}")
    assert changes > 3


def _long_log() -> Iterator[bytes]:
    """Groups of four attempts; from some time on so many are out, and the oldest ends first."""
    time = 1_790_000_000.0
    header = b'{"t":%.6f,"run":"db5b5fab8f4d3e27dda1494c73cf256d","event":'

    def line(event: bytes, *values: Any) -> bytes:
        nonlocal time
        time += 0.001
        return header % time + event % values + b"}\n"

    events = group = 0
    while events < _EVENTS:
        yield line(b'"group_reserved","group_id":"%016x","prompt_id":%d', group, group)
        for attempt in range(4):
            ids = (group, 4 * group + attempt, attempt)
            yield line(
                b'"attempt_dispatched","group_id":"%016x","attempt_id":"%016x",'
                b'"generation_index":%d,"weight_version":0',
                *ids,
            )
        events += 5
        old = group - _OPEN // 4
        group += 1
        if old < 0:
            continue
        for attempt in range(4):
            yield line(
                b'"attempt_sealed","group_id":"%016x","attempt_id":"%016x","tokens":100',
                old,
                4 * old + attempt,
            )
        yield line(b'"group_discarded","group_id":"%016x","reason":"filtered"', old)
        events += 5


@pytest.mark.skipif(sys.platform != "linux", reason="reads what /proc says")
def test_a_million_events_with_a_hundred_thousand_attempts_out_take_bounded_memory(
    log: Path, figure: Callable[[str, object], None]
) -> None:
    """So much for each attempt that is out, and nothing for those that ended."""
    with log.open("wb") as file:
        file.writelines(_long_log())
    out, _ = run(program("million", log, EXAMPLE), timeout=200)
    found = json.loads(out)
    figure("events, spans", f"{found['events']:,}, {found['spans']:,}")
    figure("seconds", f"{found['seconds']:.1f}")
    figure(
        "memory, for each attempt that is out",
        f"{found['grown'] / 1e6:.0f} MB, {found['grown'] / _OPEN:,.0f} B",
    )
    assert found["events"] >= _EVENTS
    assert found["attempts"]["interrupted"] == _OPEN
    assert found["attempts"]["sealed"] > 3 * _OPEN
    # As many spans ended as would not fit into it if they were kept.
    assert found["grown"] < 5_000 * _OPEN
