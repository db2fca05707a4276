"""The files of the stack, held against what reads them.

Each program here checks its own; Grafana and Tempo have none here, so their files are
held against the keys that their documentation gives.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.stack import COMPOSE_FILE, CONFIG, compose

from .conftest import built

ROOT: Final = COMPOSE_FILE.parent
SERVICES: Final[dict[str, dict[str, Any]]] = compose()["services"]

#: Every way in which the Collector's files are put together, here and in the README.
COLLECTORS: Final = (
    ("collector.yaml",),
    ("collector.yaml", "with-tempo.yaml"),
    ("collector.yaml", "with-vendor.yaml"),
    ("collector.yaml", "lost-work-only.yaml"),
    ("collector.yaml", "gateway.yaml"),
    ("collector.yaml", "gateway.yaml", "with-tempo.yaml"),
    ("collector.yaml", "gateway.yaml", "with-vendor.yaml"),
    ("collector.yaml", "gateway.yaml", "lost-work-only.yaml"),
    ("node.yaml",),
)


def loaded(path: str) -> Any:
    return yaml.safe_load((CONFIG / path).read_text())


def checked(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        [*map(str, command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# What the programs themselves say of their files.


@pytest.mark.backend
@pytest.mark.parametrize("configs", COLLECTORS, ids="+".join)
def test_the_collector_finds_its_files_valid(configs: tuple[str, ...]) -> None:
    options = [f"--config={CONFIG / config}" for config in configs]
    vendor = {"VENDOR_OTLP": "https://otlp.example.com", "VENDOR_AUTHORIZATION": "key"}
    checked(built("otelcol"), "validate", *options, **vendor)


@pytest.mark.backend
def test_jaeger_finds_its_file_valid(tmp_path: Path) -> None:
    checked(
        built("jaeger"),
        "validate",
        f"--config={CONFIG / 'jaeger.yaml'}",
        JAEGER_DIRECTORY=str(tmp_path),
    )


@pytest.mark.backend
def test_prometheus_finds_its_files_valid(promtool: Path) -> None:
    checked(promtool, "check", "config", "--lint=all", CONFIG / "prometheus" / "prometheus.yml")


@pytest.mark.backend
@pytest.mark.parametrize("profiles", [(), ("--profile=tempo",)], ids=["", "tempo"])
def test_docker_compose_finds_the_compose_file_valid(profiles: tuple[str, ...]) -> None:
    checked(
        built("docker-compose"), f"--file={COMPOSE_FILE}", *profiles, "config", "--quiet", HOME="/"
    )


@pytest.mark.backend
def test_what_is_validated_is_not_taken_for_valid_anyway(tmp_path: Path) -> None:
    """A wrong key in a file of each kind is found."""
    for name, program, arguments in (
        ("collector.yaml", "otelcol", ["validate", "--config"]),
        ("jaeger.yaml", "jaeger", ["validate", "--config"]),
        ("prometheus/prometheus.yml", "promtool", ["check", "config"]),
    ):
        wrong = tmp_path / Path(name).name
        wrong.write_text((CONFIG / name).read_text() + "\nno_such_key: {}\n")
        with pytest.raises(AssertionError, match="no_such_key"):
            checked(built(program), *arguments, wrong, JAEGER_DIRECTORY=str(tmp_path))


# The compose file.


@pytest.fixture(params=sorted(SERVICES))
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One service after the other."""
    return SERVICES[request.param]


def mounts_of(service: Mapping[str, Any]) -> Iterator[list[str]]:
    for mount in service.get("volumes", []):
        yield mount.split(":")


def test_images_are_pinned_to_a_release(service: dict[str, Any]) -> None:
    image = service["image"]
    tag = image.rpartition("/")[2].partition(":")[2]
    if "build" in service:
        assert tag == "local"
        image = re.findall(r"^FROM (\S+)$", service["build"]["dockerfile_inline"], re.M)[0]
        tag = image.partition(":")[2]
    assert re.match(r"v?\d+\.\d+\.\d+(-|$)", tag), image


def test_ports_are_published_on_loopback_only(service: dict[str, Any]) -> None:
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


def test_no_two_services_publish_the_same_port() -> None:
    ports = [
        port.rpartition(":")[0] for each in SERVICES.values() for port in each.get("ports", [])
    ]
    assert len(set(ports)) == len(ports) > 5


def test_a_service_has_a_limit_of_memory(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])


def test_a_service_cannot_become_more_than_it_is(service: dict[str, Any]) -> None:
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")


def test_a_service_comes_back_but_for_the_one_that_runs_once() -> None:
    assert {name for name, each in SERVICES.items() if each["restart"] != "unless-stopped"} == {
        "permissions"
    }


def test_services_whose_image_has_another_program_have_a_health_check() -> None:
    without = {name for name, each in SERVICES.items() if "healthcheck" not in each}
    assert without == {"collector", "collector-tempo", "tempo", "permissions"}


def test_what_is_mounted_is_there_and_is_not_written_to(service: dict[str, Any]) -> None:
    for source, _, *mode in mounts_of(service):
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == ["ro"], source
        else:
            assert source in compose()["volumes"], source


def test_a_volume_of_a_user_without_a_folder_in_its_image_is_given_to_it() -> None:
    """Those of the images that run as 10001; the others have their folders in them."""
    given = {source for source, _, *_ in mounts_of(SERVICES["permissions"])}
    needed = {
        source
        for name in ("collector", "collector-tempo", "jaeger", "tempo")
        for source, _, *_ in mounts_of(SERVICES[name])
        if source in compose()["volumes"]
    }
    assert given == needed
    for name in ("collector", "collector-tempo", "jaeger", "tempo"):
        assert SERVICES[name]["depends_on"] == {
            "permissions": {"condition": "service_completed_successfully"}
        }


def test_nothing_asks_for_a_variable_of_whoever_starts_it() -> None:
    assert "${" not in COMPOSE_FILE.read_text()


def test_without_the_profile_nothing_sends_to_tempo() -> None:
    for name, each in SERVICES.items():
        in_profile = each.get("profiles") == ["tempo"]
        says_tempo = any("with-tempo" in str(part) for part in each.get("command", []))
        assert says_tempo <= in_profile, name
    assert "tempo" not in json.dumps(loaded("collector.yaml"))


def test_the_image_of_the_demo_is_built_from_what_is_there() -> None:
    recipe = SERVICES["demo"]["build"]["dockerfile_inline"]
    copied = [
        name for line in re.findall(r"^COPY (.+)$", recipe, re.M) for name in line.split()[:-1]
    ]
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert set(copied) == allowed
    for name in copied:
        assert (ROOT / name).exists()
    project = (ROOT / "pyproject.toml").read_text()
    (extras,) = re.findall(r"\.\[(.+?)\]", recipe)
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[$", project, re.M), extra
    assert "\nUSER 10001" in recipe


def test_the_demo_has_its_options() -> None:
    for name in ("demo", "demo-tempo"):
        command = SERVICES[name]["command"]
        done = subprocess.run(
            [sys.executable, "-m", "otel_rollout_trace", *command, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_health_of_the_demo_is_python_that_asks_for_its_log() -> None:
    *_, code = SERVICES["demo"]["healthcheck"]["test"]
    ast.parse(code)
    (log,) = [path for path in SERVICES["demo"]["command"] if path.startswith("/")]
    assert log in code
    assert any(log.startswith(f"{target}/") for _, target in mounts_of(SERVICES["demo"]))


# Nothing lies about.


def test_every_file_is_mounted_or_run_by_a_test() -> None:
    """Files of Prometheus and Grafana are mounted by the folder."""
    mounted = {
        (ROOT / source).resolve() for each in SERVICES.values() for source, *_ in mounts_of(each)
    }
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for path in sorted(CONFIG.rglob("*")):
        if path.is_dir() or path.name == "README.md":
            continue
        is_mounted = any(parent in mounted for parent in (path, *path.parents))
        assert is_mounted or f'"{path.name}"' in tests, path


def test_the_readme_names_every_file() -> None:
    readme = (CONFIG / "README.md").read_text()
    for path in sorted(CONFIG.rglob("*")):
        if path.is_file() and path.name != "README.md" and "tests" not in path.parts:
            assert f"`{path.relative_to(CONFIG)}`" in readme, path


def test_what_the_readme_says_of_ports_and_files_is_so() -> None:
    readme = (CONFIG / "README.md").read_text()
    published = {port.split(":")[1] for each in SERVICES.values() for port in each.get("ports", [])}
    named = set(re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", readme))
    assert named
    assert named <= published
    for name in re.findall(r"--config[ =](\S+\.yaml)", readme):
        assert (CONFIG / name).is_file()


# The Collector's and Jaeger's: what validation does not know.


@pytest.mark.parametrize("path", sorted(CONFIG.glob("*.yaml")), ids=lambda path: path.name)
def test_every_exporter_never_gives_up_and_waits_on_disk(path: Path) -> None:
    # What is laid over another file need not say it again.
    exporters = (yaml.safe_load(path.read_text()) or {}).get("exporters", {})
    for name, exporter in exporters.items():
        if not name.startswith("otlp_") or path.name == "gateway.yaml":
            continue
        assert exporter["retry_on_failure"]["max_elapsed_time"] == 0
        queue = exporter["sending_queue"]
        assert queue["storage"] == "file_storage"
        assert queue["block_on_overflow"] is True
        assert queue["batch"]["max_size"] < 4 * 1024 * 1024
        # A batch processor would acknowledge before the disk.
        assert "batch" not in yaml.safe_load(path.read_text()).get("processors", {})


def test_points_are_sent_one_after_the_other() -> None:
    assert (
        loaded("collector.yaml")["exporters"]["otlp_http/prometheus"]["sending_queue"][
            "num_consumers"
        ]
        == 1
    )
    assert (
        loaded("node.yaml")["exporters"]["otlp_http/gateway"]["sending_queue"]["num_consumers"] == 1
    )


# Tempo's and Grafana's, by their documentation.

#: Keys that were there before version 3, and those of 3 that the file uses.
TEMPO_REMOVED: Final = {"ingester", "compactor", "ingester_client", "metrics_generator_client"}
TEMPO: Final[dict[str, Any]] = {
    "server": {"http_listen_port": int},
    "distributor": {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": str}, "http": {"endpoint": str}}}}
    },
    "storage": {"trace": {"backend": str, "local": {"path": str}, "wal": {"path": str}}},
    "query_frontend": {"query_end_cutoff": str},
    "live_store": {"fail_on_high_lag": bool},
    "usage_report": {"reporting_enabled": bool},
}

DATASOURCE: Final[dict[str, Any]] = {
    "name": str,
    "uid": str,
    "type": str,
    "access": str,
    "url": str,
    "isDefault": bool,
    "editable": bool,
    "jsonData": dict,
}
TRACES_TO_METRICS: Final[dict[str, Any]] = {
    "datasourceUid": str,
    "spanStartTimeShift": str,
    "spanEndTimeShift": str,
    "tags": [{"key": str, "value": str}],
    "queries": [{"name": str, "query": str}],
}
JSON_DATA: Final[dict[str, dict[str, Any]]] = {
    "prometheus": {
        "httpMethod": str,
        "prometheusType": str,
        "timeInterval": str,
        "exemplarTraceIdDestinations": [
            {"name": str, "datasourceUid": str, "urlDisplayLabel": str}
        ],
    },
    "jaeger": {"tracesToMetrics": TRACES_TO_METRICS, "nodeGraph": {"enabled": bool}},
    "tempo": {
        "tracesToMetrics": TRACES_TO_METRICS,
        "nodeGraph": {"enabled": bool},
        "search": {
            "filters": [
                {
                    "id": str,
                    "tag": str,
                    "operator": str,
                    "scope": str,
                    "value": list,
                    "valueType": str,
                }
            ]
        },
    },
}
DASHBOARDS: Final[dict[str, Any]] = {
    "name": str,
    "folder": str,
    "type": str,
    "editable": bool,
    "disableDeletion": bool,
    "allowUiUpdates": bool,
    "updateIntervalSeconds": int,
    "options": {"path": str},
}


def strange(value: Any, allowed: Any, where: str = "") -> list[str]:
    """Where a value is not of the form that is allowed; keys may be left out."""
    if isinstance(allowed, type):
        return [] if isinstance(value, allowed) else [where]
    if isinstance(allowed, list):
        if not isinstance(value, list):
            return [where]
        return [
            found
            for number, item in enumerate(value)
            for found in strange(item, allowed[0], f"{where}[{number}]")
        ]
    if not isinstance(value, dict):
        return [where]
    return [
        found
        for key, item in value.items()
        for found in (
            strange(item, allowed[key], f"{where}.{key}") if key in allowed else [f"{where}.{key}"]
        )
    ]


def test_the_form_of_a_file_is_held_strictly() -> None:
    assert strange({"a": {"b": 1}, "c": [{"d": "x"}]}, {"a": {"b": int}, "c": [{"d": str}]}) == []
    assert strange({"a": {"e": 1}, "c": [{"d": 2}]}, {"a": {"b": int}, "c": [{"d": str}]}) == [
        ".a.e",
        ".c[0].d",
    ]


def test_tempos_file_has_keys_of_version_3_only() -> None:
    tempo = loaded("tempo.yaml")
    assert strange(tempo, TEMPO) == []
    assert not TEMPO_REMOVED & set(tempo)
    assert SERVICES["tempo"]["image"].startswith("grafana/tempo:3.")


def test_tempo_listens_where_it_is_asked_and_writes_to_its_volume() -> None:
    tempo = loaded("tempo.yaml")
    port = str(tempo["server"]["http_listen_port"])
    assert SERVICES["tempo"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    http = tempo["distributor"]["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    sent = loaded("with-tempo.yaml")["exporters"]["otlp_http/tempo"]["endpoint"]
    assert http.rpartition(":")[2] == sent.rstrip("}").rpartition(":")[2]
    (volume,) = [target for source, target, *_ in mounts_of(SERVICES["tempo"]) if source == "tempo"]
    for place in ("local", "wal"):
        assert tempo["storage"]["trace"][place]["path"].startswith(f"{volume}/")


def datasources() -> dict[str, dict[str, Any]]:
    file = loaded("grafana/provisioning/datasources/datasources.yaml")
    assert file["apiVersion"] == 1
    return {source["uid"]: source for source in file["datasources"]}


def test_data_sources_have_the_form_that_grafana_documents() -> None:
    for source in datasources().values():
        assert strange(source, DATASOURCE) == []
        assert strange(source["jsonData"], JSON_DATA[source["type"]]) == []
    assert set(datasources()) == {"prometheus", "jaeger", "tempo"}
    assert [uid for uid, source in datasources().items() if source.get("isDefault")] == [
        "prometheus"
    ]


def test_data_sources_are_where_services_listen() -> None:
    for uid, source in datasources().items():
        name, port = re.findall(r"http://(\w+):(\d+)", source["url"])[0]
        assert name == uid
        assert f"127.0.0.1:{port}:{port}" in SERVICES[name]["ports"]


def test_links_between_data_sources_lead_somewhere() -> None:
    text = json.dumps(datasources())
    assert set(re.findall(r'"datasourceUid": "(.+?)"', text)) == set(datasources())


def test_dashboards_are_provisioned_from_where_they_are_mounted() -> None:
    file = loaded("grafana/provisioning/dashboards/dashboards.yaml")
    assert file["apiVersion"] == 1
    (provider,) = file["providers"]
    assert strange(provider, DASHBOARDS) == []
    folder = provider["options"]["path"]
    mounts = {target: source for source, target, *_ in mounts_of(SERVICES["grafana"])}
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.rpartition("/")[0] == folder
    assert (ROOT / mounts[folder] / home.rpartition("/")[2]).is_file()
