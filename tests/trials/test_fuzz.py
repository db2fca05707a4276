"""Files that hold anything."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.logs import SAMPLES

from .common import PROGRAMS, program, run
from .programs.every_way import read_in_every_way

pytestmark = [pytest.mark.trial, pytest.mark.timeout(240)]

_LINES: Final = [
    line for sample in SAMPLES for line in sample.read_bytes().splitlines(keepends=True)[:150]
]
_SECONDS: Final = 15

# What is put somewhere, in place of something.
_PIECES: Final = [
    b"\0",
    b"\0" * 5_000,
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\n",
    b"\r\n",
    b"\r",
    b"\xef\xbb\xbf",
    b'"',
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[" * 3_000,
    b"[" * 3_000 + b"]" * 3_000,
    b'{"a":' * 2_000,
    b"null",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-0",
    b"9" * 400,
    b"1" + b"0" * 30,
    b'"t":',
    b'"run":',
    b'"event":"',
    b"1.7e308",
    b"y" * 100_000,
    b'"group_ids":[',
    b"\x1f\x8b",
    b"\xf0\x9f\x92\xa9",
]


@st.composite
def _damaged_logs(draw: st.DrawFn) -> bytes:
    """Lines of real logs, with bytes flipped, cut out, doubled and put in."""
    first = draw(st.integers(0, len(_LINES) - 1))
    lines = _LINES[first : first + draw(st.integers(1, 40))]
    data = bytearray(b"".join(lines))
    for _ in range(draw(st.integers(0, 8))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        end = min(len(data), place + draw(st.integers(0, 200)))
        how = draw(
            st.sampled_from(("flip", "cut", "double", "put", "put", "replace", "shuffle", "end"))
        )
        if how == "flip":
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del data[place:end]
        elif how == "double":
            data[place:place] = data[place:end]
        elif how == "put":
            data[place:place] = draw(st.sampled_from(_PIECES))
        elif how == "replace":
            data[place:end] = draw(st.one_of(st.sampled_from(_PIECES), st.binary(max_size=40)))
        elif how == "shuffle":
            parts = bytes(data).splitlines(keepends=True)
            data = bytearray(b"".join(draw(st.permutations(parts))))
        else:
            del data[place:]
    whole = bytes(data)
    if draw(st.integers(0, 9)) == 0:
        packed = bytearray(gzip.compress(whole, mtime=0))
        packed[draw(st.integers(0, len(packed) - 1))] ^= draw(st.sampled_from((0, 0, 1, 128)))
        whole = bytes(packed[: draw(st.integers(1, len(packed)))])
    return whole


def test_whatever_a_file_holds_it_is_read_or_refused(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """Nothing but a `LogError` is raised, and a follower sends what a replay does."""
    logs = [0, 0]
    slowest = 0.0

    @settings(max_examples=250, suppress_health_check=list(HealthCheck), deadline=None)
    @given(_damaged_logs())
    def read(data: bytes) -> None:
        nonlocal slowest
        started = time.perf_counter()
        (folder / "log.jsonl").write_bytes(data)
        logs[read_in_every_way(folder / "log.jsonl")] += 1
        slowest = max(slowest, time.perf_counter() - started)

    read()
    figure("files, of them logs, slowest", f"{sum(logs)}, {logs[1]}, {slowest * 1000:.0f} ms")
    assert logs[1] > 50


def _deep(character: bytes, many: int) -> bytes:
    return b'{"t":1,"run":"r","event":"x","deep":' + character * many


_MONSTERS: Final[dict[str, Callable[[], bytes]]] = {
    "a million brackets": lambda: _deep(b"[", 1_000_000),
    "a million objects": lambda: _deep(b'{"a":', 1_000_000),
    "a million brackets, closed": lambda: _deep(b"[", 10**6) + b"]" * 10**6 + b"}\n",
    "a text of 30 MB": lambda: (
        b'{"t":1,"run":"r","event":"x","text":"' + b"y" * 30_000_000 + b'"}\n'
    ),
    "a field of 300,000 versions": lambda: (
        b'{"t":1,"run":"r","event":"group_published","group_id":"g","tokens_by_version":{'
        + b",".join(b'"%d":1' % number for number in range(300_000))
        + b"}}\n"
    ),
    "a number of a million digits": lambda: _deep(b"9", 1_000_000) + b"}\n",
    "300,000 empty lines": lambda: b"\n" * 300_000,
}


@pytest.mark.parametrize("name", _MONSTERS)
def test_one_line_may_be_a_monster(name: str, log: Path) -> None:
    """Lines before and after it are read."""
    before, after = b"".join(_LINES[:20]), b"".join(_LINES[20:40])
    log.write_bytes(before + _MONSTERS[name]() + b"\n" + after)
    assert read_in_every_way(log)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what /proc says")
def test_a_line_without_end_takes_bounded_memory(
    log: Path, figure: Callable[[str, object], None]
) -> None:
    """A gigabyte of NULs, as a file has where a machine lost power; a line is never that long."""
    lines = b"".join(_LINES[:40])
    log.write_bytes(lines)
    with log.open("r+b") as file:
        file.truncate(1_000_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"".join(_LINES[40:80]))
    out, _ = run([*program("reading_long", log)], timeout=150)
    grown, events = map(int, out.split())
    figure("memory for a line of a gigabyte", f"{grown / 1e6:+.0f} MB")
    assert events == 80
    assert grown < 400_000_000


def test_coverage_leads_to_no_bytes_that_break_a_reader(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """With Atheris, where it is installed: it has no wheels for every Python."""
    pytest.importorskip("atheris", exc_type=ImportError)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(0, len(_LINES), 20):
        (corpus / str(number)).write_bytes(b"".join(_LINES[number : number + 8]))
    here = {"PYTHONPATH": str(PROGRAMS), "PYTHONWARNINGS": "ignore"}
    _, said = run(program("fuzzing", folder, _SECONDS), here, timeout=120)
    runs = next(line for line in said.splitlines() if line.startswith("Done "))
    figure("with Atheris", runs)
