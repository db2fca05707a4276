"""The command `export`: what it writes where, what it refuses, and what it leaves behind."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from support.logs import DATA, EXAMPLE
from support.processes import run_python

from otel_rollout_trace.cli import main
from otel_rollout_trace.exporting import FORMATS, default_output, export_logs
from otel_rollout_trace.exporting.output import new_directory, new_file

KILLED = DATA / "killed_and_restored.jsonl"
OTHER = DATA / "other_words.jsonl"
_EVERY_FORMAT = pytest.mark.parametrize("name", FORMATS)


class Ended:
    """How the command ended in this process, and what it wrote."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *arguments: object) -> None:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", ["otel-rollout-trace", "export", *map(str, arguments)])
            main()
        sys.stdout.flush()
        self.status = ended.value.code or 0
        self.out, self.err = capfd.readouterr()

    def refused(self) -> str:
        """The one line that says why; nothing else may have been written."""
        assert (self.status, self.out) == (2, ""), self.err
        [line] = self.err.splitlines()
        assert line.startswith("otel-rollout-trace: ")
        return line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def content_of(path: Path) -> dict[str, bytes]:
    """A file, or the files in a directory."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


class TestOutput:
    @_EVERY_FORMAT
    def test_it_is_named_after_the_log_and_its_counts_are_told(
        self, name: str, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """In the working directory, where nothing else is left."""
        ended = Ended(capfd, KILLED, "--format", name)
        assert (ended.status, ended.err) == (0, "")
        [written] = here.iterdir()
        assert written.name == str(default_output(KILLED, name))
        assert "1,950 events of 3 runs" in ended.out
        assert "2 bad lines" in ended.out
        counts = "862 spans" if name == "otlp-json" else "683 attempts"
        assert f"{written.name}: " in ended.out and counts in ended.out

    @_EVERY_FORMAT
    def test_what_is_there_is_kept_unless_forced(
        self, name: str, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """A timeline that someone has annotated, say."""
        Ended(capfd, EXAMPLE, "--format", name, "-o", "out")
        before = content_of(here / "out")
        assert "--force" in Ended(capfd, OTHER, "--format", name, "-o", "out").refused()
        assert content_of(here / "out") == before
        assert Ended(capfd, OTHER, "--format", name, "-o", "out", "--force").status == 0
        assert content_of(here / "out") != before
        assert [path.name for path in here.iterdir()] == ["out"]

    def test_a_directory_keeps_the_files_of_others(
        self, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Only tables of the same names are in the way."""
        (here / "notes.txt").write_text("mine")
        for force in ((), ("--force",)):
            assert Ended(capfd, EXAMPLE, "--format", "parquet", "-o", here, *force).status == 0
        assert sorted(content_of(here)) == [
            "attempts.parquet",
            "groups.parquet",
            "notes.txt",
            "steps.parquet",
        ]

    def test_the_log_is_never_overwritten(
        self, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """By no option."""
        log = here / "log.jsonl"
        log.write_bytes(EXAMPLE.read_bytes())
        ended = Ended(capfd, log, "--format", "otlp-json", "-o", "./log.jsonl", "--force")
        assert "the log itself" in ended.refused()
        assert log.read_bytes() == EXAMPLE.read_bytes()

    @pytest.mark.parametrize(("name", "there"), [("chrome", "directory"), ("parquet", "file")])
    def test_a_file_takes_no_directorys_place(
        self, name: str, there: str, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Nor the other way round."""
        (here / "out").mkdir() if there == "directory" else (here / "out").touch()
        assert Ended(capfd, EXAMPLE, "--format", name, "-o", "out", "--force").refused()

    @pytest.mark.parametrize("name", ["chrome", "otlp-json"])
    def test_a_dash_is_the_standard_output(
        self, name: str, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Which then holds nothing else."""
        ended = Ended(capfd, EXAMPLE, "--format", name, "-o", "-")
        assert ended.status == 0
        assert not list(here.iterdir())
        Ended(capfd, EXAMPLE, "--format", name, "-o", "file")
        assert ended.out == (here / "file").read_text()
        assert "14 events of 1 run" in ended.err

    @pytest.mark.parametrize("name", ["perfetto", "parquet"])
    def test_binary_formats_are_not_for_it(
        self, name: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """A terminal would be the worse for it."""
        assert "standard output" in Ended(capfd, EXAMPLE, "--format", name, "-o", "-").refused()

    @pytest.mark.parametrize("name", ["perfetto", "chrome", "otlp-json"])
    def test_gz_is_compressed(
        self, name: str, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """To the same content."""
        for output in ("out", "out.gz"):
            assert Ended(capfd, OTHER, "--format", name, "-o", output).status == 0
        packed = (here / "out.gz").read_bytes()
        assert gzip.decompress(packed) == (here / "out").read_bytes()
        assert len(packed) < (here / "out").stat().st_size / 2

    def test_several_logs_are_one_export(
        self, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Of which each row says where it is from."""
        logs = (EXAMPLE, OTHER)
        told = json.loads(Ended(capfd, "--format", "parquet", "-o", "out", "--json", *logs).out)
        assert [log["path"] for log in told["logs"]] == [str(path) for path in logs]
        rows = parquet.read_table(here / "out" / "attempts.parquet").to_pylist()
        assert {row["log"] for row in rows} == {str(path) for path in logs}
        assert told["written"]["attempts"] == len(rows)
        assert told["output"] == "out"

    def test_json_tells_the_same(self, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """For programs."""
        told = json.loads(Ended(capfd, KILLED, "--format", "otlp-json", "--json").out)
        assert told["written"]["spans"] == 862
        assert told["logs"][0]["bad_lines"] == 2


class TestChoice:
    def test_one_run_by_the_beginning_of_its_id(
        self, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """As in a replay."""
        told = json.loads(Ended(capfd, KILLED, "--run", "a2f", "--json").out)
        assert (told["logs"][0]["events"], told["logs"][0]["runs"]) == (344, 1)
        assert "'zz'" in Ended(capfd, KILLED, "--run", "zz", "-o", "x").refused()

    def test_words_of_ones_own(self, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """They are read before anything is written."""
        log = here / "log.jsonl"
        log.write_text(EXAMPLE.read_text().replace("step_trained", "optimised"))
        common = (log, "--format", "parquet", "--force", "--json")
        assert json.loads(Ended(capfd, *common).out)["written"]["steps"] == 0
        words = ("--synonym", "optimised=step_trained")
        assert json.loads(Ended(capfd, *common, *words).out)["written"]["steps"] == 1
        assert Ended(capfd, *common, "--synonym", "optimised").refused()

    def test_metrics_are_in_otlp_only(self, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """Elsewhere they would be missed silently."""
        assert "otlp-json" in Ended(capfd, EXAMPLE, "--metrics").refused()
        ended = Ended(capfd, EXAMPLE, "--metrics", "--format", "otlp-json")
        assert "data points" in ended.out

    def test_the_sample(self, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """Which needs no log."""
        assert Ended(capfd, "--sample").status == 0
        assert (here / "sample.pftrace").exists()


class TestFailures:
    @_EVERY_FORMAT
    @pytest.mark.parametrize("content", [None, b"", b"Training started.\n", b"\x1f\x8bx"])
    def test_bad_input_is_one_clear_line_and_leaves_nothing(
        self, name: str, content: bytes | None, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Neither the output nor a part of it."""
        if content is not None:
            (here / "log.jsonl").write_bytes(content)
        before = list(here.iterdir())
        for output in ((), ("-o", "-")):
            if output and not FORMATS[name].text:
                continue
            line = Ended(capfd, here / "log.jsonl", "--format", name, *output).refused()
            assert "log.jsonl" in line
        assert list(here.iterdir()) == before

    def test_no_file_at_all(self, capfd: pytest.CaptureFixture[str]) -> None:
        """The sample is offered."""
        assert "--sample" in Ended(capfd).refused()

    @_EVERY_FORMAT
    def test_an_output_that_cannot_be_written(
        self, name: str, here: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Is named."""
        line = Ended(capfd, EXAMPLE, "--format", name, "-o", "no/such/place").refused()
        assert "no/such" in line

    @_EVERY_FORMAT
    @pytest.mark.parametrize("there", [False, True])
    def test_a_failure_on_the_way_leaves_what_was_there(
        self, name: str, there: bool, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And no part of what was not."""
        output = here / "out"
        if there:
            export_logs([EXAMPLE], name, output)
        before = content_of(output) if there else None

        def full(*arguments: Any, **settings: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("otel_rollout_trace.exporting.running.replay_into", full)
        with pytest.raises(OSError, match="No space left"):
            export_logs([KILLED], name, output, force=True)
        assert (content_of(output) if there else None) == before
        assert [path.name for path in here.iterdir()] == (["out"] if there else [])

    def test_what_was_begun_has_another_name(self, here: Path) -> None:
        """So that nobody takes it for the whole."""
        with new_file(here / "a") as file, new_directory(here / "b") as directory:
            file.write(b"x")
            (directory / "c").touch()
            assert not (here / "a").exists() and not (here / "b").exists()
            assert all(path.name.startswith(".") for path in here.iterdir())
        assert sorted(path.name for path in here.iterdir()) == ["a", "b"]

    @pytest.mark.parametrize(
        ("name", "package"), [("perfetto", "perfetto"), ("parquet", "pyarrow")]
    )
    def test_without_its_extra_there_is_one_hint(self, name: str, package: str, here: Path) -> None:
        """It says what to install; nothing is left."""
        out, err = run_python(
            """
            import sys
            sys.modules[sys.argv.pop(1)] = None
            from otel_rollout_trace.cli import main
            main()
            """,
            package,
            "export",
            EXAMPLE,
            "--format",
            name,
            cwd=here,
            status=2,
        )
        assert out == ""
        [line] = err.splitlines()
        assert package in line and f"otel-rollout-trace[{name}]" in line
        assert not list(here.iterdir())

    def test_one_that_is_terminated_leaves_nothing(self, here: Path) -> None:
        """As a job whose time is over."""
        run_python(
            """
            import os, signal, sys
            from otel_rollout_trace.cli import main
            from otel_rollout_trace.exporting import running
            running.replay_into = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
            sys.argv[1:1] = ["export"]
            main()
            """,
            EXAMPLE,
            "--format",
            "chrome",
            cwd=here,
            status=128 + signal.SIGTERM,
        )
        assert not list(here.iterdir())

    def test_a_reader_that_stops_early_is_no_error(self) -> None:
        """As `head` does; no stack trace is left on the screen."""
        command = [sys.executable, "-m", "otel_rollout_trace", "export", str(KILLED)]
        process = subprocess.Popen(
            [*command, "--format", "chrome", "-o", "-"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
        process.stderr.close()
        process.wait(timeout=60)
        assert "Traceback" not in err


@_EVERY_FORMAT
def test_the_same_log_gives_the_same_bytes(name: str, here: Path) -> None:
    for output in ("one", "two"):
        export_logs([OTHER], name, here / output)
    assert [*content_of(here / "one").values()] == [*content_of(here / "two").values()]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_regular_file_is_never_replaced(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """And of a link, what it points to is."""
    os.mkfifo("pipe")
    assert "pipe: is no regular file" in Ended(capfd, "--force", "-o", "pipe", EXAMPLE).refused()
    assert Path("pipe").is_fifo()
    Path("real").write_text("old")
    Path("link").symlink_to("real")
    assert Ended(capfd, "--force", "-o", "link", EXAMPLE).status == 0
    assert Path("link").is_symlink()
    assert Path("real").stat().st_size > 1_000


def test_an_error_names_the_output_and_a_log_counts_once(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = Ended(capfd, "-o", "nowhere/x", EXAMPLE).refused()
    assert refused == "otel-rollout-trace: nowhere/x: No such file or directory"
    once = Ended(capfd, "--format", "chrome", "-o", "once", EXAMPLE)
    twice = Ended(capfd, "--format", "chrome", "-o", "twice", EXAMPLE, EXAMPLE)
    assert (once.status, twice.status) == (0, 0)
    assert Path("once").read_bytes() == Path("twice").read_bytes()
