"""Making lines: many at once, each as if made alone."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from otel_rollout_trace.journal import LineMaker, decode_line

# Since 1970, and since 2001, when times got as many digits as they have now.
_MICROS = st.integers(0, 10**15) | st.integers(10**15, 9_223_372_036 * 10**6)
_FIELDS = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name not in ("t", "run", "event")),
    st.none() | st.integers(-(2**53), 2**53) | st.text() | st.lists(st.text()),
    max_size=4,
)


@given(st.lists(st.tuples(_MICROS, st.text(min_size=1), _FIELDS), max_size=8))
def test_every_line_holds_its_event(events: list[tuple[int, str, dict[str, object]]]) -> None:
    """Its time to the microsecond, its fields in order behind the header."""
    queued: list[object] = []
    for micros, name, fields in events:
        queued += micros * 1000 + 7, name, msgspec.json.encode(fields)
    block = LineMaker("a run").block(queued)
    lines = block.split(b"\n")
    assert lines.pop() == b""
    decoded = [decode_line(line, strict=True) for line in lines]
    assert [list(event.items()) for event in decoded] == [
        [("t", micros / 1e6), ("run", "a run"), ("event", name), *fields.items()]
        for micros, name, fields in events
    ]


def test_a_name_that_is_no_text_becomes_one() -> None:
    """Half a surrogate pair, which UTF-8 cannot hold."""
    line = LineMaker("run").block([0, "half \ud800", b"{}"])
    assert json.loads(line) == {"t": 0.0, "run": "run", "event": "half ?"}
