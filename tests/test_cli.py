"""The command line: what it prints, what it refuses, and with which status it ends."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.commands import Command, check_golden
from support.logs import DATA, EXAMPLE
from support.processes import run_python

from otel_rollout_trace import batch_age_by_step, read_events
from otel_rollout_trace.cli import main

STEADY = DATA / "steady.jsonl"
KILLED = DATA / "killed_and_restored.jsonl"

_COMMANDS = (("batch-age",), ("check",), ("replay", "--dry-run"), ("replay",))
_EVERY_COMMAND = pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)


def _refused_here(*arguments: object) -> str:
    """The one line that a command refused in this process says; it wrote nothing else."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["otel-rollout-trace", *map(str, arguments)])
        main()
    assert ended.value.code == 2, err.getvalue()
    assert out.getvalue() == ""
    [line] = err.getvalue().splitlines()
    assert line.startswith("otel-rollout-trace: ")
    return line


class TestBatchAge:
    @pytest.mark.parametrize("path", [STEADY, KILLED], ids=lambda path: path.stem)
    def test_it_prints_the_figures_beside_the_samples(self, path: Path) -> None:
        """To the byte."""
        ended = Command("batch-age", path)
        assert ended.status == 0
        assert ended.out == path.with_suffix(".batch_age.txt").read_text()

    def test_json_has_every_digit(self) -> None:
        """For programs: steps as keys."""
        ended = Command("batch-age", "--json", STEADY)
        ages = batch_age_by_step(read_events(STEADY))
        assert json.loads(ended.out) == {str(step): age for step, age in ages.items()}

    def test_gzip_is_read(self, tmp_path: Path) -> None:
        """As is the sample that ships with the package."""
        (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(STEADY.read_bytes()))
        expected = STEADY.with_suffix(".batch_age.txt").read_text()
        assert Command("batch-age", tmp_path / "log.jsonl.gz").out == expected
        assert Command("batch-age", "--sample").out.startswith("step 1: batch age ")


class TestTables:
    @pytest.mark.parametrize("name", ["example", "steady", "killed_and_restored", "other_words"])
    @pytest.mark.parametrize("command", [("check",), ("replay", "--dry-run")], ids=" ".join)
    def test_they_are_the_golden_ones(self, command: tuple[str, ...], name: str) -> None:
        """Files to be looked at; written anew where they are missing."""
        ended = Command(*command, f"{name}.jsonl", cwd=DATA)
        assert (ended.status, ended.err) == (0, "")
        check_golden(f"{command[0]}_{name}.txt", ended.out)

    def test_they_fit_eighty_columns(self) -> None:
        """Where lines can be broken at all."""
        for name in ("steady", "killed_and_restored", "other_words"):
            lines = Command("check", DATA / f"{name}.jsonl").out.splitlines()
            assert max(map(len, lines)) <= 80

    def test_json_says_the_same(self) -> None:
        """Of a check and of a replay, one document each."""
        check = json.loads(Command("check", "--json", KILLED).out)
        assert len(check["runs"]) == 3
        assert sum(check["events"].values()) == 1_950
        [replayed] = json.loads(Command("replay", "--dry-run", "--json", KILLED).out)
        assert (replayed["events"], replayed["runs"], replayed["bad_lines"]) == (1_950, 3, 2)

    def test_strict_ends_with_1_where_something_is_odd(self) -> None:
        """And with 0 where nothing is."""
        assert Command("check", "--strict", EXAMPLE).status == 0
        assert Command("check", "--strict", KILLED).status == 1

    def test_markup_in_a_log_is_text(self, tmp_path: Path) -> None:
        """Names are printed as they are, whatever a terminal library makes of brackets."""
        name = "[red]x[/red] :fire:"
        line = {"t": 1_790_000_000, "run": "[b]ab", "event": name}
        (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
        ended = Command("check", tmp_path / "log.jsonl")
        assert ended.status == 0, ended.err
        assert ended.out.count(name) == 2
        assert "[b]ab" in ended.out


_BAD: Final = {
    "missing": None,
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "other JSON lines": b'{"level": "info", "msg": "hello"}\n' * 5,
    "a JSON array": b"[1, 2, 3]\n",
    "text": b"Training started.\nStep 1 done.\n",
    "blank lines": b"\n\n\n",
    "broken gzip": gzip.compress(b"x" * 10_000)[:20],
}


class TestRefusals:
    @_EVERY_COMMAND
    @pytest.mark.parametrize("content", _BAD.values(), ids=_BAD)
    def test_bad_input_is_one_clear_line(
        self, command: tuple[str, ...], content: bytes | None, tmp_path: Path
    ) -> None:
        """Which names the file; nothing is written anywhere."""
        path = tmp_path / "log.jsonl"
        if content is not None:
            path.write_bytes(content)
        before = sorted(tmp_path.iterdir())
        assert str(path) in _refused_here(*command, path)
        assert sorted(tmp_path.iterdir()) == before
        if content is not None:
            assert path.read_bytes() == content

    @_EVERY_COMMAND
    def test_so_is_a_directory(self, command: tuple[str, ...], tmp_path: Path) -> None:
        """It is no log."""
        assert str(tmp_path) in _refused_here(*command, tmp_path)
        assert not list(tmp_path.iterdir())

    @_EVERY_COMMAND
    def test_so_is_no_file_at_all(self, command: tuple[str, ...]) -> None:
        """The sample is offered."""
        assert "--sample" in _refused_here(*command)

    def test_a_process_ends_with_2(self, tmp_path: Path) -> None:
        """Its streams and status as a shell sees them; no file appears."""
        assert "gone.jsonl" in Command("replay", "gone.jsonl", cwd=tmp_path).refused()
        assert not list(tmp_path.iterdir())

    def test_one_bad_file_of_several_sends_none(self) -> None:
        """The order does not matter."""
        assert "no-such-file" in _refused_here("replay", "--dry-run", STEADY, "no-such-file")


class TestRun:
    def test_the_beginning_of_an_id_will_do(self) -> None:
        """Where it is one run's only."""
        [found] = json.loads(Command("replay", "--dry-run", "--json", "--run", "a2f", KILLED).out)
        assert (found["events"], found["runs"]) == (344, 1)

    @pytest.mark.parametrize("run", ["zz", "a2fd516aX", ""])
    def test_an_unknown_or_ambiguous_one_is_refused(self, run: str) -> None:
        """The message says which."""
        assert repr(run) in Command("replay", "--dry-run", "--run", run, KILLED).refused()

    def test_one_that_a_later_file_lacks_is_refused_before_anything_is_sent(self) -> None:
        """All or nothing, as with a file that cannot be read."""
        ended = Command("replay", "--dry-run", "--run", "db5b", STEADY, KILLED)
        assert "'db5b'" in ended.refused()


class TestSynonyms:
    def test_a_word_of_ones_own_is_understood(self, tmp_path: Path) -> None:
        """By every command."""
        path = tmp_path / "log.jsonl"
        path.write_text(EXAMPLE.read_text().replace("step_trained", "optimised"))
        assert Command("batch-age", path).out == ""
        words = ("--synonym", "optimised=step_trained")
        assert Command("batch-age", *words, path).out == "step 3: batch age 1.250\n"
        assert "1 trained" in Command("replay", "--dry-run", *words, path).out
        assert "optimised = step_trained" in Command("check", *words, path).out

    @_EVERY_COMMAND
    @pytest.mark.parametrize(
        "synonym", ["optimised", "=step_trained", "optimised=", "a=nothing", "step_trained=x"]
    )
    def test_others_are_refused(self, command: tuple[str, ...], synonym: str) -> None:
        """Before the file is read."""
        _refused_here(*command, "--synonym", synonym, EXAMPLE)


class TestSending:
    def test_a_closed_port_ends_with_1_and_the_counts(self, tmp_path: Path) -> None:
        """Of spans and data points that did not arrive; no stack trace."""
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
            ended = Command(
                "replay", "--metrics", "--protocol", "http/protobuf", "--endpoint", url, EXAMPLE
            )
        assert ended.status == 1
        assert "0 spans sent" in ended.out
        lines = ended.err.splitlines()
        assert lines[0].startswith(f"otel-rollout-trace: 5 spans did not arrive at {url} (HTTP): ")
        assert len(lines) == 2 and "data point" in lines[1]


class TestPipes:
    def test_a_dash_is_refused_like_a_missing_file(self, tmp_path: Path) -> None:
        """Unless it means the input, which it would then read."""
        ended = Command("batch-age", "-", cwd=tmp_path, stdin=EXAMPLE.read_bytes())
        assert ended.out == "step 3: batch age 1.250\n" or ended.refused()

    @pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="needs /dev/stdin")
    @pytest.mark.parametrize(
        "command", [("batch-age",), ("check", "--json"), ("replay", "--dry-run")], ids=" ".join
    )
    def test_a_pipe_is_read_whole_or_refused(self, command: tuple[str, ...]) -> None:
        """It can be read once only; half of it would be a wrong answer."""
        piped = Command(*command, "/dev/stdin", stdin=STEADY.read_bytes())
        if piped.status == 2:
            piped.refused()
            return
        assert piped.status == 0, piped.err
        expected = Command(*command, STEADY).out
        assert piped.out.replace("/dev/stdin", str(STEADY)).replace("stdin:", "steady.jsonl:") == (
            expected
        )

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.parametrize(
        "command",
        [("check", KILLED), ("cost", KILLED), ("batch-age", "--json", KILLED), ("--help",)],
        ids=lambda command: command[0],
    )
    def test_an_output_that_is_full_is_one_clear_line(self, command: tuple[object, ...]) -> None:
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "otel_rollout_trace", *map(str, command)],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        [line] = ended.stderr.decode().splitlines()
        assert line == "otel-rollout-trace: standard output: No space left on device"
        assert ended.returncode == 2

    def test_a_reader_that_stops_early_is_no_error(self) -> None:
        """As `head` does; no stack trace is left on the screen."""
        command = [sys.executable, "-m", "otel_rollout_trace", "check", str(KILLED)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
        process.stderr.close()
        process.wait(timeout=60)
        assert "Traceback" not in err


class TestInstallation:
    @pytest.mark.parametrize("missing", ["typer", "rich"])
    def test_without_its_extra_there_is_one_hint(self, missing: str, tmp_path: Path) -> None:
        """It says what to install."""
        out, err = run_python(
            """
            import sys
            sys.modules[sys.argv.pop(1)] = None
            from otel_rollout_trace.cli import main
            main()
            """,
            missing,
            "check",
            cwd=tmp_path,
            status=2,
        )
        assert out == ""
        [line] = err.splitlines()
        assert missing in line and "otel-rollout-trace[cli]" in line

    def test_the_version_is_told(self) -> None:
        """That of the package."""
        assert Command("--version").out.startswith("otel-rollout-trace 0.")
