"""``report`` on the command line: what it writes, what it refuses, and what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.logs import simulate, write_log

from otel_rollout_trace.cli import main
from otel_rollout_trace.sample import SAMPLE_LOG


def run(patch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit status of the command."""
    patch.setattr(sys, "argv", ["otel-rollout-trace", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(
    patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> str:
    """The one line that says why."""
    assert run(patch, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    [line] = said.err.splitlines()
    assert line.startswith("otel-rollout-trace: ")
    return line


def test_it_says_where_the_page_is_and_how_large(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--sample") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("sample.jsonl.gz: 1,950 events of 3 runs")
    size = (here / "sample.report.html").stat().st_size
    assert out[-1].strip() == f"wrote     sample.report.html: {size / 1e6:.1f} MB"


def test_a_page_is_not_overwritten_unless_asked_to(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = here / "page.html"
    page.write_text("mine")
    assert "--force" in refused(monkeypatch, capsys, "--sample", "-o", page)
    assert page.read_text() == "mine"
    assert run(monkeypatch, "--sample", "-o", page, "--force", "--title", "Thursday & Friday") == 0
    assert "<h1>Thursday &amp; Friday</h1>" in page.read_text(encoding="utf-8")
    assert [path.name for path in here.iterdir()] == ["page.html"]


def test_one_run_by_the_beginning_of_its_id(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--sample", "--run", "a2fd51") == 0
    page = (here / "sample.report.html").read_text(encoding="utf-8")
    assert "events of run a2fd516a" in page
    capsys.readouterr()
    assert "no run begins with" in refused(monkeypatch, capsys, "--sample", "--run", "xyz")


def test_words_of_another_writer(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        event | {"event": event["event"].replace("step_trained", "learned")}
        for event in simulate(1)
    ]
    log = write_log(here / "log.jsonl", events)
    assert run(monkeypatch, log, "--synonym", "learned=step_trained") == 0
    assert "; 0 steps trained" not in (here / "log.report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "name a FILE, or use --sample"),
        (("missing.jsonl",), "missing.jsonl"),
        (("--sample", "-o", "no/such/directory/page.html"), "No such file or directory"),
        (("--sample", "-o", "."), "."),
        (("--sample", "--synonym", "x"), "--synonym"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...],
    reason: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert reason in refused(monkeypatch, capsys, *arguments)
    assert list(here.iterdir()) == []


def test_without_plotly_it_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    line = refused(monkeypatch, capsys, SAMPLE_LOG)
    assert line.endswith("install it with: pip install 'otel-rollout-trace[report]'")
    assert list(here.iterdir()) == []
