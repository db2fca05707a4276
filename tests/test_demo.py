"""The demo training: what it learns, what its log holds, how it ends."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from support.otlp_receiver import OtlpReceiver
from support.processes import run_python
from support.programs import wait_for

import otel_rollout_trace
from otel_rollout_trace import batch_age_by_step, read_events
from otel_rollout_trace.check import check_log
from otel_rollout_trace.cli import main
from otel_rollout_trace.demo import run as demo_run
from otel_rollout_trace.demo.checkpoint import load
from otel_rollout_trace.demo.rollouts import GENERATIONS, MOST_OPEN_GROUPS
from otel_rollout_trace.demo.run import DEFAULT_STEPS, Settings, train
from otel_rollout_trace.demo.training import GROUPS_PER_STEP, MAX_AGE, ReplayBuffer

DEMO: Final = Path(demo_run.__file__).parent
Event = dict[str, Any]

# The HTTP client of the OTLP exporters leaves its connections to the garbage collector.
_SETTINGS: Final = {
    "COLUMNS": "80",
    "PYTHONUTF8": "1",
    "PYTHONWARNINGS": "error,ignore::ResourceWarning",
}


class Ran(NamedTuple):
    """A demo that came to its end."""

    status: int
    out: str
    err: str
    log: Path
    events: list[Event]


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return inherited | _SETTINGS | more


def start(log: Path, *options: object, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "otel_rollout_trace", "demo", "--log", str(log)]
    return subprocess.Popen(
        [*command, *map(str, options)],
        **{
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": environment(),
            **settings,
        },
    )


def run(log: Path, *options: object, **variables: str) -> Ran:
    with start(log, "--speed", 10_000, *options, env=environment(**variables)) as process:
        out, err = process.communicate(timeout=90)
    events = [dict(event) for event in read_events(log)] if log.is_file() else []
    return Ran(process.returncode, out, err, log, events)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The default run, but for its speed."""
    ran = run(tmp_path_factory.mktemp("default") / "rollout_trace.jsonl")
    assert (ran.status, ran.err) == (0, "")
    return ran


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A run that is killed in step 8, two steps after a checkpoint."""
    log = tmp_path_factory.mktemp("killed") / "rollout_trace.jsonl"
    ran = run(log, "--steps", 10, "--checkpoint-every", 3, "--kill-at-step", 8)
    assert (ran.status, ran.err) == (0, "")
    return ran


def of(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


class TestTraining:
    def test_the_reward_rises(self, default: Ran) -> None:
        rewards = [event["reward"] for event in of(default.events, "step_trained")]
        assert len(rewards) == DEFAULT_STEPS
        assert sum(rewards[:5]) / 5 < 0.15
        assert sum(rewards[-5:]) / 5 > 0.4

    def test_the_same_seed_goes_the_same_way_at_any_speed(
        self, default: Ran, tmp_path: Path
    ) -> None:
        slower = run(tmp_path / "log.jsonl", "--steps", 4, "--speed", 12)
        assert history(slower.events)
        assert history(slower.events) == history(default.events)[: len(history(slower.events))]

    def test_another_seed_goes_another_way(self, default: Ran, tmp_path: Path) -> None:
        other = run(tmp_path / "log.jsonl", "--steps", 4, "--seed", 1)
        assert history(other.events) != history(default.events)[: len(history(other.events))]

    def test_a_failure_in_a_rollout_ends_the_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not one that waits for a group that never comes."""

        def fails(*_: object) -> None:
            raise RuntimeError("the buffer is broken")

        for name in ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"):
            monkeypatch.setenv(name, "none")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "5000")
        monkeypatch.setattr(ReplayBuffer, "add", fails)
        with pytest.raises(RuntimeError, match="the buffer is broken"):
            train(Settings(log=tmp_path / "log.jsonl", speed=10_000))


def history(events: list[Event]) -> list[tuple[Any, ...]]:
    """What happened up to the last step, without times and ids, which differ each time."""
    last = max(place for place, event in enumerate(events) if event["event"] == "step_trained")
    seen: dict[str, int] = {}
    happened = []
    for event in events[1 : last + 1]:
        kept = dict(event)
        for key in ("t", "run", "duration_s", "path"):
            kept.pop(key, None)
        for key in ("group_id", "attempt_id"):
            if key in kept:
                kept[key] = seen.setdefault(kept[key], len(seen))
        if "group_ids" in kept:
            kept["group_ids"] = [seen[group_id] for group_id in kept["group_ids"]]
        if "calls" in kept:
            kept["calls"] = [[seen[call], tokens] for call, tokens in kept["calls"]]
        happened.append(tuple(sorted(kept.items(), key=str)))
    return happened


class TestLog:
    def test_it_holds_all_that_can_happen(self, default: Ran) -> None:
        reasons = {(event["event"], event.get("reason")) for event in default.events}
        assert reasons >= {
            ("attempt_sealed", None),
            ("attempt_refused", "over_length"),
            ("attempt_abandoned", "timeout"),
            ("attempt_abandoned", "stale_weights"),
            ("group_discarded", "zero_variance"),
            ("group_discarded", "stale_weights"),
            ("group_published", None),
            ("step_trained", None),
            ("weights_synced", None),
            ("checkpoint_published", None),
        }

    def test_nothing_is_odd_about_it(self, default: Ran) -> None:
        assert check_log(default.log).findings == []

    def test_each_attempt_ends_once(self, default: Ran) -> None:
        begun = Counter(event["attempt_id"] for event in of(default.events, "attempt_dispatched"))
        ended = Counter(
            event["attempt_id"]
            for name in ("attempt_sealed", "attempt_refused", "attempt_abandoned")
            for event in of(default.events, name)
        )
        assert begun == ended
        assert set(begun.values()) == {1}

    def test_each_group_ends_once(self, default: Ran) -> None:
        reserved = Counter(event["group_id"] for event in of(default.events, "group_reserved"))
        ended = Counter(event["group_id"] for event in of(default.events, "group_discarded"))
        for step in of(default.events, "step_trained"):
            assert len(step["group_ids"]) == GROUPS_PER_STEP
            ended.update(step["group_ids"])
        assert reserved == ended
        assert set(reserved.values()) == {1}

    def test_every_generation_of_a_published_group_is_sealed_once(self, default: Ran) -> None:
        generations = {
            event["attempt_id"]: event["generation_index"]
            for event in of(default.events, "attempt_dispatched")
        }
        sealed = defaultdict(list)
        for event in of(default.events, "attempt_sealed"):
            sealed[event["group_id"]].append(generations[event["attempt_id"]])
        published = of(default.events, "group_published")
        assert published
        for event in published:
            assert sorted(sealed[event["group_id"]]) == list(range(GENERATIONS))

    def test_tokens_are_counted_by_the_version_that_made_them(self, default: Ran) -> None:
        """Worked out here from the refits' events, each of which says where it cut."""
        versions: dict[str, list[int]] = {}  # of each token of each attempt, so far
        current: dict[str, int] = {}
        by_group: dict[str, Counter[str]] = defaultdict(Counter)
        split = 0
        for event in default.events:
            if event["event"] == "attempt_dispatched":
                current[event["attempt_id"]] = event["weight_version"]
                versions[event["attempt_id"]] = []
            elif event["event"] == "weights_synced":
                assert event["weight_version"] == event["replaced_version"] + 1
                for call, tokens in event["calls"]:
                    assert current[call] == event["replaced_version"]
                    versions[call] += [current[call]] * (tokens - len(versions[call]))
                    current[call] = event["weight_version"]
            elif event["event"] == "attempt_sealed":
                made_by = versions[event["attempt_id"]]
                made_by += [current[event["attempt_id"]]] * (event["tokens"] - len(made_by))
                by_group[event["group_id"]].update(map(str, made_by))
            elif event["event"] == "group_published":
                assert event["tokens_by_version"] == by_group[event["group_id"]]
                split += len(event["tokens_by_version"]) > 1
        assert split > 10

    def test_groups_out_are_bounded(self, default: Ran) -> None:
        out: set[str] = set()
        most = 0
        for event in default.events:
            if event["event"] == "group_admitted":
                out.add(event["group_id"])
            elif event["event"] == "group_discarded":
                out.discard(event["group_id"])
            elif event["event"] == "step_trained":
                out.difference_update(event["group_ids"])
            most = max(most, len(out))
        assert most == MOST_OPEN_GROUPS

    def test_batches_age_while_they_are_made_and_while_they_wait(self, default: Ran) -> None:
        published_under: dict[str, tuple[int, dict[str, int]]] = {}
        version = 0
        generating = waiting = 0
        for event in default.events:
            if event["event"] == "weights_synced":
                version = event["weight_version"]
            elif event["event"] == "group_published":
                published_under[event["group_id"]] = version, event["tokens_by_version"]
            elif event["event"] == "step_trained":
                assert event["trained_version"] == version
                for group_id in event["group_ids"]:
                    then, counts = published_under[group_id]
                    waiting += version > then
                    generating += any(int(made_by) < then for made_by in counts)
                    assert all(version - int(made_by) <= MAX_AGE for made_by in counts)
        ages = batch_age_by_step(default.events)
        assert list(ages) == list(range(1, DEFAULT_STEPS + 1))
        assert sum(age > 0 for age in ages.values()) >= DEFAULT_STEPS - 1
        assert generating > 20
        assert waiting > 20

    def test_a_checkpoint_is_there_when_the_log_says_so(self, default: Ran) -> None:
        steps = [event["step"] for event in of(default.events, "checkpoint_published")]
        assert steps == [5, 10, 15, 20, 25, 30]
        assert Path(of(default.events, "checkpoint_published")[-1]["path"]).is_file()

    def test_a_second_run_is_appended_and_says_so(self, tmp_path: Path) -> None:
        """In a log given by its directory."""
        first = run(tmp_path, "--steps", 1)
        second = run(tmp_path, "--steps", 1)
        log = tmp_path / "rollout_trace.jsonl"
        assert first.out.startswith("step   1")
        assert second.out.startswith(f"{log} is there: this run is appended to it\n")
        assert len(of(list(map(dict, read_events(log))), "trace_opened")) == 2
        assert "1 step in 1 run" in second.out

    def test_a_log_that_is_not_the_demos_is_left_alone(self, tmp_path: Path) -> None:
        log = tmp_path / "rollout_trace.jsonl"
        log.write_text('{"t": 1.0, "run": "00", "event": "trace_opened"}\n')
        before = log.read_bytes()
        ran = run(log)
        assert (ran.status, ran.out) == (2, "")
        [line] = ran.err.splitlines()
        assert line == (
            f"otel-rollout-trace: {log} is there and is not the demo's: name another with --log"
        )
        assert log.read_bytes() == before
        assert list(tmp_path.iterdir()) == [log]


class TestKilled:
    def test_one_log_has_both_runs(self, killed: Ran) -> None:
        first, second = (event["pid"] for event in of(killed.events, "trace_opened"))
        assert first != second
        assert "killed during step 8; going on from step 6" in killed.out

    def test_unsaved_steps_are_lost_and_trained_again(self, killed: Ran) -> None:
        steps = defaultdict(list)
        for event in of(killed.events, "step_trained"):
            steps[event["run"]].append(event["step"])
        assert list(steps.values()) == [[1, 2, 3, 4, 5, 6, 7], [7, 8, 9, 10]]
        [restored] = of(killed.events, "checkpoint_restored")
        assert (restored["step"], restored["weight_version"]) == (6, 6)

    def test_versions_go_on_from_the_checkpoint(self, killed: Ran) -> None:
        for event in of(killed.events, "step_trained"):
            assert event["trained_version"] == event["step"] - 1
        replaced = [event["replaced_version"] for event in of(killed.events, "weights_synced")]
        assert replaced == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9]

    def test_it_was_killed_with_attempts_in_flight(self, killed: Ran) -> None:
        first, second = check_log(killed.log).runs
        assert first.attempts["interrupted"] > 5
        assert second.attempts["interrupted"] == 0
        kinds = {finding.kind for finding in check_log(killed.log).findings}
        # And nothing else, but a line that the kill may have torn.
        assert kinds - {"bad_lines"} == {
            "attempts_without_end",
            "groups_without_end",
            "groups_without_start",
            "steps_repeated",
        }

    def test_saved_attempts_are_resumed_where_they_were(self, killed: Ran) -> None:
        first = {
            event["attempt_id"]: event
            for event in killed.events
            if event["event"] in ("attempt_dispatched", "attempt_resumed")
        }
        sealed = {event["attempt_id"]: event for event in of(killed.events, "attempt_sealed")}
        resumed = of(killed.events, "attempt_resumed")
        part_way = 0
        for event in resumed:
            before = first[event["resumed_from"]]
            assert before["run"] != event["run"]
            for field in ("prompt_id", "generation_index"):
                assert before[field] == event[field]
            end = sealed.get(event["attempt_id"])
            if end is not None:
                part_way += end["tokens"] > event["tokens"]
                assert end["tokens"] >= event["tokens"]
        assert part_way > 3
        assert len(resumed) > part_way  # others were sealed when they were saved

    def test_groups_that_were_published_are_trained_without_being_made_again(
        self, killed: Ran
    ) -> None:
        [restored] = of(killed.events, "checkpoint_restored")
        published = {
            event["group_id"]: event["run"] for event in of(killed.events, "group_published")
        }
        carried = [
            group_id
            for step in of(killed.events, "step_trained")
            for group_id in step["group_ids"]
            if published[group_id] != step["run"]
        ]
        assert 0 < len(carried) <= restored["groups"]

    def test_without_a_checkpoint_it_starts_over(self, tmp_path: Path) -> None:
        ran = run(tmp_path / "log.jsonl", "--steps", 2, "--kill-at-step", 2)
        assert ran.status == 0
        assert "killed during step 2; going on from nothing" in ran.out
        steps = [event["step"] for event in of(ran.events, "step_trained")]
        assert steps == [1, 1, 2]
        assert not of(ran.events, "checkpoint_restored")


class TestEnds:
    @pytest.mark.parametrize(
        ("signum", "options"),
        [
            (signal.SIGINT, ()),
            (signal.SIGTERM, ()),
            (signal.SIGTERM, ("--kill-at-step", 999)),
        ],
        ids=["Ctrl-C", "SIGTERM", "SIGTERM to the parent"],
    )
    def test_a_signal_ends_it_cleanly(
        self, tmp_path: Path, signum: signal.Signals, options: tuple[object, ...]
    ) -> None:
        log = tmp_path / "log.jsonl"
        with start(log, "--steps", 999, "--speed", 5, *options) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("step   1")
                process.send_signal(signum)
                out, err = process.communicate(timeout=30)
            finally:
                process.kill()
        assert process.returncode == 128 + signum
        assert err == ""
        assert f"next:\n  otel-rollout-trace batch-age {log}\n" in out
        assert log.read_bytes().endswith(b"}\n")
        [opened] = [event for event in read_events(log) if event["event"] == "trace_opened"]
        with pytest.raises(ProcessLookupError):
            os.kill(opened["pid"], 0)

    def test_without_end_it_goes_on_from_its_checkpoint(self, tmp_path: Path) -> None:
        """And starts over with fresh weights once the task is solved."""
        log = tmp_path / "log.jsonl"
        for _ in range(2):
            with start(log, "--forever", "--speed", 10_000, "--checkpoint-every", 2) as process:
                try:
                    before = len(log.read_bytes()) if log.exists() else 0
                    wait_for(
                        lambda before=before: (
                            log.exists()  # type: ignore[misc] # bound here
                            and b'"checkpoint_published"' in log.read_bytes()[before:]
                        ),
                        "checkpoint",
                    )
                    process.send_signal(signal.SIGTERM)
                    _, err = process.communicate(timeout=30)
                finally:
                    process.kill()
            assert (process.returncode, err) == (143, "")
        events = list(map(dict, read_events(log)))
        [restored] = of(events, "checkpoint_restored")
        later = [
            event["step"] for event in of(events, "step_trained") if event["run"] == restored["run"]
        ]
        assert later[0] == restored["step"] + 1

    def test_without_end_it_starts_over_when_the_task_is_solved(self, tmp_path: Path) -> None:
        """Here any reward will do, so that is after the fewest steps that it looks at."""
        code = """
            import sys
            from otel_rollout_trace.cli import main
            from otel_rollout_trace.demo import run
            run._SOLVED_REWARD = 0
            class Enough(Exception):
                pass
            def stepped(self, report):
                if report.step > run._SOLVED_STEPS:
                    raise Enough
            run.Display.stepped = stepped
            sys.argv = ["demo", "demo", "--forever", "--speed", "10000", "--checkpoint-every", "1"]
            try:
                main()
            except Enough:
                print("enough")
        """
        assert run_python(code, cwd=tmp_path) == ("enough\n", "")
        directory = tmp_path / "rollout_trace.checkpoints"
        before, solved = (load(directory / f"step_{step}.npz") for step in (4, 5))
        assert before.policy.weights.any()
        assert not solved.policy.weights.any()


class TestTelemetry:
    def test_without_an_endpoint_it_connects_to_nobody(self, tmp_path: Path) -> None:
        code = """
            import sys
            connected = []
            def audit(event, _):
                if event == "socket.connect":
                    connected.append(event)
            sys.addaudithook(audit)
            from otel_rollout_trace.cli import main
            sys.argv = ["otel-rollout-trace", "demo", "--steps", "2", "--speed", "10000"]
            try:
                main()
            finally:
                print(len(connected), "connections")
        """
        out, err = run_python(code, cwd=tmp_path)
        assert out.endswith("\n0 connections\n")
        assert err == ""
        assert (tmp_path / "rollout_trace.jsonl").is_file()

    def test_with_an_endpoint_spans_and_metrics_arrive(self, tmp_path: Path) -> None:
        with OtlpReceiver() as receiver:
            endpoint = receiver.endpoint("http/protobuf")
            ran = run(tmp_path / "log.jsonl", "--steps", 2, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
            assert (ran.status, ran.err) == (0, "")
            names = Counter(span.name for span in receiver.spans)
            attempts = of(ran.events, "attempt_dispatched")
            assert names["rl.rollout.attempt"] == len(attempts)
            assert [point.value for point in receiver.points("rl.step")][-1] == 2

    def test_an_endpoint_for_traces_means_traces(self, tmp_path: Path) -> None:
        """Metrics are not sent where nobody said to."""
        with OtlpReceiver() as receiver:
            endpoint = receiver.endpoint("http/protobuf") + "/v1/traces"
            ran = run(
                tmp_path / "log.jsonl", "--steps", 1, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=endpoint
            )
            assert (ran.status, ran.err) == (0, "")
            assert receiver.spans


class TestDisplay:
    def test_without_a_terminal_it_is_a_line_for_each_step(self, default: Ran) -> None:
        lines = default.out.splitlines()
        form = re.compile(
            r"step +(\d+)  reward 0\.\d{3}  batch age \d\.\d{3}  loss [+-]0\.\d{4}  "
            r" ?\d+ calls  \d+ waiting"
        )
        found = [form.fullmatch(line) for line in lines[:DEFAULT_STEPS]]
        assert [int(match[1]) for match in found if match] == list(range(1, DEFAULT_STEPS + 1))
        assert "\x1b" not in default.out

    def test_the_summary_is_what_the_log_says(self, default: Ran) -> None:
        _, _, summary = default.out.partition("\n\n")
        assert f"{DEFAULT_STEPS} steps in 1 run: {default.log}\n" in summary
        rewards = [event["reward"] for event in of(default.events, "step_trained")]
        assert f"{rewards[0]:.3f} in the first step, {rewards[-1]:.3f} at last" in summary
        ages = batch_age_by_step(default.events).values()
        assert f"mean {sum(ages) / len(ages):.3f}, max {max(ages):.3f} updates" in summary
        for outcome in ("sealed", "refused", "abandoned"):
            assert f"{len(of(default.events, f'attempt_{outcome}')):,} {outcome}" in summary
        assert f"{DEFAULT_STEPS * GROUPS_PER_STEP:,} trained" in summary
        shown = [line for line in summary.splitlines() if line.startswith("tokens")]
        total = sum(event["tokens"] for event in default.events if "tokens" in event)
        assert f"{total:,}: " in shown[0]

    def test_what_it_says_to_run_next_runs(self, default: Ran) -> None:
        _, _, commands = default.out.partition("next:\n")
        assert len(commands.splitlines()) == 3
        for command in commands.splitlines():
            done = subprocess.run(
                [sys.executable, "-m", "otel_rollout_trace", *command.split()[1:]],
                env=environment(),
                capture_output=True,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, b"")

    def test_in_a_terminal_it_is_a_board_of_eighty_columns(self, tmp_path: Path) -> None:
        options = ("--steps", 4, "--speed", 8, "--kill-at-step", 3, "--checkpoint-every", 2)
        screen = in_a_terminal(tmp_path / "log.jsonl", *options)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
        lines = [line for piece in text.split("\n") for line in piece.split("\r")]
        assert max(map(len, lines)) <= 80 or str(tmp_path) in max(lines, key=len)
        for shown in ("step       4 of 4", "reward     0.", "batch age  ", "running, of", "▁"):
            assert shown in text
        assert "killed during step 3; going on from step 2" in lines
        # The cursor that each board hid is back.
        assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l")


def in_a_terminal(log: Path, *options: object) -> str:
    """What the demo writes to a terminal of 80 columns."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    variables = {**environment(TERM="xterm-256color"), "COLUMNS": ""}
    del variables["COLUMNS"]
    with start(log, *options, stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        written = b"".join(read_all(ours))
        assert process.wait(30) == 0, written.decode()
    os.close(ours)
    return written.decode()


def read_all(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # nobody has the other side any more
            return
        if not piece:
            return
        yield piece


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            (("--steps", 0), "--steps must be at least 1"),
            (("--seed", -1), "--seed must not be negative"),
            (("--speed", 0), "--speed must be a number above 0"),
            (("--speed", "nan"), "--speed must be a number above 0"),
            (("--checkpoint-every", 0), "--checkpoint-every must be at least 1"),
            (("--kill-at-step", 0), "--kill-at-step must be one of the steps"),
            (("--kill-at-step", 31), "--kill-at-step must be one of the steps"),
            (("--steps", 3, "--forever"), "--steps or --forever, not both"),
            (("--open", "Jaeger"), "--open 'Jaeger' is not like Jaeger=http://127.0.0.1:16686"),
        ],
        ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
    )
    def test_options_that_make_no_sense(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        options: tuple[object, ...],
        reason: str,
    ) -> None:
        """Before anything is written."""
        arguments = ["demo", "--log", str(tmp_path / "log.jsonl"), *map(str, options)]
        monkeypatch.setattr(sys, "argv", ["otel-rollout-trace", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"otel-rollout-trace: {reason}\n")
        assert not list(tmp_path.iterdir())

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        ran = run(tmp_path / "file" / "log.jsonl")
        assert (ran.status, ran.out) == (2, "")
        [line] = ran.err.splitlines()
        assert line.startswith("otel-rollout-trace: ")

    def test_a_missing_numpy(self, tmp_path: Path) -> None:
        code = """
            import sys
            sys.modules["numpy"] = None
            from otel_rollout_trace.cli import main
            sys.argv = ["otel-rollout-trace", "demo"]
            main()
        """
        out, err = run_python(code, cwd=tmp_path, status=2)
        assert out == ""
        assert err == (
            "otel-rollout-trace: the demo needs 'numpy'; "
            "install it with: pip install 'otel-rollout-trace[demo]'\n"
        )


class TestHouse:
    @pytest.mark.parametrize("path", sorted(DEMO.glob("*.py")), ids=lambda path: path.name)
    def test_it_uses_only_what_users_can(self, path: Path) -> None:
        """Of this package its public names; besides, NumPy and the standard library."""
        others = {"numpy"}
        if path.name == "display.py":
            others |= {"rich", "opentelemetry"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                module = node.module or ""
                if module.split(".")[0] == "otel_rollout_trace":
                    assert module == "otel_rollout_trace"
                    names = {alias.name for alias in node.names}
                    assert names <= set(otel_rollout_trace.__all__)
                    continue
                modules = [module]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1, "another room of the package"
                continue
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            for module in modules:
                assert module.split(".")[0] in sys.stdlib_module_names | others

    def test_nothing_loads_it_but_its_own_command(self) -> None:
        code = "import otel_rollout_trace.cli.app, sys, json; print(json.dumps(list(sys.modules)))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = json.loads(done.stdout)
        assert "otel_rollout_trace.cli.demo" in loaded
        assert not {"numpy", "otel_rollout_trace.demo"} & set(loaded)
        package = DEMO.parent
        importing = {
            path.relative_to(package).as_posix()
            for path in package.rglob("*.py")
            if re.search(r"^\s*from \.+demo\b", path.read_text(encoding="utf-8"), re.MULTILINE)
        }
        assert importing == {"cli/app.py", "cli/demo.py"}
