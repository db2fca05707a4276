"""Backends for the tests: each one running somewhere, or built and started here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jaeger import Jaeger, jaeger_of_environment, running_jaeger
from support.otlp_receiver import OtlpReceiver
from support.prometheus import Prometheus
from support.stack import Stack, running_prometheus, running_stack

from .build import program_of

_HERE = Path(__file__).parent


def built(name: str) -> Path:
    """A program; the test is skipped where it is not built."""
    program = program_of(name)
    if not program.exists():
        pytest.skip(
            f"no {name}: build it with `python tests/backends/build.py {name}` (needs Go, takes "
            "some minutes, once)"
        )
    return program


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger: the one that the environment names, else one of our own."""
    named = jaeger_of_environment()
    if named is not None:
        yield named
        return
    program = program_of("jaeger")
    if not program.exists():
        pytest.skip(
            "no Jaeger: build one with `python tests/backends/build.py jaeger` (needs Go, takes "
            "some minutes, once), or name one with ROLLOUT_TEST_JAEGER=http://localhost:16686"
        )
    log = tmp_path_factory.mktemp("jaeger") / "log.txt"
    with running_jaeger(program, _HERE / "jaeger" / "config.yaml", log) as running:
        yield running


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The Prometheus of the stack, with its rules and nothing in it yet."""
    with running_prometheus(built, tmp_path_factory.mktemp("prometheus")) as (running, _):
        yield running


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own checker: ``promtool check config``, ``promtool test rules``."""
    return built("promtool")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Collector, Jaeger and Prometheus as the compose file has them, for one module."""
    with running_stack(built, tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """An OTLP receiver of our own that answers."""
    with OtlpReceiver() as running:
        yield running
