"""Disks that fill up, directories that go away, permissions that are taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

from .common import Driven, counted_lines, eventually

pytestmark = [
    pytest.mark.trial,
    pytest.mark.timeout(180),
    pytest.mark.skipif(sys.platform != "linux", reason="mounts, and limits the size of files"),
]

_NOBODY: Final = 65_534

# Against hangs only: training code waits for nothing of the disk.
_EMIT_MS: Final = 5_000


class Disk:
    """One that can be full. As a file system in memory, or as a limit on a file's size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, driven: Driven) -> None:
        """Little goes on it from here on."""
        driven.do("limit", 500_000)

    def make_room(self, driven: Driven) -> None:
        """Enough goes on it."""
        driven.do("limit")


class Tmpfs(Disk):
    def fill(self, driven: Driven) -> None:
        self._remount("512k")

    def make_room(self, driven: Driven) -> None:
        self._remount("400m")

    def _remount(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True)


@contextmanager
def _mounted(folder: Path) -> Iterator[Disk]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if (
        not shutil.which("mount")
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")
    try:
        yield Tmpfs(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(params=["tmpfs", "limit"])
def disk(request: pytest.FixtureRequest, folder: Path) -> Iterator[Disk]:
    with (
        _mounted(folder / "disk") if request.param == "tmpfs" else nullcontext(Disk(folder)) as made
    ):
        yield made


def _until_flushed(driven: Driven) -> dict[str, Any]:
    last: dict[str, Any] = {}

    def flushed() -> bool:
        last.update(driven.do("flush", 10))
        return bool(last["flushed"])

    eventually(flushed, "a flush that succeeds", timeout=60)
    return last


def test_on_a_full_disk_every_event_is_written_or_told_of(
    disk: Disk, figure: Callable[[str, object], None]
) -> None:
    """More than fits into memory too; training code does not wait for it."""
    log = disk.folder / "log.jsonl"
    with Driven(log) as driven:
        driven.do("open")
        disk.fill(driven)
        first = driven.do("emit", 20_000, 200)
        assert driven.do("flush", 1)["flushed"] is False
        assert first["dropped"] == 0  # it fits into memory
        for _ in range(20):
            driven.do("emit", 20_000, 200)
        full = driven.do("flush", 2)
        assert full["flushed"] is False
        assert full["dropped"] > 0
        disk.make_room(driven)
        _until_flushed(driven)
        driven.do("emit", 100, 200)
        end = driven.do("close")
        driven.end()
    numbers, told = counted_lines(log)
    figure(
        "emitted = in the file + told by gaps",
        f"{end['emitted']:,} = {len(numbers) + 1:,} + {told:,}",
    )
    figure("slowest emit", f"{end['worst_ms']:.1f} ms")
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == end["numbers"] - 1
    assert told == end["dropped"]
    assert len(numbers) + 1 + told == end["emitted"]
    assert end["worst_ms"] < _EMIT_MS


def test_what_a_full_disk_never_takes_is_counted_at_close(
    disk: Disk, figure: Callable[[str, object], None]
) -> None:
    """`dropped` says exactly what is in no file, and closing is bounded."""
    log = disk.folder / "log.jsonl"
    with Driven(log) as driven:
        driven.do("open")
        disk.fill(driven)
        driven.do("emit", 50_000, 100)
        end = driven.do("close")
        late = driven.do("emit", 10)
        driven.end()
    numbers, told = counted_lines(_without_torn_end(log))
    opened = end["emitted"] - end["numbers"]
    figure(
        "emitted = in the file + dropped",
        f"{end['emitted']:,} = {len(numbers) + opened:,} + {end['dropped']:,}",
    )
    figure("close", f"{end['close_s']:.1f} s")
    assert numbers == list(range(len(numbers)))
    assert told <= end["dropped"]
    assert len(numbers) + opened + end["dropped"] == end["emitted"]
    assert late["dropped"] == end["dropped"] + 10  # closed is closed
    assert end["close_s"] < 20


def _without_torn_end(log: Path) -> Path:
    """The disk may have taken the first part of a line."""
    whole = log.read_bytes()
    copy = log.parent.parent / "whole.jsonl"
    copy.write_bytes(whole[: whole.rfind(b"\n") + 1])
    return copy


def test_a_directory_that_disappears_is_made_again(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """No line is lost between the file that went away with it and the new one."""
    kept = [folder / f"kept{number}" for number in range(5)]
    log = folder / "run" / "logs" / "log.jsonl"
    with Driven(log) as driven:
        driven.do("open")
        driven.do("flush", 10)
        for number, keep in enumerate(kept):
            os.link(log, keep)
            driven.say("emit", 1_500, 10, 0.0005)
            if number % 2:
                (folder / "run").rename(folder / f"moved{number}")
            else:
                shutil.rmtree(folder / "run")
            if number == 3:
                (folder / "run").write_text("in the way")
                driven.answer()
                assert driven.do("flush", 1)["flushed"] is False
                (folder / "run").unlink()
            else:
                driven.answer()
            _until_flushed(driven)
        end = driven.do("close")
        driven.end()
    numbers, told = counted_lines(*kept, log)
    figure("emitted = in the files", f"{end['numbers']:,} = {len(numbers):,}")
    assert numbers == list(range(end["numbers"]))
    assert (told, end["dropped"]) == (0, 0)


def test_permissions_taken_away_and_given_back_lose_nothing(
    folder: Path, figure: Callable[[str, object], None]
) -> None:
    """Neither before the file is there nor when it has to be made again."""
    where = folder / "run"
    where.mkdir()
    log, rotated = where / "log.jsonl", where / "log.jsonl.1"
    owner = -1
    if os.geteuid() == 0:
        owner = _NOBODY
        folder.chmod(0o755)
        os.chown(where, owner, owner)
    where.chmod(0o500)
    with Driven(log) as driven:
        if owner >= 0:
            driven.do("user", owner)
        driven.do("open")
        driven.do("emit", 2_000)
        assert driven.do("flush", 1)["flushed"] is False
        where.chmod(0o700)
        _until_flushed(driven)
        log.rename(rotated)
        where.chmod(0o500)
        driven.do("emit", 1)
        eventually(
            lambda: driven.do("emit", 1) and not driven.do("flush", 1)["flushed"], "a failure"
        )
        driven.do("emit", 2_000)
        where.chmod(0o700)
        _until_flushed(driven)
        end = driven.do("close")
        driven.end()
    numbers, told = counted_lines(rotated, log)
    figure("emitted = in the files", f"{end['numbers']:,} = {len(numbers):,}")
    assert numbers == list(range(end["numbers"]))
    assert (told, end["dropped"]) == (0, 0)
