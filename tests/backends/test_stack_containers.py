"""The compose file itself, in containers: as it stands, with images of the same names.

Grafana and Tempo are not started: there is no program of theirs to make an image of.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from support import reading
from support.engine import Engine, EngineError, running_engine
from support.images import Tree, python_tree
from support.programs import wait_for
from support.stack import COMPOSE_FILE, compose

from .conftest import built

# What an engine needs cannot be had everywhere: these may be skipped.
pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]

ROOT: Final = COMPOSE_FILE.parent
SERVICES: Final = ("demo", "collector", "jaeger", "prometheus")
WITH_HEALTH: Final = ("demo", "jaeger", "prometheus")

#: Where the programs of the real images are, and whose they are.
ENTRYPOINT: Final = {
    "collector": ["/otelcol-contrib"],
    "jaeger": ["/cmd/jaeger/jaeger-linux"],
    "prometheus": ["/bin/prometheus"],
    "demo": ["otel-rollout-trace"],
}
USER: Final = {"collector": "10001", "jaeger": "10001", "prometheus": "nobody", "demo": "10001"}


def busybox() -> Path:
    found = shutil.which("busybox")
    if found is None:
        pytest.skip("no busybox: it is in Debian's package busybox-static")
    return Path(found)


def trees() -> Iterator[tuple[str, Tree]]:
    """A tree for the image of each service."""
    tree = Tree()
    tree.file(built("otelcol"), "otelcol-contrib")
    yield "collector", tree

    tree = Tree()
    tree.file(built("jaeger"), "cmd/jaeger/jaeger-linux")
    tree.busybox(busybox(), "sh", "wget")
    yield "jaeger", tree

    tree = Tree()
    tree.file(built("prometheus"), "bin/prometheus")
    tree.busybox(busybox(), "sh", "wget", "chown")
    tree.folder("prometheus", owner=65534, mode=0o775)
    yield "prometheus", tree

    tree = python_tree(ROOT / "otel_rollout_trace", "otel-rollout-trace", ["cli", "demo"])
    tree.folder("data", owner=10001)
    yield "demo", tree


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine with the images, and the services up."""
    images = {name: compose()["services"][name]["image"] for name in SERVICES}
    try:
        with running_engine(built("docker-compose")) as engine:
            for service, tree in trees():
                changes = [
                    f"ENTRYPOINT {json.dumps(ENTRYPOINT[service])}",
                    f"USER {USER[service]}",
                ]
                options = [f"--change={change}" for change in changes]
                engine.docker("import", *options, "-", images[service], input=tree.tar())
            engine.compose(
                "--file", COMPOSE_FILE, "up", "--detach", "--no-build", "--pull=never", *SERVICES
            )
            yield engine
            engine.compose("--file", COMPOSE_FILE, "down", "--volumes", "--timeout=1")
    except EngineError as error:
        pytest.skip(f"no Docker engine: {error}")


def container(service: str) -> str:
    return f"otel-rollout-trace-{service}-1"


def said(engine: Engine, service: str) -> str:
    return engine.compose("--file", COMPOSE_FILE, "logs", "--no-log-prefix", service)


def asked(engine: Engine, code: str, *arguments: str | Path) -> Any:
    """What Python says where the published ports are; the helpers of the tests are there."""
    begin = f"import json, sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
    return json.loads(engine.in_its_network([sys.executable, "-c", begin + code, *arguments]))


@pytest.mark.parametrize("service", WITH_HEALTH)
def test_a_service_gets_healthy(engine: Engine, service: str) -> None:
    def healthy() -> bool:
        return bool(engine.inspect(container(service))["State"]["Health"]["Status"] == "healthy")

    wait_for(healthy, f"health of {service}", timeout=60)


def test_nothing_was_restarted_or_killed_for_its_memory(engine: Engine) -> None:
    for service in SERVICES:
        found = engine.inspect(container(service))
        assert found["State"]["Running"], said(engine, service)
        assert found["RestartCount"] == 0, said(engine, service)
        assert not found["State"]["OOMKilled"]


def test_only_the_change_of_permissions_ran_as_root(engine: Engine) -> None:
    for service in SERVICES:
        _, *processes = engine.docker("top", container(service), "-eo", "pid,uid").splitlines()
        users = {process.split()[1] for process in processes}
        assert users <= {"10001", "65534"}
        assert users
    assert engine.inspect(container("permissions"))["State"]["ExitCode"] == 0


def test_ports_are_published_on_loopback_only(engine: Engine) -> None:
    published = {
        binding["HostIp"]
        for service in SERVICES
        for bindings in engine.inspect(container(service))["NetworkSettings"]["Ports"].values()
        for binding in bindings or ()
    }
    assert published == {"127.0.0.1"}


def test_the_demo_prints_the_addresses_to_open(engine: Engine) -> None:
    for address in ("http://127.0.0.1:16686/", "http://127.0.0.1:9090/"):
        wait_for(lambda at=address: at in said(engine, "demo"), address, timeout=60)  # type: ignore[misc] # - a default


METRICS: Final = """
import time
from support.prometheus import Prometheus
prometheus = Prometheus("http://127.0.0.1:9090")
print(json.dumps([
    [sample.value for sample in prometheus.query("rl_step")],
    len(prometheus.exemplars("rl_attempt_duration_seconds_bucket", time.time() - 600)),
]))
"""

MISSING: Final = """
from pathlib import Path
from support.arrivals import missing_work
from support.jaeger import Jaeger
print(json.dumps(missing_work(Jaeger("http://127.0.0.1:16686", {}), Path(sys.argv[1]))))
"""


def test_metrics_and_exemplars_arrive_in_prometheus(engine: Engine) -> None:
    def arrived() -> bool:
        steps, exemplars = asked(engine, METRICS)
        return bool(steps and steps[0] >= 2 and exemplars)

    wait_for(arrived, "second step with exemplars", timeout=60)


def log_of(engine: Engine, folder: Path) -> Path:
    log = folder / "rollout_trace.jsonl"
    engine.docker("cp", f"{container('demo')}:/data/rollout_trace.jsonl", log)
    return log


def runs_of(log: Path) -> int:
    return len({line["run"] for line in reading.lines_of(log)})


def wait_for_all_in_jaeger(engine: Engine, log: Path) -> None:
    groups = reading.read(log).groups
    assert len(groups) > 10
    wait_for(lambda: not asked(engine, MISSING, log), "complete log in Jaeger", timeout=60)


def test_without_jaeger_and_after_a_kill_of_the_collector_every_attempt_arrives(
    engine: Engine, tmp_path: Path
) -> None:
    def train(steps: int) -> None:
        enough = said(engine, "demo").count("step ") + steps
        wait_for(lambda: said(engine, "demo").count("step ") >= enough, "step", timeout=60)

    engine.docker("stop", container("jaeger"))
    engine.docker("kill", container("collector"))
    engine.docker("start", container("collector"))
    # Longer than an exporter waits between two tries.
    train(12)
    engine.docker("start", container("jaeger"))
    engine.docker("stop", container("demo"))
    assert [line for line in said(engine, "demo").splitlines() if "span" in line] == []
    wait_for_all_in_jaeger(engine, log_of(engine, tmp_path))


def test_after_a_kill_of_the_training_a_replay_completes_what_arrives(
    engine: Engine, tmp_path: Path
) -> None:
    """As the README says."""
    engine.docker("start", container("demo"))
    wait_for(lambda: runs_of(log_of(engine, tmp_path)) == 2, "second run in the log", timeout=60)
    engine.compose("--file", COMPOSE_FILE, "kill", "demo")
    replay = ["demo", "replay", "/data/rollout_trace.jsonl"]
    engine.compose("--file", COMPOSE_FILE, "run", "--rm", "--no-deps", "--no-TTY", *replay)
    wait_for_all_in_jaeger(engine, log_of(engine, tmp_path))
    engine.compose("--file", COMPOSE_FILE, "start", "demo")
    wait_for(lambda: runs_of(log_of(engine, tmp_path)) == 3, "third run in the log", timeout=60)
