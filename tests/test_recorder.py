"""The recorder as training code sees it: open, emit, flush, close."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import pickle
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from support.processes import run_python, start_python

from otel_rollout_trace import RolloutTrace, read_events
from otel_rollout_trace.events import Event, micros_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rollout_trace.jsonl"


def _events(path: Path) -> list[Event]:
    return list(read_events(path, strict=True))


class TestDisabled:
    def test_every_call_does_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Code that records need not ask whether it does."""
        monkeypatch.chdir(tmp_path)
        with RolloutTrace(None) as trace:
            trace.emit("group_reserved", group_id="g1")
            trace.emit()
            assert trace.flush() is True
            assert trace.flush(0.1) is True
        trace.close()
        assert not trace.enabled
        assert (trace.dropped, trace.run, trace.path) == (0, "", None)
        assert list(tmp_path.iterdir()) == []

    def test_it_holds_no_lock_thread_or_file(self) -> None:
        """What it is made of are plain values."""
        threads = threading.active_count()
        trace = RolloutTrace(None)
        trace.emit("x")
        assert threading.active_count() == threads
        assert all(isinstance(value, (str, type(None))) for value in vars(trace).values())

    def test_it_can_be_pickled_and_copied(self) -> None:
        """The controller that has one is sent to another process."""
        trace = RolloutTrace(None)
        for again in (pickle.loads(pickle.dumps(trace)), copy.copy(trace), copy.deepcopy(trace)):
            assert isinstance(again, RolloutTrace)
            again.emit("x")
            assert not again.enabled

    def test_it_does_not_import_opentelemetry(self, tmp_path: Path) -> None:
        """Nor does recording to a file alone."""
        run_python(
            """
            import sys
            from otel_rollout_trace import RolloutTrace, read_events
            RolloutTrace(None).emit("x")
            with RolloutTrace("log.jsonl") as trace:
                trace.emit("x")
            assert len(list(read_events("log.jsonl"))) == 2
            found = [name for name in sys.modules if name.startswith("opentelemetry")]
            assert not found, found
            """,
            cwd=tmp_path,
        )


class TestOpening:
    def test_the_first_line_says_who_opened_the_log(self, path: Path) -> None:
        """`trace_opened`, with the process id."""
        with RolloutTrace(path) as trace:
            assert trace.enabled
        [event] = _events(path)
        assert (event["event"], event["pid"], event["run"]) == (
            "trace_opened",
            os.getpid(),
            trace.run,
        )

    def test_each_opening_is_a_run_of_its_own_in_the_same_file(self, path: Path) -> None:
        """Runs that resume into one file stay apart."""
        for _ in range(3):
            RolloutTrace(path).close()
        runs = [event["run"] for event in _events(path)]
        assert len(set(runs)) == 3
        assert all(re.fullmatch("[0-9a-f]{32}", run) for run in runs)

    def test_a_line_begins_with_time_run_and_event(self, path: Path) -> None:
        """In that order, whatever else is given."""
        with RolloutTrace(path) as trace:
            trace.emit("a", zebra=1, alpha=2, t=5.0)
            trace.emit("b", event="x", run="y", t="not a time")
        for line in path.read_bytes().splitlines():
            assert list(json.loads(line))[:3] == ["t", "run", "event"]

    def test_a_directory_gets_a_file_in_it(self, tmp_path: Path) -> None:
        """Named as the reference names it."""
        with RolloutTrace(tmp_path) as trace:
            assert trace.path == tmp_path / "rollout_trace.jsonl"
        assert len(_events(tmp_path / "rollout_trace.jsonl")) == 1

    def test_missing_directories_are_made(self, tmp_path: Path) -> None:
        """The log is often the first thing that is written."""
        RolloutTrace(tmp_path / "a" / "b" / "log.jsonl").close()
        assert len(_events(tmp_path / "a" / "b" / "log.jsonl")) == 1

    def test_a_later_change_of_directory_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A relative path is taken where the trace was opened."""
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        with RolloutTrace("log.jsonl") as trace:
            monkeypatch.chdir(tmp_path / "elsewhere")
            trace.emit("x")
        assert len(_events(tmp_path / "log.jsonl")) == 2

    def test_a_torn_last_line_gets_its_end_before_anything_is_appended(self, path: Path) -> None:
        """So that the first record is not fused to it."""
        path.write_bytes(b'{"t": 1.0, "run": "r", "event": "x"}\n{"t": 2.0, "ru')
        with RolloutTrace(path) as trace:
            trace.emit("y")
        lines = path.read_bytes().split(b"\n")
        assert lines[1] == b'{"t": 2.0, "ru'
        assert [json.loads(line)["event"] for line in lines[2:-1]] == ["trace_opened", "y"]

    def test_synonyms_that_mean_no_event_are_refused(self, path: Path) -> None:
        """At once, not when the first one comes."""
        with pytest.raises(ValueError, match="nothing_known"):
            RolloutTrace(path, synonyms={"mine": "nothing_known"})

    @pytest.mark.parametrize("copy_of", [pickle.dumps, copy.copy, copy.deepcopy])
    def test_an_enabled_trace_is_not_copied(self, path: Path, copy_of: Any) -> None:
        """One clear error says what to send instead."""
        with RolloutTrace(path) as trace:
            with pytest.raises(TypeError, match=r"RolloutTrace\(None\)"):
                copy_of({"trace": trace} if copy_of is not copy.copy else trace)
            trace.emit("still_works")
        assert [event["event"] for event in _events(path)][1:] == ["still_works"]


class TestEmit:
    def test_fields_stand_flat_beside_the_header(self, path: Path) -> None:
        """As the caller gave them."""
        with RolloutTrace(path) as trace:
            trace.emit("x", group_id="g", tokens_by_version={0: 4, 1: 5}, nothing=None, ok=True)
        event = _events(path)[1]
        assert event == {
            "t": event["t"],
            "run": trace.run,
            "event": "x",
            "group_id": "g",
            "tokens_by_version": {"0": 4, "1": 5},
            "nothing": None,
            "ok": True,
        }

    def test_fields_are_a_snapshot(self, path: Path) -> None:
        """What the caller changes afterwards changes nothing."""
        calls = [["a", 1]]
        counts = {"0": 1}
        with RolloutTrace(path) as trace:
            trace.emit("x", calls=calls, counts=counts)
            calls[0][1] = 99
            calls.append(["b", 2])
            counts["1"] = 5
        event = _events(path)[1]
        assert (event["calls"], event["counts"]) == ([["a", 1]], {"0": 1})

    def test_times_are_now_in_whole_microseconds(self, path: Path) -> None:
        """They survive the way into integer nanoseconds and back."""
        before = time.time()
        with RolloutTrace(path) as trace:
            for _ in range(200):
                trace.emit("x")
        times = [event["t"] for event in _events(path)]
        assert before - 0.001 <= times[0] <= times[-1] <= time.time() + 0.001
        assert times == sorted(times)
        assert all(micros_of(t) / 1e6 == t for t in times)

    @pytest.mark.parametrize(
        ("given", "written"),
        [(1.25, 1.25), (1_790_000_000.123_456_7, 1_790_000_000.123_457), (5, 5.0), (0, 0.0)],
    )
    def test_a_given_time_is_taken_to_the_microsecond(
        self, path: Path, given: float, written: float
    ) -> None:
        """For something that happened earlier."""
        with RolloutTrace(path) as trace:
            trace.emit("x", t=given)
        event = _events(path)[1]
        assert event["t"] == written
        assert list(event) == ["t", "run", "event"]

    @pytest.mark.parametrize(
        "given", [None, "yesterday", float("nan"), float("inf"), -1.0, 1e300, True, [1], {}, b"x"]
    )
    def test_what_is_no_time_is_kept_as_a_field(self, path: Path, given: object) -> None:
        """The event is stamped now; nothing of it is lost."""
        before = time.time()
        with RolloutTrace(path) as trace:
            trace.emit("x", t=given)
        event = _events(path)[1]
        assert before - 1 < event["t"] < time.time() + 1
        assert list(event) == ["t", "run", "event", "t_"]

    def test_the_name_may_be_given_by_keyword(self, path: Path) -> None:
        """As others' code does."""
        with RolloutTrace(path) as trace:
            trace.emit(event="x", a=1)
        assert (_events(path)[1]["event"], _events(path)[1]["a"]) == ("x", 1)

    @pytest.mark.parametrize("name", [None, "", 7, b"x", ["x"], "\ud800", float("nan"), object()])
    def test_an_event_without_a_usable_name_is_kept_all_the_same(
        self, path: Path, name: Any
    ) -> None:
        """Under some name, with its fields."""
        with RolloutTrace(path) as trace:
            trace.emit(name, a=1)
        event = _events(path)[1]
        assert event["event"]
        assert event["a"] == 1

    def test_fields_named_like_the_header_are_kept_beside_it(self, path: Path) -> None:
        """The header stays the recorder's own."""
        with RolloutTrace(path) as trace:
            trace.emit("x", run="mine", event="other", self=3)
        event = _events(path)[1]
        assert (event["run"], event["event"]) == (trace.run, "x")
        assert (event["run_"], event["event_"], event["self"]) == ("mine", "other", 3)

    def test_a_field_and_the_one_it_is_renamed_to_are_both_kept(self, path: Path) -> None:
        """`run` moves out of the way of the header, not over a neighbour."""
        with RolloutTrace(path) as trace:
            trace.emit("x", run="mine", run_="theirs")
        event = _events(path)[1]
        assert {"mine", "theirs"} <= {value for value in event.values() if isinstance(value, str)}

    def test_emit_from_a_signal_handler_loses_nothing(self, path: Path) -> None:
        """It interrupts an emit of the same thread, again and again."""
        handled = 0

        def handler(signum: int, frame: object) -> None:
            nonlocal handled
            handled += 1
            trace.emit("from_handler", number=handled)

        trace = RolloutTrace(path)
        before = signal.signal(signal.SIGVTALRM, handler)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
        try:
            for number in range(20_000):
                trace.emit("from_loop", number=number)
                if number % 5_000 == 0:
                    trace.flush()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        trace.close()
        events = _events(path)
        assert sum(event["event"] == "from_loop" for event in events) == 20_000
        assert sum(event["event"] == "from_handler" for event in events) == handled > 0

    def test_eight_threads_keep_their_own_order(self, path: Path) -> None:
        """And no line is lost, torn or doubled."""
        with RolloutTrace(path) as trace:

            def work(worker: int) -> None:
                for number in range(2_000):
                    trace.emit("x", worker=worker, number=number)

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        events = _events(path)[1:]
        for worker in range(8):
            numbers = [event["number"] for event in events if event["worker"] == worker]
            assert numbers == list(range(2_000))
        assert len(events) == 16_000


class TestFlushAndClose:
    def test_after_a_flush_everything_is_in_the_file(self, path: Path) -> None:
        """A reader sees all that was emitted before it."""
        with RolloutTrace(path) as trace:
            for number in range(100):
                trace.emit("x", number=number)
                if number % 10 == 9:
                    assert trace.flush() is True
                    assert len(_events(path)) == number + 2

    def test_lines_get_into_the_file_without_a_flush(self, path: Path) -> None:
        """Within moments: a kill loses no more."""
        with RolloutTrace(path) as trace:
            trace.emit("x")
            end = time.monotonic() + 5
            while time.monotonic() < end and not (path.exists() and b'"x"' in path.read_bytes()):
                time.sleep(0.005)
            assert b'"x"' in path.read_bytes()

    def test_both_are_idempotent_and_safe_from_any_thread(self, path: Path) -> None:
        """Many threads flush and close at once; all return, nothing is lost."""
        trace = RolloutTrace(path)
        start = threading.Barrier(12)
        faults: list[BaseException] = []

        def work(number: int) -> None:
            start.wait()
            try:
                trace.emit("x", number=number)
                trace.flush(5)
                if number % 2:
                    trace.close()
                trace.flush(5)
                trace.close()
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        trace.close()
        assert trace.flush(1) in (True, False)
        assert not faults
        # One that emitted after another had closed is counted, here and perhaps in a gap.
        written = [event for event in _events(path) if event["event"] == "x"]
        assert len(written) + trace.dropped == 12

    def test_closing_stops_the_thread(self, path: Path) -> None:
        """Nothing of it is left behind."""
        before = threading.active_count()
        trace = RolloutTrace(path)
        trace.emit("x")
        trace.flush()
        assert threading.active_count() == before + 1
        trace.close()
        assert threading.active_count() == before

    def test_a_block_that_fails_closes_it_too(self, path: Path) -> None:
        """And the error goes on."""
        with pytest.raises(RuntimeError), RolloutTrace(path) as trace:
            trace.emit("x")
            raise RuntimeError
        assert len(_events(path)) == 2

    def test_what_is_emitted_after_closing_is_counted(self, path: Path) -> None:
        """It is neither written nor an error."""
        with RolloutTrace(path) as trace:
            trace.emit("x")
        for _ in range(3):
            trace.emit("too_late")
        assert trace.dropped == 3
        assert len(_events(path)) == 2

    def test_the_interpreters_exit_closes_it(self, tmp_path: Path) -> None:
        """Nobody needs to remember."""
        run_python(
            """
            from otel_rollout_trace import RolloutTrace
            trace = RolloutTrace("log.jsonl")
            for number in range(5_000):
                trace.emit("x", number=number)
            """,
            cwd=tmp_path,
        )
        assert len(_events(tmp_path / "log.jsonl")) == 5_001

    def test_an_uncaught_error_loses_nothing(self, tmp_path: Path) -> None:
        """The last events before it are those that are wanted."""
        run_python(
            """
            from otel_rollout_trace import RolloutTrace
            trace = RolloutTrace("log.jsonl")
            trace.emit("x")
            raise SystemExit(3)
            """,
            cwd=tmp_path,
            status=3,
        )
        assert len(_events(tmp_path / "log.jsonl")) == 2

    def test_a_kill_loses_only_the_last_moments(self, tmp_path: Path) -> None:
        """What was emitted a short while before is in the file, whole."""
        run_python(
            """
            import os, signal, time
            from otel_rollout_trace import RolloutTrace
            trace = RolloutTrace("log.jsonl")
            for number in range(1_000):
                trace.emit("x", number=number)
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
            """,
            cwd=tmp_path,
            status=-signal.SIGKILL,
        )
        assert len(_events(tmp_path / "log.jsonl")) == 1_001

    def test_two_processes_write_whole_lines_into_one_file(self, tmp_path: Path) -> None:
        """Each run's lines are all there, in its order, none mixed with the other's."""
        code = """
            import sys
            from otel_rollout_trace import RolloutTrace
            with RolloutTrace("log.jsonl") as trace:
                for number in range(3_000):
                    trace.emit("x", number=number, note="y" * (number % 700))
                    if number % 50 == 0:
                        trace.flush()
            """
        processes = [start_python(code, cwd=tmp_path) for _ in range(2)]
        for process in processes:
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
        events = _events(tmp_path / "log.jsonl")
        runs = {event["run"] for event in events}
        assert len(runs) == 2
        for run in runs:
            numbers = [
                event["number"] for event in events if event["run"] == run and "number" in event
            ]
            assert numbers == list(range(3_000))

    def test_close_does_not_hang_on_a_provider_that_does(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The file is complete, and close returns in its time."""
        waits = threading.Event()

        def hang(run: str, left: float) -> None:
            waits.wait(20)

        trace = RolloutTrace(path, close_timeout=0.5, on_close=hang)
        trace.emit("x")
        started = time.monotonic()
        with caplog.at_level(logging.WARNING):
            trace.close()
        assert time.monotonic() - started < 3
        assert len(_events(path)) == 2
        assert any("0.5 s" in record.getMessage() for record in caplog.records)
        waits.set()


def test_what_comes_before_the_thread_hears_of_the_end_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what comes after it is counted."""
    trace = RolloutTrace(tmp_path, close_timeout=0)
    worker = trace._worker
    assert worker is not None
    trace.flush()
    while not worker.asleep:
        time.sleep(0.001)
    with monkeypatch.context() as patch:
        patch.setattr(worker, "_release", lambda: None)
        trace.close()
    trace.emit("in_time")
    worker._release()
    assert worker._thread is not None
    worker._thread.join()
    trace.emit("too_late")
    events = read_events(tmp_path / "rollout_trace.jsonl")
    assert [event["event"] for event in events] == ["trace_opened", "in_time"]
    assert trace.dropped == 1


def test_at_the_end_of_the_stack_nothing_is_raised_and_recording_goes_on(tmp_path: Path) -> None:
    """Every event is in the file, or counted."""
    run_python(
        """
        import sys, time
        from otel_rollout_trace import RolloutTrace, read_events

        def dive(depth):
            if depth:
                dive(depth - 1)
            else:
                trace.emit("deep")  # raises where there is no room for the call itself
                returned.append(depth)

        trace, returned = RolloutTrace("log.jsonl"), []
        limit = sys.getrecursionlimit()
        for depth in range(limit - 40, limit):
            trace.flush()
            time.sleep(0.03)  # the thread sleeps, and would have to be woken
            try:
                dive(depth)
            except RecursionError:
                pass
        trace.emit("after")
        until = time.monotonic() + 5
        while time.monotonic() < until:
            names = [event["event"] for event in read_events("log.jsonl")]
            if "after" in names:
                break
            time.sleep(0.01)
        assert "after" in names
        trace.close()
        names = [event["event"] for event in read_events("log.jsonl")]
        assert names.count("deep") + trace.dropped == len(returned) > 0, trace.dropped
        """,
        cwd=tmp_path,
    )


def test_several_may_close_at_once(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    def close(trace: RolloutTrace) -> None:
        try:
            trace.close()
        except BaseException as error:
            raised.append(error)

    for number in range(200):
        trace = RolloutTrace(tmp_path / f"{number}.jsonl")
        threads = [threading.Thread(target=close, args=(trace,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not raised


def test_after_the_end_flush_says_whether_all_is_written(tmp_path: Path) -> None:
    whole = RolloutTrace(tmp_path / "whole")
    whole.close()
    assert whole.flush()
    (tmp_path / "file").write_text("")
    lost = RolloutTrace(tmp_path / "file" / "log.jsonl", close_timeout=0.6)
    lost.emit("x")
    lost.close()
    assert not lost.flush()
    assert lost.dropped == 2


def test_what_cancels_a_task_does_not_end_the_recording(tmp_path: Path) -> None:
    """Where a user's span processor raises it, on the thread."""

    class Cancelling(SpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            raise asyncio.CancelledError

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Cancelling())
    with RolloutTrace(tmp_path, tracer_provider=provider) as trace:
        trace.emit("attempt_dispatched", group_id="g", attempt_id="a")
        trace.emit("attempt_sealed", group_id="g", attempt_id="a")
        trace.flush()
        trace.emit("later")
        trace.flush()
    names = [event["event"] for event in read_events(tmp_path / "rollout_trace.jsonl")]
    assert names[-1] == "later"
    assert trace.dropped == 0
