"""The stack of ``docker-compose.yml`` on loopback, with the very files that it mounts.

Nothing is in containers here; addresses and folders come from the variables that
the files leave open, everything else from the files and from the compose file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from .jaeger import Jaeger
from .prometheus import Prometheus
from .services import Service, loopback_addresses

__all__ = [
    "COMPOSE_FILE",
    "CONFIG",
    "Collector",
    "Stack",
    "compose",
    "running_collector",
    "running_jaeger_on_disk",
    "running_prometheus",
    "running_stack",
]

_ROOT: Final = Path(__file__).resolve().parents[2]
COMPOSE_FILE: Final = _ROOT / "docker-compose.yml"
CONFIG: Final = _ROOT / "collector-config"

ProgramOf = Callable[[str], Path]
"""Where a program is, by its name."""


def compose() -> dict[str, Any]:
    """The compose file, anchors resolved."""
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
    return loaded


@dataclass(frozen=True)
class Collector:
    """A running Collector.

    Attributes:
        service: the process.
        otlp: addresses of its OTLP receivers, by protocol.
    """

    service: Service
    otlp: Mapping[str, str]


@dataclass(frozen=True)
class Stack:
    """The whole stack, running.

    Attributes:
        collector: where training sends.
        jaeger, prometheus: what is stored.
        jaeger_service, prometheus_service: their processes.
    """

    collector: Collector
    jaeger: Jaeger
    jaeger_service: Service
    prometheus: Prometheus
    prometheus_service: Service


@contextmanager
def running_jaeger_on_disk(program_of: ProgramOf, folder: Path) -> Iterator[tuple[Jaeger, Service]]:
    """The Jaeger of the stack."""
    at = loopback_addresses("HEALTH", "QUERY", "QUERY_GRPC", "GRPC", "HTTP")
    service = Service(
        "Jaeger",
        [program_of("jaeger"), "--config", CONFIG / "jaeger.yaml"],
        {
            **{f"JAEGER_{name}_LISTEN": address for name, address in at.items()},
            "JAEGER_DIRECTORY": str(folder / "jaeger"),
        },
        f"http://{at['HEALTH']}/status",
        folder / "jaeger.txt",
    )
    otlp = {"grpc": f"http://{at['GRPC']}", "http/protobuf": f"http://{at['HTTP']}"}
    with service:
        yield Jaeger(f"http://{at['QUERY']}", otlp), service


@contextmanager
def running_prometheus(program_of: ProgramOf, folder: Path) -> Iterator[tuple[Prometheus, Service]]:
    """The Prometheus of the stack, with the flags of the compose file."""
    (address,) = loopback_addresses("").values()
    places = {
        "--config.file": CONFIG / "prometheus" / "prometheus.yml",
        "--storage.tsdb.path": folder / "prometheus",
    }
    flags = [flag.partition("=") for flag in compose()["services"]["prometheus"]["command"]]
    service = Service(
        "Prometheus",
        [
            program_of("prometheus"),
            f"--web.listen-address={address}",
            *(f"{name}{equals}{places.get(name, value)}" for name, equals, value in flags),
        ],
        {},
        f"http://{address}/-/ready",
        folder / "prometheus.txt",
    )
    with service:
        yield Prometheus(f"http://{address}"), service


@contextmanager
def running_collector(
    program_of: ProgramOf,
    folder: Path,
    configs: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[Collector]:
    """A Collector.

    Args:
        program_of: where programs are.
        folder: where its queue and its log are; one for each Collector.
        configs: files of ``collector-config``, each laid over those before it.
        environment: where it sends to.
    """
    folder.mkdir(exist_ok=True)
    at = loopback_addresses("HEALTH", "OTLP_GRPC", "OTLP_HTTP")
    service = Service(
        f"Collector with {' and '.join(configs)}",
        [program_of("otelcol"), *(f"--config={CONFIG / config}" for config in configs)],
        {
            **{f"{name}_LISTEN": address for name, address in at.items()},
            "QUEUE_DIRECTORY": str(folder / "queue"),
            **environment,
        },
        f"http://{at['HEALTH']}/",
        folder / "collector.txt",
    )
    with service:
        yield Collector(
            service,
            {
                "grpc": f"http://{at['OTLP_GRPC']}",
                "http/protobuf": f"http://{at['OTLP_HTTP']}",
            },
        )


@contextmanager
def running_stack(program_of: ProgramOf, folder: Path) -> Iterator[Stack]:
    """The whole stack, until the end of the block."""
    with (
        running_jaeger_on_disk(program_of, folder) as (jaeger, jaeger_service),
        running_prometheus(program_of, folder) as (prometheus, prometheus_service),
        running_collector(
            program_of,
            folder / "collector",
            ["collector.yaml"],
            {"JAEGER_OTLP": jaeger.otlp["http/protobuf"], "PROMETHEUS_OTLP": prometheus.otlp},
        ) as collector,
    ):
        yield Stack(collector, jaeger, jaeger_service, prometheus, prometheus_service)
