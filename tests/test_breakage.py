"""Ways in which it was once broken, each of which would have hurt a training run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import run_python

from otel_rollout_trace import (
    LogError,
    RolloutTrace,
    batch_age_by_step,
    read_events,
    replay,
)
from otel_rollout_trace.events import Event
from otel_rollout_trace.recent import Recent

_RUN = "a" * 32


def _event(number: float, name: str, **fields: object) -> Event:
    return {"t": 1_790_000_000.0 + number, "run": _RUN, "event": name, **fields}


def _written(path: Path, *events: Event) -> Path:
    with RolloutTrace(path, run=_RUN) as trace:
        for event in events:
            fields = {key: value for key, value in event.items() if key not in ("run", "event")}
            trace.emit(event["event"], **fields)
    return path


def test_replay_is_a_function_whatever_was_imported_before(tmp_path: Path) -> None:
    """No submodule has the name of something public."""
    run_python(
        """
    import importlib, pkgutil
    import otel_rollout_trace as package
    names = {module.name for module in pkgutil.iter_modules(package.__path__)} - {"__main__"}
    for name in sorted(names):
        importlib.import_module(f"otel_rollout_trace.{name}")
    from otel_rollout_trace import configure, replay
    assert callable(replay) and callable(configure)
    """,
        cwd=tmp_path,
    )


def test_a_program_may_join_every_thread_that_is_no_daemon(tmp_path: Path) -> None:
    """None of ours waits for the main thread while that waits for it."""
    run_python(
        """
    import threading
    from otel_rollout_trace import RolloutTrace
    trace = RolloutTrace("log.jsonl")
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    """,
        cwd=tmp_path,
    )


def test_threads_that_outlive_the_main_one_are_still_recorded(tmp_path: Path) -> None:
    """Also those that such a thread begins."""
    run_python(
        """
    import threading, time
    from otel_rollout_trace import RolloutTrace
    trace = RolloutTrace("log.jsonl")
    def second():
        time.sleep(0.1)
        trace.emit("late", by="second")
    def first():
        time.sleep(0.1)
        trace.emit("late", by="first")
        try:
            threading.Thread(target=second).start()
        except RuntimeError:  # Python 3.12.0 and 3.12.1 allow none at this point
            trace.emit("late", by="second")
    threading.Thread(target=first).start()
    """,
        cwd=tmp_path,
    )
    late = [
        event["by"] for event in read_events(tmp_path / "log.jsonl") if event["event"] == "late"
    ]
    assert late == ["first", "second"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "abc"),
        ("OTEL_BSP_SCHEDULE_DELAY", "0"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "pigeon"),
        ("OTEL_TRACES_EXPORTER", "nonsense"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "abc"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "pigeon"),
    ],
)
def test_a_wrong_environment_does_not_stop_a_run(tmp_path: Path, variable: str, value: str) -> None:
    """It is said, and the log is written."""
    run_python(
        f"""
    import os
    os.environ.setdefault("OTEL_TRACES_EXPORTER", "console")
    os.environ.setdefault("OTEL_METRICS_EXPORTER", "none")
    os.environ[{variable!r}] = {value!r}
    from otel_rollout_trace import configure
    with configure("log.jsonl") as trace:
        trace.emit("group_reserved", group_id="g1")
    """,
        cwd=tmp_path,
    )
    assert [event["event"] for event in read_events(tmp_path / "log.jsonl")] == [
        "trace_opened",
        "group_reserved",
    ]


def test_a_number_without_end_is_no_duration(tmp_path: Path) -> None:
    """It is kept in the file, and costs no other span."""
    path = _written(
        tmp_path / "log.jsonl",
        _event(0, "attempt_dispatched", group_id="g", attempt_id="a"),
        _event(1, "weights_synced", weight_version=1, duration_s=10**400),
        _event(2, "attempt_sealed", group_id="g", attempt_id="a"),
    )
    assert replay(path).attempts["sealed"] == 1


@pytest.mark.parametrize("depth", [300, 600, 900, 5_000])
def test_lines_nested_without_end_are_read_or_passed_over(tmp_path: Path, depth: int) -> None:
    """Never an error, and never the neighbours' loss."""
    nested = "[" * depth + "NaN" + "]" * depth
    line = '{{"t":1.0,"run":"r","event":"n","x":{}}}\n'
    path = tmp_path / "log.jsonl"
    path.write_text(line.format(1) + line.format(nested) + line.format(2))
    assert [event["x"] for event in read_events(path) if isinstance(event["x"], int)] == [1, 2]
    assert replay(path).events >= 2


@pytest.mark.parametrize("raised", [asyncio.CancelledError, RuntimeError, GeneratorExit])
def test_a_value_that_raises_anything_is_written_by_its_kind(
    tmp_path: Path, raised: Callable[[], BaseException]
) -> None:
    """Also what is no Exception."""

    class Odd:
        def __str__(self) -> str:
            raise raised()

        __repr__ = __str__

    with RolloutTrace(tmp_path / "log.jsonl") as trace:
        trace.emit("x", odd=Odd(), even=2)
    event = list(read_events(tmp_path / "log.jsonl"))[1]
    assert (event["odd"], event["even"]) == ("<Odd>", 2)


def test_counts_too_large_are_left_out_of_every_view(tmp_path: Path) -> None:
    """`batch-age` and `replay` tell one age."""
    path = _written(
        tmp_path / "log.jsonl",
        _event(0, "group_published", group_id="g", tokens_by_version={"1": 2**63, "2": 5}),
        _event(1, "step_trained", step=1, trained_version=3, group_ids=["g"]),
    )
    assert batch_age_by_step(read_events(path)) == replay(path).batch_age == {1: 1.0}


def test_a_path_that_no_file_can_have_is_one_clear_error() -> None:
    """As any other that cannot be read."""
    with pytest.raises(LogError):
        list(read_events("a\0b"))


def test_what_is_remembered_is_bounded() -> None:
    """All of the newest, none older than twice as many."""
    recent: Recent[int] = Recent(10)
    for number in range(1_000):
        recent.put(str(number), number)
    kept = [number for _, number in recent.items()]
    assert kept == sorted(kept)
    assert set(range(990, 1_000)) <= set(kept)
    assert len(kept) <= 20
    assert "5" not in recent
    assert recent.get("5", None) is None
