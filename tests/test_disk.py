"""What becomes of the log when its disk fails, fills up, or is pulled away."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from support.processes import run_python

from otel_rollout_trace import RolloutTrace, read_events
from otel_rollout_trace.events import Event
from otel_rollout_trace.journal import LogWriter


def _gap(lost: int) -> bytes:
    return json.dumps({"t": 1.0, "run": "r", "event": "trace_gap", "lost": lost}).encode()


def _line(number: int) -> bytes:
    return json.dumps({"t": 1.0, "run": "r", "event": "x", "number": number}).encode()


def _write(writer: LogWriter, *lines: bytes, now: bool = False) -> list[bytes]:
    return writer.write(b"".join(line + b"\n" for line in lines), now=now).splitlines()


def _events(path: Path) -> list[Event]:
    return list(read_events(path, strict=True))


class _Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TestWriter:
    def test_it_says_which_lines_are_in_the_file_now(self, tmp_path: Path) -> None:
        """All of them, where the disk takes them."""
        writer = LogWriter(tmp_path / "log.jsonl", gap_line=_gap)
        assert _write(writer, _line(0), _line(1)) == [_line(0), _line(1)]
        assert _write(writer) == []
        writer.close()
        assert (tmp_path / "log.jsonl").read_bytes() == _line(0) + b"\n" + _line(1) + b"\n"

    def test_lines_wait_while_the_file_cannot_be_made(self, tmp_path: Path) -> None:
        """And are written in their order when it can."""
        (tmp_path / "directory").write_text("in the way")
        writer = LogWriter(tmp_path / "directory" / "log.jsonl", gap_line=_gap)
        assert _write(writer, _line(0)) == []
        waits: bool = writer.failing
        assert waits
        assert _write(writer, _line(1), now=True) == []
        (tmp_path / "directory").unlink()
        assert _write(writer, _line(2), now=True) == [_line(0), _line(1), _line(2)]
        waits = writer.failing
        assert not waits
        assert writer.lost == 0
        writer.close()

    def test_tries_come_after_growing_pauses(self, tmp_path: Path) -> None:
        """A full disk is not hammered; the longest pause is some seconds."""
        clock = _Clock()
        (tmp_path / "directory").write_text("in the way")
        writer = LogWriter(tmp_path / "directory" / "log.jsonl", gap_line=_gap, clock=clock)
        pauses = []
        for number in range(12):
            _write(writer, _line(number))
            pauses.append(writer.next_try - clock.now)
            clock.now = writer.next_try
        assert pauses == sorted(pauses)
        assert 0 < pauses[0] < 0.5
        assert 1 < pauses[-1] <= 10
        (tmp_path / "directory").unlink()
        assert len(_write(writer)) == 12
        writer.close()

    def test_before_the_pause_is_over_nothing_is_tried(self, tmp_path: Path) -> None:
        """Even if the disk would take it by then."""
        clock = _Clock()
        (tmp_path / "directory").write_text("in the way")
        writer = LogWriter(tmp_path / "directory" / "log.jsonl", gap_line=_gap, clock=clock)
        _write(writer, _line(0))
        (tmp_path / "directory").unlink()
        assert _write(writer, _line(1)) == []
        clock.now = writer.next_try
        assert _write(writer) == [_line(0), _line(1)]
        writer.close()

    def test_a_gap_line_tells_exactly_how_many_lines_were_lost(self, tmp_path: Path) -> None:
        """What the buffer did not hold; written and lost add up to what was given."""
        (tmp_path / "directory").write_text("in the way")
        path = tmp_path / "directory" / "log.jsonl"
        writer = LogWriter(path, gap_line=_gap, buffer_bytes=500)
        for number in range(100):
            _write(writer, _line(number), now=True)
        lost = writer.lost
        assert 0 < lost < 100
        (tmp_path / "directory").unlink()
        _write(writer, _line(100), now=True)
        _write(writer, _line(101))
        writer.close()
        events = _events(path)
        numbers = [event["number"] for event in events if event["event"] == "x"]
        gaps = [event["lost"] for event in events if event["event"] == "trace_gap"]
        assert numbers == sorted(numbers)
        assert numbers[-1] == 101
        assert gaps == [lost]
        assert len(numbers) + lost == 102

    def test_each_gap_tells_its_own_loss(self, tmp_path: Path) -> None:
        """A second outage does not repeat the first one's."""
        path = tmp_path / "directory" / "log.jsonl"
        writer = LogWriter(path, gap_line=_gap, buffer_bytes=200)
        for outage in range(2):
            shutil.rmtree(tmp_path / "directory", ignore_errors=True)
            (tmp_path / "directory").write_text("in the way")
            for number in range(20):
                _write(writer, _line(number + 100 * outage), now=True)
            (tmp_path / "directory").unlink()
            before = writer.lost
            written = _write(writer, now=True)
            gaps = [json.loads(line)["lost"] for line in written if b"trace_gap" in line]
            assert len(gaps) == 1
            assert gaps[0] + len(written) - 1 == 20
            assert writer.lost == before
        writer.close()

    def test_losses_from_before_it_are_told_too(self, tmp_path: Path) -> None:
        """A queue that was full."""
        writer = LogWriter(tmp_path / "log.jsonl", gap_line=_gap)
        writer.lose(7)
        _write(writer, _line(0))
        writer.close()
        events = _events(tmp_path / "log.jsonl")
        assert [event["lost"] for event in events if event["event"] == "trace_gap"] == [7]
        assert writer.lost == 7

    def test_lines_that_still_wait_at_the_end_are_lost(self, tmp_path: Path) -> None:
        """Counted, since nobody will write them."""
        (tmp_path / "directory").write_text("in the way")
        writer = LogWriter(tmp_path / "directory" / "log.jsonl", gap_line=_gap)
        _write(writer, _line(0), _line(1))
        writer.close()
        assert writer.lost == 2

    def test_a_directory_that_went_away_is_made_again(self, tmp_path: Path) -> None:
        """What comes later is not written into a file that nobody can find."""
        clock = _Clock()
        path = tmp_path / "directory" / "log.jsonl"
        writer = LogWriter(path, gap_line=_gap, clock=clock)
        _write(writer, _line(0))
        shutil.rmtree(tmp_path / "directory")
        clock.now += 1
        assert _write(writer, _line(1)) == [_line(1)]
        assert [event["number"] for event in _events(path)] == [1]
        writer.close()

    def test_a_file_rotated_away_is_followed_by_a_new_one(self, tmp_path: Path) -> None:
        """Under the old name; both together hold every line."""
        clock = _Clock()
        path = tmp_path / "log.jsonl"
        writer = LogWriter(path, gap_line=_gap, clock=clock)
        _write(writer, _line(0), _line(1))
        path.rename(tmp_path / "log.jsonl.1")
        clock.now += 1
        _write(writer, _line(2))
        writer.close()
        assert [event["number"] for event in _events(tmp_path / "log.jsonl.1")] == [0, 1]
        assert [event["number"] for event in _events(path)] == [2]

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
    def test_a_full_disk_is_waited_for(self, tmp_path: Path) -> None:
        """Lines that it did not take are written once there is room."""
        path = tmp_path / "log.jsonl"
        path.symlink_to("/dev/full")
        writer = LogWriter(path, gap_line=_gap)
        assert _write(writer, _line(0)) == []
        assert writer.failing
        path.unlink()
        assert _write(writer, _line(1), now=True) == [_line(0), _line(1)]
        writer.close()
        assert [event["number"] for event in _events(path)] == [0, 1]


_LIMITED = """
    import json, os, resource, sys
    from otel_rollout_trace.journal import LogWriter, read_events

    def line(number):
        event = {"t": 1.0, "run": "r", "event": "x", "number": number, "note": "y" * 50}
        return json.dumps(event).encode()

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    writer = LogWriter("log.jsonl", gap_line=lambda lost: b"{}")

    def write(*lines, now=False):
        return writer.write(b"".join(line + b"\\n" for line in lines), now=now).splitlines()

    limit(1_000)
    """


def test_the_rest_of_a_line_follows_its_first_part(tmp_path: Path) -> None:
    """The disk took half of it; nobody else has written since."""
    run_python(
        _LIMITED
        + """
    written = write(*map(line, range(20)))
    assert writer.failing and 0 < len(written) < 20, len(written)
    assert os.path.getsize("log.jsonl") == 1_000
    limit(resource.RLIM_INFINITY)
    written += write(line(20), now=True)
    assert written == [line(number) for number in range(21)]
    """,
        cwd=tmp_path,
    )
    assert [event["number"] for event in _events(tmp_path / "log.jsonl")] == list(range(21))


def test_a_half_written_line_is_begun_again_where_another_process_wrote_since(
    tmp_path: Path,
) -> None:
    """Its own record is whole, and so is the other's, but for the one fused to the torn half."""
    run_python(
        _LIMITED
        + """
    write(*map(line, range(20)))
    limit(resource.RLIM_INFINITY)
    with open("log.jsonl", "ab") as other:
        other.write(b'{"t": 1.0, "run": "s", "event": "theirs"}\\n')
    write(line(20), now=True)
    """,
        cwd=tmp_path,
    )
    events = list(read_events(tmp_path / "log.jsonl"))
    assert Counter(event["event"] for event in events) == {"x": 21, "theirs": 1}
    numbers = [event["number"] for event in events if event["event"] == "x"]
    assert numbers == list(range(21))


def test_a_failing_disk_does_not_end_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, flush says that it is not written, and all of it comes in the end."""
    (tmp_path / "directory").write_text("in the way")
    path = tmp_path / "directory" / "log.jsonl"
    with RolloutTrace(path) as trace:
        for number in range(1_000):
            trace.emit("x", number=number)
        assert trace.flush(5) is False
        (tmp_path / "directory").unlink()
        end = time.monotonic() + 20
        while not trace.flush(5) and time.monotonic() < end:
            time.sleep(0.05)
        trace.emit("y")
    events = _events(path)
    assert [event["number"] for event in events if event["event"] == "x"] == list(range(1_000))
    assert events[-1]["event"] == "y"
    assert trace.dropped == 0
    # One message when it fails, one when it works again; not one for each try.
    assert len(caplog.records) == 2


def test_a_disk_that_heals_by_itself_needs_no_further_event(tmp_path: Path) -> None:
    """The lines that wait are tried again without anyone asking."""
    (tmp_path / "directory").write_text("in the way")
    path = tmp_path / "directory" / "log.jsonl"
    with RolloutTrace(path) as trace:
        trace.emit("x")
        trace.flush(5)
        (tmp_path / "directory").unlink()
        end = time.monotonic() + 20
        while time.monotonic() < end and not (path.exists() and path.stat().st_size):
            time.sleep(0.02)
        assert [event["event"] for event in _events(path)] == ["trace_opened", "x"]


def test_a_disk_that_never_heals_does_not_hold_up_close(tmp_path: Path) -> None:
    """It returns in its time, and the loss is counted."""
    (tmp_path / "directory").write_text("in the way")
    trace = RolloutTrace(tmp_path / "directory" / "log.jsonl", close_timeout=1.0)
    for _ in range(10):
        trace.emit("x")
    started = time.monotonic()
    trace.close()
    assert time.monotonic() - started < 4
    assert trace.dropped == 11


def test_a_full_queue_drops_and_the_log_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded; what is in the file and what is lost add up."""
    monkeypatch.setattr("otel_rollout_trace.recorder.MOST_QUEUED", 50)
    with RolloutTrace(tmp_path) as trace:
        for number in range(20_000):
            trace.emit("x", number=number)
    events = _events(tmp_path / "rollout_trace.jsonl")
    names = Counter(event["event"] for event in events)
    told = sum(event["lost"] for event in events if event["event"] == "trace_gap")
    assert told == trace.dropped > 0
    assert names["x"] + told == 20_000


def test_a_run_under_a_file_size_limit_has_every_line_once_there_is_room(tmp_path: Path) -> None:
    """The whole way: emitted while the disk was full, written when it was not."""
    run_python(
        """
        import resource, time
        from otel_rollout_trace import RolloutTrace

        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        trace = RolloutTrace("log.jsonl")
        limit(20_000)
        for number in range(1_000):
            trace.emit("x", number=number)
        assert trace.flush(5) is False
        limit(resource.RLIM_INFINITY)
        trace.emit("x", number=1_000)
        assert trace.flush(5) is True
        assert trace.dropped == 0
        """,
        cwd=tmp_path,
    )
    events = _events(tmp_path / "log.jsonl")
    assert [event["number"] for event in events[1:]] == list(range(1_001))


def test_a_log_rotated_under_a_run_loses_nothing(tmp_path: Path) -> None:
    """Lines go on in a new file of the same name."""
    path = tmp_path / "rollout_trace.jsonl"
    with RolloutTrace(path) as trace:
        for number in range(300):
            trace.emit("x", number=number)
            if number % 100 == 50:
                trace.flush()
                path.rename(tmp_path / f"rotated.{number}")
                time.sleep(0.3)  # it is not looked for each line where they go
    parts = [tmp_path / "rotated.50", tmp_path / "rotated.150", tmp_path / "rotated.250", path]
    numbers = [event.get("number") for part in parts for event in _events(part)]
    assert numbers == [None, *range(300)]
