"""File trees as images: what containers of the compose file need, from what is here.

An image that is pulled has more in it. These have a program, a busybox where the real
image has one, and the same user, entry point and folders.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

__all__ = ["Tree", "python_tree"]

_PASSWD: Final = b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nuser:x:10001:10001::/:\n"


class Tree:
    """A file tree on its way into an image."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w")  # noqa: SIM115 - see `tar`
        self._seen: set[str] = set()
        self.text("etc/passwd", _PASSWD)
        self.folder("tmp", mode=0o1777)

    def file(self, source: Path, path: str) -> None:
        """Add a file of this machine."""
        self._add(path, source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)

    def text(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file with that content."""
        self._add(path, content, mode)

    def folder(self, path: str, *, owner: int = 0, mode: int = 0o755) -> None:
        """Add an empty folder."""
        if self._is_new(path):
            info = tarfile.TarInfo(path)
            info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
            self._tar.addfile(info)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        assert self._is_new(path), path
        info = tarfile.TarInfo(path)
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        self._tar.addfile(info)

    def busybox(self, program: Path, *applets: str) -> None:
        """Add a busybox, under the names of what it is there for."""
        self.file(program, "bin/busybox")
        for applet in applets:
            self.link(f"bin/{applet}", "busybox")

    def below(self, source: Path, path: str, *, without: Iterable[str] = ()) -> None:
        """Add all files below a folder, but those below folders of certain names."""
        skipped = {*without, "__pycache__"}
        for folder, folders, files in os.walk(source):
            folders[:] = [name for name in folders if name not in skipped]
            for name in files:
                found = Path(folder) / name
                self.file(found, f"{path}/{found.relative_to(source)}")

    def tar(self) -> bytes:
        """The whole tree as a tar archive; nothing can be added any more."""
        self._tar.close()
        return self._bytes.getvalue()

    def _add(self, path: str, content: bytes, mode: int) -> None:
        if self._is_new(path):
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(content), mode
            self._tar.addfile(info, io.BytesIO(content))

    def _is_new(self, path: str) -> bool:
        if path in self._seen:
            return False
        self._seen.add(path)
        parent = path.rpartition("/")[0]
        if parent:
            # Folders that an archive does not have are made for root only.
            self.folder(parent)
        return True


def python_tree(package: Path, distribution: str, extras: Iterable[str]) -> Tree:
    """This Python in ``/usr/local``, with a package from its sources and what it requires.

    Args:
        package: the folder of the package.
        distribution: its distribution, which is installed here.
        extras: of its extras, those whose requirements are needed.
    """
    tree = Tree()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.executable).resolve()
    site = f"usr/local/lib/{name}/site-packages"
    tree.file(program, f"usr/local/bin/{name}")
    tree.link("usr/local/bin/python", name)
    standard = Path(sys.base_prefix) / "lib" / name
    tree.below(
        standard,
        f"usr/local/lib/{name}",
        without=("site-packages", "test", "idlelib", "ensurepip", "tkinter", "turtledemo"),
    )
    native = [program, *standard.glob("lib-dynload/*.so")]
    for found in _required(distribution, set(extras)):
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if file.parts[0] != ".." and source.suffix != ".pyc" and source.is_file():
                tree.file(source, f"{site}/{file}")
                if ".so" in source.name:
                    native.append(source)
    for library in _libraries(native):
        tree.file(Path(library), library.lstrip("/"))
    tree.below(package, f"{site}/{package.name}")
    (entry,) = (
        entry
        for entry in metadata.distribution(distribution).entry_points
        if entry.group == "console_scripts"
    )
    script = (
        f"#!/usr/local/bin/python\nimport sys\nfrom {entry.module} import {entry.attr}\n"
        f"sys.exit({entry.attr}())\n"
    )
    tree.text(f"usr/local/bin/{entry.name}", script.encode(), 0o755)
    tree.link("bin", "usr/local/bin")
    return tree


def _required(distribution: str, extras: set[str]) -> Iterator[metadata.Distribution]:
    """The distributions that it requires, and those that they require."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(distribution, frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        found = metadata.distribution(name)
        if name != distribution:
            yield found
        for text in found.requires or ():
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in wanted] or [{"extra": ""}]
            if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
                waiting.append((requirement.name, frozenset(requirement.extras)))


def _libraries(programs: Iterable[Path]) -> set[str]:
    """The shared libraries of the system, and of this Python, that programs are linked to."""
    ldd = shutil.which("ldd")
    assert ldd is not None
    said = subprocess.run(
        [ldd, *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    words = {word for line in said.splitlines() for word in line.split() if word[:1] == "/"}
    return {word for word in words if not word.endswith(":") and "site-packages" not in word}
