"""The reader: what real files hold, and what becomes of it."""

from __future__ import annotations

import gzip
import json
import logging
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import SAMPLES, any_logs, hostile_logs, json_values, temporary_log

from otel_rollout_trace import LogError, batch_age_by_step, read_events
from otel_rollout_trace.batch_age import BATCH_AGE_FIELDS
from otel_rollout_trace.events import Event
from otel_rollout_trace.journal import LogReader, decode_line

_RUN = "5f0c1e7a9b3d4c2e8a6f0b1d2c3e4f50"


def _line(number: int, **fields: Any) -> bytes:
    event = {"t": 1_790_000_000 + number / 4, "run": _RUN, "event": f"e{number}", **fields}
    return json.dumps(event).encode()


@pytest.fixture
def log(tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes a file of these bytes."""
    path = tmp_path / "log.jsonl"

    def write(content: bytes) -> Path:
        path.write_bytes(content)
        return path

    return write


def _names(path: Path) -> list[str]:
    return [event["event"] for event in read_events(path)]


def test_events_come_in_the_order_written(log: Callable[[bytes], Path]) -> None:
    """Not in that of their times."""
    assert _names(log(_line(2) + b"\n" + _line(1) + b"\n")) == ["e2", "e1"]


def test_an_event_has_its_fields_beside_its_header(log: Callable[[bytes], Path]) -> None:
    """A plain dict, as the line spells it."""
    [event] = read_events(log(_line(0, group_id="g", nested={"a": [1, None]}) + b"\n"))
    assert event == {
        "t": 1_790_000_000.0,
        "run": _RUN,
        "event": "e0",
        "group_id": "g",
        "nested": {"a": [1, None]},
    }


def test_an_empty_file_has_no_events_and_no_faults(
    log: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A run that has just begun."""
    assert _names(log(b"")) == []
    assert not caplog.records


@pytest.mark.parametrize(
    ("content", "names"),
    [
        pytest.param(_line(0) + b"\n" + _line(1)[:-9], ["e0"], id="torn last line"),
        pytest.param(_line(0) + b"\n" + _line(1), ["e0", "e1"], id="no last line end"),
        pytest.param(_line(0)[:30] + _line(1) + b"\n", ["e1"], id="record fused to a torn one"),
        pytest.param(
            _line(0, note='{"t": 1')[:-3] + _line(1) + b"\n", ["e1"], id="torn inside a look-alike"
        ),
        pytest.param(
            _line(0)[:-4] + b'{"event":"e1", "run":"r", "t":1.0}\n', ["e1"], id="keys in any order"
        ),
        pytest.param(_line(0) + b"\n\n  \n\t\n" + _line(1) + b"\n\n", ["e0", "e1"], id="blank"),
        pytest.param(_line(0) + b"\r\n\r\n" + _line(1) + b"\r\n", ["e0", "e1"], id="crlf"),
        pytest.param(b"\xef\xbb\xbf" + _line(0) + b"\n", ["e0"], id="byte-order mark"),
        pytest.param(
            b'[1]\n"x"\n7\nnull\ntrue\n' + _line(0) + b"\n", ["e0"], id="lines that are no objects"
        ),
        pytest.param(
            b'{"run": "r", "event": "x"}\n{"t": 1, "event": "x"}\n{"t": 1, "run": "r"}\n{}\n'
            + _line(0),
            ["e0"],
            id="missing keys",
        ),
        pytest.param(
            b'{"t": "1", "run": "r", "event": "x"}\n{"t": 1, "run": 2, "event": "x"}\n'
            b'{"t": 1, "run": "r", "event": ""}\n{"t": -1, "run": "r", "event": "x"}\n'
            b'{"t": true, "run": "r", "event": "x"}\n{"t": 1e30, "run": "r", "event": "x"}\n'
            b'{"t": NaN, "run": "r", "event": "x"}\n' + _line(0),
            ["e0"],
            id="header of the wrong kind",
        ),
        pytest.param(b"\0" * 100 + b"\n" + _line(0) + b"\n", ["e0"], id="zeros of a power cut"),
    ],
)
def test_what_real_files_hold_is_survived(
    log: Callable[[bytes], Path],
    content: bytes,
    names: list[str],
) -> None:
    """Good events are all given, bad lines passed over."""
    assert _names(log(content)) == names


def test_invalid_utf8_becomes_the_replacement_character(log: Callable[[bytes], Path]) -> None:
    """The event is kept, and so are the texts around the bad bytes."""
    line = _line(0, note="before-after").replace(b"-", b"\xff\xfe")
    [event] = read_events(log(line + b"\n"))
    assert event["note"] == "before\ufffd\ufffdafter"


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_numbers_that_json_lacks_become_none(log: Callable[[bytes], Path], text: bytes) -> None:
    """Python's json writes them; nothing else reads them."""
    line = (
        _line(0, loss=1, more=[2])
        .replace(b": 1,", b": " + text + b",")
        .replace(b"[2]", b"[%b]" % text)
    )
    [event] = read_events(log(line + b"\n"))
    assert (event["loss"], event["more"]) == (None, [None])


def test_lone_surrogates_are_replaced(log: Callable[[bytes], Path]) -> None:
    """An escape can spell one, UTF-8 cannot hold it."""
    [event] = read_events(log(_line(0, note="x").replace(b'"x"', b'"x\\ud800y"') + b"\n"))
    event["note"].encode()
    assert event["note"].startswith("x") and event["note"].endswith("y")


def test_deeply_nested_lines_are_passed_over(log: Callable[[bytes], Path]) -> None:
    """No recursion limit ends the reading."""
    deep = b'{"t": 1, "run": "r", "event": "x", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert _names(log(deep + b"\n" + _line(0)))[-1] == "e0"


def test_one_warning_gives_the_count_and_the_first_place(
    log: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """However many lines are bad."""
    path = log(_line(0) + b"\n{\n[1]\n" + _line(1) + b"\nx\n")
    assert _names(path) == ["e0", "e1"]
    [record] = caplog.records
    message = record.getMessage()
    assert record.levelno == logging.WARNING
    assert str(path) in message and "3 bad line" in message and "line 2" in message


def test_the_reader_says_which_line_was_bad_first_and_whether_its_rest_was_read(
    log: Callable[[bytes], Path],
) -> None:
    """For programs: what the warning says to people."""
    reader = LogReader(log(_line(0) + b"\n" + _line(1)[:40] + _line(2) + b"\n7\n"))
    assert [event["event"] for event in reader] == ["e0", "e2"]
    assert reader.bad_lines == 2
    assert reader.first_bad is not None
    assert (reader.first_bad.number, reader.first_bad.recovered) == (2, True)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "an array"),
        (b'{"run": "r", "event": "x"}', "no 't'"),
        (b'{"t": 1, "run": "r"}', "no 'event'"),
        (b'{"t": 1, "run": "r", "event": "x", "loss": NaN}', "not JSON"),
        (b'{"t": 1, "run": "r", "event": "\xff"}', "not JSON"),
        (b'{"t": null, "run": "r", "event": "x"}', "'t' is not a number"),
    ],
)
def test_strict_names_file_line_and_reason(
    log: Callable[[bytes], Path], bad: bytes, reason: str
) -> None:
    """The first bad line ends it, the events before it having been given."""
    path = log(_line(0) + b"\n\n" + bad + b"\n" + _line(1) + b"\n")
    events = read_events(path, strict=True)
    assert next(events)["event"] == "e0"
    with pytest.raises(LogError) as caught:
        next(events)
    message = str(caught.value)
    assert str(path) in message and "line 3" in message and reason in message


def test_strict_takes_a_good_file(log: Callable[[bytes], Path]) -> None:
    """Blank lines, a byte-order mark and CRLF are no faults."""
    path = log(b"\xef\xbb\xbf" + _line(0) + b"\r\n\n" + _line(1))
    assert len(list(read_events(path, strict=True))) == 2


def test_a_file_that_is_not_there_is_a_log_error(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(LogError, match="nowhere"):
        list(read_events(tmp_path / "nowhere.jsonl"))
    with pytest.raises(LogError):
        list(read_events(tmp_path))


def test_gzip_is_read_whatever_the_file_is_called(log: Callable[[bytes], Path]) -> None:
    """By its first bytes, in one member or several, as rotation makes them."""
    content = gzip.compress(_line(0) + b"\n" + _line(1)[:20]) + gzip.compress(_line(1)[20:] + b"\n")
    assert _names(log(content)) == ["e0", "e1"]


@pytest.mark.parametrize("cut", [1, 8, 9, 200])
def test_a_truncated_gzip_gives_what_it_holds(
    log: Callable[[bytes], Path], caplog: pytest.LogCaptureFixture, cut: int
) -> None:
    """The events before the end, and a warning."""
    lines = [_line(number, note="%030x" % (number**9)) for number in range(3_000)]
    path = log(gzip.compress(b"\n".join(lines) + b"\n")[:-cut])
    names = _names(path)
    assert 0 < len(names) <= 3_000
    assert names == [f"e{number}" for number in range(len(names))]
    assert len(caplog.records) == 1
    with pytest.raises(LogError):
        list(read_events(path, strict=True))


def test_damaged_gzip_is_a_log_error_after_what_it_gives(log: Callable[[bytes], Path]) -> None:
    """What cannot be unpacked is said, not hidden."""
    content = bytearray(gzip.compress(b"\n".join(_line(number) for number in range(3_000))))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(LogError):
        list(read_events(log(bytes(content))))


def test_a_very_long_line_is_passed_over_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not held whole, and what follows it is read."""
    monkeypatch.setattr("otel_rollout_trace.journal.reader.MAX_LINE_BYTES", 1_000_000)
    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        file.write(_line(0) + b"\n")
        for _ in range(40):
            file.write(b"x" * 1_000_000)
        file.write(b"\n" + _line(1) + b"\n")
    tracemalloc.start()
    try:
        reader = LogReader(path)
        assert [event["event"] for event in reader] == ["e0", "e1"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reader.bad_lines == 1
    assert peak < 6_000_000


def test_a_long_log_is_read_in_constant_memory(tmp_path: Path) -> None:
    """Not as a list of lines."""
    path = tmp_path / "log.jsonl"
    block = b"\n".join(_line(number, note="x" * 1_000) for number in range(1_000)) + b"\n"
    with path.open("wb") as file:
        for _ in range(10):
            file.write(block)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_events(path)) == 10_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_a_file_still_being_written_is_read_to_its_end(log: Callable[[bytes], Path]) -> None:
    """Each iteration begins anew, and sees what has come."""
    path = log(_line(0) + b"\n")
    reader = LogReader(path)
    assert len(list(reader)) == 1
    with path.open("ab") as file:
        file.write(_line(1) + b"\n")
    assert len(list(reader)) == 2


def test_lines_across_block_boundaries_are_whole(tmp_path: Path) -> None:
    """Wherever a block of the file ends."""
    path = tmp_path / "log.jsonl"
    sizes = [*range(0, 3_000, 7), 131_000, 131_072, 300_000, 3]
    path.write_bytes(
        b"".join(_line(number, note="y" * size) + b"\n" for number, size in enumerate(sizes))
    )
    events = list(read_events(path, strict=True))
    assert [len(event["note"]) for event in events] == sizes


def test_a_required_log_that_holds_no_event_is_refused(log: Callable[[bytes], Path]) -> None:
    """A film, a text, nothing: said at once, with the reason."""
    for content in (b"", b"# a text\n", b"\x89PNG\r\n"):
        with pytest.raises(LogError):
            list(LogReader(log(content), required=True))


def test_a_long_file_that_is_no_log_is_not_read_to_its_end(log: Callable[[bytes], Path]) -> None:
    """Ten thousand bad lines and no event are enough to tell."""
    reader = LogReader(log(b"x\n" * 200_000), required=True)
    with pytest.raises(LogError):
        list(reader)
    assert reader.bad_lines <= 10_000


@given(any_logs())
def test_lines_that_cannot_matter_to_batch_age_may_be_left_out(events: list[Event]) -> None:
    """`containing` gives the same ages as a full read, for any log."""
    with temporary_log(events) as path:
        full = batch_age_by_step(LogReader(path))
        assert batch_age_by_step(LogReader(path, containing=BATCH_AGE_FIELDS)) == full


@given(hostile_logs())
def test_lines_with_escaped_names_are_not_left_out(events: list[Event]) -> None:
    """JSON can spell any name in escapes."""
    with temporary_log(events) as path:
        full = batch_age_by_step(LogReader(path))
        escaped = path.read_bytes().replace(b'"group_ids"', b'"\\u0067roup_ids"')
        path.write_bytes(escaped.replace(b'"tokens_by_version"', b'"tokens\\u005fby_version"'))
        assert batch_age_by_step(LogReader(path, containing=BATCH_AGE_FIELDS)) == full


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_give_the_same_ages_by_both_ways_of_reading(path: Path) -> None:
    """On whole files, torn lines included."""
    quick = batch_age_by_step(LogReader(path, containing=BATCH_AGE_FIELDS))
    assert quick == batch_age_by_step(LogReader(path))


@given(hostile_logs())
def test_what_was_written_is_read(events: list[Event]) -> None:
    """Any event of plain JSON is read as it is."""
    with temporary_log(events) as path:
        assert list(read_events(path, strict=True)) == events


@given(st.lists(st.binary(max_size=60) | json_values().map(lambda v: json.dumps(v).encode())))
def test_no_file_makes_the_reader_fail(lines: list[bytes]) -> None:
    """Whatever the bytes: events, or faults that are counted."""
    with temporary_log([]) as path:
        path.write_bytes(b"\n".join(lines) + b"\n" + _line(0) + b"\n")
        reader = LogReader(path)
        try:
            assert next(reversed(list(reader)))["event"] == "e0"
        except LogError:
            assert lines and lines[0][:2] == b"\x1f\x8b"


def test_a_decoded_line_is_its_event() -> None:
    """The same as a file of that line gives."""
    assert decode_line(_line(3, a=1)) == {
        "t": 1_790_000_000.75,
        "run": _RUN,
        "event": "e3",
        "a": 1,
    }
