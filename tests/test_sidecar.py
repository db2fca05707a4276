"""What another process saves: the side-car, and the recovery of runs that were killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.otlp_receiver import OtlpReceiver
from support.processes import run_python, start_python
from support.wire import WireSpan

from otel_rollout_trace import configure, read_events
from otel_rollout_trace.receipts import Receipts

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals to processes")

_RECORD = """
    import os, signal, sys, time
    from otel_rollout_trace import configure

    log, endpoint, export, groups = sys.argv[1:5]
    trace = configure(log, export=export, endpoint=endpoint, protocol="grpc")

    def record(first, last):
        for number in range(first, last):
            group = f"{trace.run[:4]}-{number}"
            trace.emit("group_reserved", group_id=group, prompt_id=number)
            for generation in range(2):
                attempt = f"{group}-{generation}"
                trace.emit("attempt_dispatched", group_id=group, attempt_id=attempt)
                if number % 4 or generation:  # the first of every fourth group stays out
                    trace.emit("attempt_sealed", group_id=group, attempt_id=attempt, tokens=10)
            if number % 4:
                trace.emit("group_discarded", group_id=group, reason="zero_variance")

    record(0, int(groups))
    trace.flush()
"""

_OUTCOMES = {  # of 40 groups
    ("rl.rollout.attempt", "sealed"): 70,
    ("rl.rollout.attempt", "interrupted"): 10,
    ("rl.rollout.group", "discarded"): 30,
    ("rl.rollout.group", "interrupted"): 10,
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rollout_trace.jsonl"


@pytest.fixture
def receiver(log: Path) -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver
        for pid in _followers(log):
            os.kill(pid, signal.SIGKILL)


def _followers(log: Path) -> list[int]:
    """The side-cars of a log."""
    listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True)
    pattern = re.compile(
        rf"^ *(\d+) .*otel_rollout_trace\.following .*{re.escape(str(log))}$", re.M
    )
    return [int(found) for found in pattern.findall(listed.stdout)]


def _eventually(holds: Callable[[], object], timeout: float = 30) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        time.sleep(0.02)


def _outcomes(spans: list[WireSpan]) -> dict[tuple[str, str], int]:
    """How many spans ended how; each of them must have come once."""
    ids = [(span.trace_id, span.span_id) for span in spans]
    assert len(ids) == len(set(ids)), "a span came twice"
    return Counter(
        (span.name, str(span.attributes["rl.outcome"])) for span in spans if span.name != "rl.run"
    )


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("raise RuntimeError('a bug')", 1),
        ("trace.close()", 0),
        ("pass", 0),
    ],
    ids=["SIGKILL", "os._exit", "SIGTERM", "exception", "close", "return"],
)
def test_with_a_side_car_every_span_arrives_once_however_the_process_ends(
    ending: str, status: int, log: Path, receiver: OtlpReceiver
) -> None:
    """What was out arrives as interrupted; then the side-car is gone."""
    code = _RECORD + f"    {ending}\n"
    run_python(code, log, receiver.endpoint("grpc"), "sidecar", 40, cwd=log.parent, status=status)
    _eventually(lambda: not _followers(log))
    assert _outcomes(receiver.spans) == _OUTCOMES
    assert (Receipts(log).directory / "follower.log").read_text() == ""


def test_closing_waits_for_the_side_car(log: Path, receiver: OtlpReceiver) -> None:
    """While the process itself goes on."""
    code = _RECORD + "    trace.close()\n    print('closed', flush=True)\n    time.sleep(60)\n"
    process = start_python(code, log, receiver.endpoint("grpc"), "sidecar", 40, cwd=log.parent)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "closed\n"
        assert _outcomes(receiver.spans) == _OUTCOMES
    finally:
        process.kill()
        process.communicate()


def test_one_side_car_for_a_log_that_several_processes_open(
    log: Path, receiver: OtlpReceiver
) -> None:
    code = (
        _RECORD + "    print('recorded', flush=True)\n    sys.stdin.readline()\n    os._exit(0)\n"
    )
    endpoint = receiver.endpoint("grpc")
    processes = [start_python(code, log, endpoint, "sidecar", 40, cwd=log.parent) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "recorded\n"
        _eventually(lambda: len(_outcomes(receiver.spans)) == 2)
        _eventually(lambda: len(_followers(log)) == 1)
    finally:
        for process in processes:
            process.communicate("go on\n", timeout=30)
    _eventually(lambda: not _followers(log))
    assert _outcomes(receiver.spans) == {key: 3 * n for key, n in _OUTCOMES.items()}


def test_a_side_car_that_is_killed_is_started_again_at_the_end(
    log: Path, receiver: OtlpReceiver
) -> None:
    code = (
        _RECORD + "    print('recorded', flush=True)\n    sys.stdin.readline()\n    trace.close()\n"
    )
    process = start_python(code, log, receiver.endpoint("grpc"), "sidecar", 40, cwd=log.parent)
    assert process.stdout is not None
    assert process.stdout.readline() == "recorded\n"
    _eventually(lambda: receiver.spans)
    for pid in _followers(log):
        os.kill(pid, signal.SIGKILL)
    process.communicate("go on\n", timeout=30)
    _eventually(lambda: not _followers(log))
    assert _outcomes(receiver.spans) == _OUTCOMES


def test_a_side_car_waits_for_a_receiver_that_is_away(log: Path, receiver: OtlpReceiver) -> None:
    receiver.behaviour = "unavailable"
    code = _RECORD + "    os.kill(os.getpid(), signal.SIGKILL)\n"
    run_python(code, log, receiver.endpoint("grpc"), "sidecar", 40, cwd=log.parent, status=-9)
    _eventually(lambda: receiver.refused)
    receiver.behaviour = "answer"
    _eventually(lambda: not _followers(log))
    assert _outcomes(receiver.spans) == _OUTCOMES


def test_what_a_killed_process_did_not_send_is_sent_when_its_log_is_opened_again(
    log: Path, receiver: OtlpReceiver
) -> None:
    """Once: also when it is opened a third time."""
    endpoint = receiver.endpoint("grpc")
    code = _RECORD + (
        "    time.sleep(1.5)  # some of it is sent\n"
        "    record(int(groups), int(groups) + 40)\n"
        "    trace.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_python(code, log, endpoint, "process", 40, cwd=log.parent, status=-9)
    assert _outcomes(receiver.spans).keys().isdisjoint({("rl.rollout.attempt", "interrupted")})
    sent_live = len(receiver.spans)
    assert sent_live > 0
    for _ in range(2):
        run_python(_RECORD + "    trace.close()\n", log, endpoint, "process", 0, cwd=log.parent)
        _eventually(lambda: not _followers(log))
        assert _outcomes(receiver.spans) == {key: 2 * n for key, n in _OUTCOMES.items()}
    assert len({event["run"] for event in read_events(log)}) == 3


def test_a_run_that_goes_on_is_not_recovered(log: Path, receiver: OtlpReceiver) -> None:
    endpoint = receiver.endpoint("grpc")
    code = (
        _RECORD + "    print('recorded', flush=True)\n    sys.stdin.readline()\n    trace.close()\n"
    )
    process = start_python(code, log, endpoint, "process", 40, cwd=log.parent)
    assert process.stdout is not None
    assert process.stdout.readline() == "recorded\n"
    run_python(_RECORD + "    trace.close()\n", log, endpoint, "process", 0, cwd=log.parent)
    assert not _followers(log)
    assert ("rl.rollout.attempt", "interrupted") not in _outcomes(receiver.spans)
    process.communicate("go on\n", timeout=30)
    assert _outcomes(receiver.spans) == _OUTCOMES


def test_spans_that_an_outage_lost_are_sent_when_the_log_is_opened_again(
    log: Path, receiver: OtlpReceiver
) -> None:
    endpoint = receiver.endpoint("grpc")
    receiver.behaviour = "unavailable"
    run_python(_RECORD + "    trace.close()\n", log, endpoint, "process", 40, cwd=log.parent)
    assert not receiver.spans
    receiver.behaviour = "answer"
    run_python(_RECORD + "    trace.close()\n", log, endpoint, "process", 0, cwd=log.parent)
    _eventually(lambda: not _followers(log))
    assert _outcomes(receiver.spans) == _OUTCOMES


def test_export_is_one_of_two_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="neither 'process' nor 'sidecar'"):
        configure(tmp_path / "log.jsonl", export="thread")  # type: ignore[arg-type] # the point
