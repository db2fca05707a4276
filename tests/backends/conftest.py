"""Backends for the tests: each one running somewhere, or built and started here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.jaeger import Jaeger, jaeger_of_environment, running_jaeger
from support.otlp_receiver import OtlpReceiver

from .build import program_of

_HERE = Path(__file__).parent


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


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """An OTLP receiver of our own that answers."""
    with OtlpReceiver() as running:
        yield running
