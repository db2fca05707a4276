"""Where an export goes: under a name of its own until it is whole, so that none is half-written."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

__all__ = ["new_directory", "new_file", "refuse_to_overwrite"]


def refuse_to_overwrite(output: Path, inside: tuple[str, ...] = ()) -> None:
    """Look before anything is read.

    Args:
        output: a file, or a directory.
        inside: names of files that would be written in the directory.

    Raises:
        ValueError: if something is there that would be lost.
    """
    found = output
    if inside and output.is_dir():
        there = [output / name for name in inside if os.path.lexists(output / name)]
        if not there:
            return
        found = there[0]
    if os.path.lexists(found):
        raise ValueError(f"{found}: is there already; --force overwrites it")


@contextmanager
def new_file(output: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is whole; one that ends in ``.gz`` is compressed.

    Args:
        output: the name. What is there already is replaced.

    Raises:
        OSError: if it cannot be written; nothing is left of it then.
    """
    part = _part_of(output)
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(part.open("xb"))
            if output.suffix == ".gz":
                # Neither time nor name: the same log gives the same bytes.
                packed = gzip.GzipFile("", "wb", 6, file, mtime=0)
                file = cast("IO[bytes]", stack.enter_context(packed))
            yield file
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def new_directory(output: Path) -> Iterator[Path]:
    """A directory that takes its name when it is whole.

    Args:
        output: the name. Where it is there already, files of the same names in it
            are replaced, and others stay.

    Raises:
        OSError: if it cannot be written; nothing is left of it then.
    """
    there = output.is_dir()
    part = _part_of(output / output.name) if there else _part_of(output)
    try:
        part.mkdir()
        yield part
        if there:
            for file in part.iterdir():
                file.replace(output / file.name)
            part.rmdir()
        else:
            part.replace(output)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _part_of(output: Path) -> Path:
    return output.with_name(f".{output.name}.{os.getpid()}.part")
