"""The rules are right: Prometheus' own checker says so, and every alert fires and does not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.dashboard import RULE_TESTS, RULES, Rule, rules

pytestmark = pytest.mark.backend

ALERTS: Final = [rule for rule in rules() if rule.alert]
RECORDED: Final = [rule for rule in rules() if not rule.alert]


def run(promtool: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [promtool, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_rules_can_be_loaded_and_nothing_is_odd_about_them(promtool: Path) -> None:
    done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS) + len(RECORDED)} rules found" in done.stdout


def test_rules_do_what_their_scenarios_say(promtool: Path) -> None:
    done = run(promtool, "test", "rules", RULE_TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def scenarios_for(folder: Path, expr: str, *, alerts: bool) -> Path:
    """The scenarios, for rules of which the alerts, or the others, are all this expression."""
    loaded: dict[str, Any] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in loaded["groups"]:
        for rule in group["rules"]:
            if ("alert" in rule) is alerts:
                rule["expr"] = expr
    (folder / "rules.yaml").write_text(yaml.safe_dump(loaded))
    scenarios = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))
    scenarios["rule_files"] = ["rules.yaml"]
    (folder / "test.yaml").write_text(yaml.safe_dump(scenarios))
    return folder / "test.yaml"


@pytest.mark.parametrize("among", [ALERTS, RECORDED], ids=["alerts", "recorded"])
def test_scenarios_miss_every_rule_that_never_has_anything_to_say(
    promtool: Path, among: list[Rule], tmp_path: Path
) -> None:
    alerts = among[0].alert
    done = run(promtool, "test", "rules", scenarios_for(tmp_path, "vector(0) > 1", alerts=alerts))
    assert done.returncode == 1
    missed = re.findall(r"expr?:\s*(.*)", done.stdout + done.stderr)
    for rule in among:
        assert any(rule.name in each for each in missed), rule.name


def test_scenarios_hear_every_alert_that_fires_whenever_a_run_lives(
    promtool: Path, tmp_path: Path
) -> None:
    lives = "max by (job, instance) (rl_trace_events_total)"
    done = run(promtool, "test", "rules", scenarios_for(tmp_path, lives, alerts=True))
    assert done.returncode == 1
    heard = re.findall(r"got:\s*(.*)", done.stdout + done.stderr)
    for rule in ALERTS:
        assert any(f'alertname="{rule.name}"' in each for each in heard), rule.name
