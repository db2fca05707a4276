"""Where an export goes: under a name of its own until it is whole, so that none is half-written."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, cast

__all__ = ["look_at_output", "new_directory", "new_file"]


def look_at_output(
    output: Path, logs: Iterable[Path], *, force: bool, inside: tuple[str, ...] = ()
) -> None:
    """See that an output can be written, before anything is read.

    Args:
        output: a file, or a directory.
        logs: what will be read.
        force: whether what is there already is replaced.
        inside: names of files that would be written in the directory; none for a file.

    Raises:
        ValueError: where it cannot, or something would be lost.
    """
    if not force:
        _refuse_to_overwrite(output, inside)
    for log in logs:
        if output.exists() and log.exists() and output.samefile(log):
            raise ValueError(f"{output}: is the log itself")
    if inside and output.exists() and not output.is_dir():
        raise ValueError(f"{output}: is no directory")
    if not inside and output.exists() and not output.is_file():
        kind = "a directory" if output.is_dir() else "no regular file"
        raise ValueError(f"{output}: is {kind}")


def _refuse_to_overwrite(output: Path, inside: tuple[str, ...]) -> None:
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
        output: the name. What is there already is replaced; what a link points to, too.

    Raises:
        OSError: if it cannot be written, with this name; nothing is left of it then.
    """
    place = Path(os.path.realpath(output))
    part = _part_of(place)
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(part.open("xb"))
            if output.suffix == ".gz":
                # Neither time nor name: the same log gives the same bytes.
                packed = gzip.GzipFile("", "wb", 6, file, mtime=0)
                file = cast("IO[bytes]", stack.enter_context(packed))
            yield file
        part.replace(place)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        _name_in(error, output)
        raise


@contextmanager
def new_directory(output: Path) -> Iterator[Path]:
    """A directory that takes its name when it is whole.

    Args:
        output: the name. Where it is there already, files of the same names in it
            are replaced, and others stay.

    Raises:
        OSError: if it cannot be written, with this name; nothing is left of it then.
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
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        _name_in(error, output)
        raise


def _name_in(error: BaseException, output: Path) -> None:
    """Have an error of the disk tell the name that the user knows."""
    if isinstance(error, OSError):
        error.filename, error.filename2 = str(output), None


def _part_of(output: Path) -> Path:
    return output.with_name(f".{output.name}.{os.getpid()}.part")
