"""A Docker engine of our own, in namespaces of its own, for as long as a test needs it.

It has no network but its own, so it meets nobody's containers and nobody's ports, and
leaves no bridge, no firewall rule and no mount behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Engine", "EngineError", "running_engine"]

_NEEDED: Final = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "iptables": "iptables",
}
"""Programs, and the Debian packages that they are in."""

_UP_WITHIN_S: Final = 30


class EngineError(Exception):
    """There is no engine here, for a reason that is this machine's."""


@dataclass(frozen=True)
class Engine:
    """A running Docker engine.

    Attributes:
        socket: where it listens.
        pid: a process in its network.
        compose_program: Docker Compose.
    """

    socket: Path
    pid: int
    compose_program: Path

    def docker(self, *arguments: str | Path, **options: Any) -> str:
        """Run ``docker``; what it prints."""
        return self._run(["docker", *map(str, arguments)], **options)

    def compose(self, *arguments: str | Path, **options: Any) -> str:
        """Run Docker Compose; what it prints."""
        return self._run([str(self.compose_program), *map(str, arguments)], **options)

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        found: dict[str, Any] = json.loads(self.docker("inspect", container))[0]
        return found

    def in_its_network(self, arguments: Sequence[str | Path], **options: Any) -> str:
        """Run a program where the published ports are; what it prints."""
        enter = ["nsenter", f"--target={self.pid}", "--net"]
        return self._run([*enter, *map(str, arguments)], **options)

    def _run(self, command: list[str], **options: Any) -> str:
        done = subprocess.run(
            command,
            env=_environment(self.socket),
            capture_output=True,
            check=False,
            **{"timeout": 100, **options},
        )
        output: str = done.stdout.decode()
        if done.returncode != 0:
            raise AssertionError(
                f"{' '.join(command)} ended with {done.returncode}:\n"
                f"{output}\n{done.stderr.decode()}"
            )
        return output


def _environment(socket: Path) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name[:5] != "OTEL_"}
    # No settings of whoever runs the test.
    return {**inherited, "DOCKER_HOST": f"unix://{socket}", "DOCKER_CONFIG": str(socket.parent)}


@contextmanager
def running_engine(compose_program: Path) -> Iterator[Engine]:
    """An engine, until the end of the block.

    Raises:
        EngineError: if none can be started here.
    """
    missing = {package for program, package in _NEEDED.items() if not shutil.which(program)}
    if missing:
        raise EngineError(f"Debian's packages for it are missing: {', '.join(sorted(missing))}")
    if os.geteuid() != 0:
        raise EngineError("only root can start one")
    # A socket's path must be short, which those of test folders are not.
    with tempfile.TemporaryDirectory(prefix="engine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        socket = folder / "docker.sock"
        log = folder / "log.txt"
        daemon = (
            "ip link set lo up && exec dockerd --storage-driver=vfs "
            f"--host=unix://{socket} --data-root={folder}/data --exec-root={folder}/exec "
            f"--pidfile={folder}/pid"
        )
        # All that the engine starts ends with the first process of its namespace.
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["unshare", *namespaces, "sh", "-c", daemon],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            if not _comes_up(process, socket):
                raise EngineError(f"dockerd does not come up: {_last_lines(log)}")
            yield Engine(socket, process.pid, compose_program)
        finally:
            process.kill()
            process.wait()


def _comes_up(process: subprocess.Popen[bytes], socket: Path) -> bool:
    deadline = time.monotonic() + _UP_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        asked = subprocess.run(
            ["docker", "version"], env=_environment(socket), capture_output=True, check=False
        )
        if asked.returncode == 0:
            return True
        time.sleep(0.1)
    return False


def _last_lines(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])
