"""A process that forks while it records: no deadlock, no doubled line, two runs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from support.processes import run_python

from otel_rollout_trace import read_events
from otel_rollout_trace.events import Event

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

_START = """
    import os, signal, sys, threading, time, warnings
    # Python warns of what is tried here: a fork of a process with threads.
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    from otel_rollout_trace import RolloutTrace, read_events
    signal.alarm(30)  # a deadlock ends the test

    def wait_for(child):
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    """


def _events(path: Path) -> list[Event]:
    return list(read_events(path, strict=True))


def test_a_child_that_emits_opens_a_run_of_its_own(tmp_path: Path) -> None:
    """And the parent's run goes on as if nothing had been."""
    out, _ = run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    for number in range(100):
        trace.emit("parent", number=number)
    run = trace.run
    child = os.fork()
    if not child:
        try:
            assert trace.enabled and trace.run != run
            for number in range(100):
                trace.emit("child", number=number)
            trace.close()
        except BaseException:
            os._exit(1)
        os._exit(0)
    wait_for(child)
    for number in range(100, 200):
        trace.emit("parent", number=number)
    trace.close()
    print(os.getpid(), child)
    """,
        cwd=tmp_path,
    )
    parent, child = map(int, out.split())
    events = _events(tmp_path / "log.jsonl")
    opened = {event["pid"]: event["run"] for event in events if event["event"] == "trace_opened"}
    assert set(opened) == {parent, child}
    for pid, name, many in ((parent, "parent", 200), (child, "child", 100)):
        of_run = [event for event in events if event["run"] == opened[pid]]
        assert of_run[0]["event"] == "trace_opened"
        assert [event["number"] for event in of_run[1:]] == list(range(many))
        assert {event["event"] for event in of_run[1:]} == {name}


def test_a_child_that_never_emits_leaves_nothing(tmp_path: Path) -> None:
    """Workers of a data loader are not runs, even where they flush and close."""
    run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    for number in range(100):
        trace.emit("parent", number=number)
    children = []
    for way in range(3):
        child = os.fork()
        if not child:
            if way == 1:
                trace.close()
            if way == 2:
                sys.exit(0)  # as exit handlers run
            os._exit(0)
        wait_for(child)
    trace.close()
    """,
        cwd=tmp_path,
    )
    events = _events(tmp_path / "log.jsonl")
    assert Counter(event["event"] for event in events) == {"trace_opened": 1, "parent": 100}


def test_a_child_that_ends_as_interpreters_do_writes_its_lines(tmp_path: Path) -> None:
    """It need not close either."""
    run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    trace.emit("parent")
    child = os.fork()
    if not child:
        trace.emit("child")
        sys.exit(0)
    wait_for(child)
    """,
        cwd=tmp_path,
    )
    events = _events(tmp_path / "log.jsonl")
    assert Counter(event["event"] for event in events) == {
        "trace_opened": 2,
        "parent": 1,
        "child": 1,
    }


def test_forks_in_the_middle_of_everything_lock_nothing(tmp_path: Path) -> None:
    """Other threads emit and flush while children are made, each of which emits too."""
    run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    stop = threading.Event()

    def work(worker):
        number = 0
        while not stop.is_set():
            trace.emit("parent", worker=worker, number=number)
            number += 1
            if number % 100 == 0:
                trace.flush()

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        child = os.fork()
        if not child:
            trace.emit("child", number=0)
            done = trace.flush(10)
            trace.emit("child", number=1)
            trace.close()
            os._exit(0 if done else 1)
        wait_for(child)
    stop.set()
    for thread in threads:
        thread.join()
    trace.close()
    """,
        cwd=tmp_path,
    )
    events = _events(tmp_path / "log.jsonl")
    runs = Counter(event["run"] for event in events if event["event"] == "child")
    assert sorted(runs.values()) == [2] * 15
    for worker in range(3):
        numbers = [event["number"] for event in events if event.get("worker") == worker]
        assert numbers == list(range(len(numbers)))


def test_the_child_of_a_child_is_a_run_too(tmp_path: Path) -> None:
    """However deep."""
    run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    trace.emit("x", depth=0)
    for depth in range(1, 4):
        child = os.fork()
        if child:
            wait_for(child)
            trace.close()
            os._exit(0)
        trace.emit("x", depth=depth)
    trace.close()
    """,
        cwd=tmp_path,
    )
    events = _events(tmp_path / "log.jsonl")
    assert len({event["run"] for event in events}) == 4
    assert sorted(event["depth"] for event in events if event["event"] == "x") == [0, 1, 2, 3]


def test_a_closed_trace_stays_closed_in_a_child(tmp_path: Path) -> None:
    """It opens nothing there."""
    run_python(
        _START
        + """
    trace = RolloutTrace("log.jsonl")
    trace.close()
    child = os.fork()
    if not child:
        trace.emit("x")
        trace.close()
        os._exit(0)
    wait_for(child)
    """,
        cwd=tmp_path,
    )
    assert len(_events(tmp_path / "log.jsonl")) == 1


def test_the_parents_spans_are_not_sent_by_its_child(tmp_path: Path) -> None:
    """The child shows its own run only."""
    out, _ = run_python(
        _START
        + """
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    seen = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    trace = RolloutTrace("log.jsonl", tracer_provider=provider)
    trace.emit("group_reserved", group_id="parent")
    trace.flush()
    child = os.fork()
    if not child:
        trace.emit("group_reserved", group_id="child")
    trace.close()
    groups = [span.attributes.get("rl.group.id") for span in seen.get_finished_spans()]
    print(sorted(group for group in groups if group), len(groups), flush=True)
    if not child:
        os._exit(0)
    wait_for(child)
    """,
        cwd=tmp_path,
    )
    assert sorted(out.splitlines()) == ["['child'] 2", "['parent'] 2"]
