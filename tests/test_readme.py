"""The README's tables say what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from otel_rollout_trace import configure
from otel_rollout_trace.events import SYNONYMS, VOCABULARY
from otel_rollout_trace.metrics.table import HISTOGRAMS, OBSERVED
from otel_rollout_trace.spans import names

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows_under(*header: str) -> list[list[str]]:
    """The cells of the table whose first header cells are these, without backticks and bold."""
    lines = README.splitlines()
    start = next(
        number
        for number, line in enumerate(lines)
        if [cell.strip() for cell in line.strip("|").split("|")][: len(header)] == list(header)
    )
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([re.sub(r"[`*]", "", cell).strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_log_table_is_the_vocabulary() -> None:
    written = {name: tuple(fields.split(", ")) for name, fields in rows_under("event", "fields")}
    assert written == {row.name: row.fields for row in VOCABULARY.values()}


def test_the_attribute_table_is_the_code() -> None:
    written = dict(rows_under("field of the log", "attribute"))
    assert written.pop("run") == names.RUN_ID
    assert written.pop("group_ids") == names.GROUP_IDS
    assert written.pop("tokens_by_version") == f"{names.TOKEN_VERSIONS}, {names.TOKEN_COUNTS}"
    assert written.pop("any other").startswith(f"{names.FIELD_PREFIX}<name>")
    assert written == dict(names.FIELD_ATTRIBUTES)


def test_the_metric_table_is_the_code() -> None:
    written = {row[0]: (row[1], row[2]) for row in rows_under("metric", "instrument")}
    assert written.pop("rl.oldest_attempt.age") == ("gauge", "s")
    kinds = {"gauge": "gauge", "counter": "counter", "up_down_counter": "up-down counter"}
    assert written == (
        {row.name: (kinds[row.kind], row.unit) for row in OBSERVED}
        | {row.name: ("histogram", row.unit) for row in HISTOGRAMS}
    )


def test_the_histograms_attributes_are_written() -> None:
    written = {row[0]: row[3] for row in rows_under("metric", "instrument")}
    for histogram in HISTOGRAMS:
        assert written[histogram.name] == ", ".join(sorted(histogram.labels))


def test_the_settings_table_has_every_argument_of_configure() -> None:
    written = [row[0].split(" ")[0] for row in rows_under("argument", "variable") if row[0]]
    assert written == list(inspect.signature(configure).parameters)


def test_span_and_event_names_are_written() -> None:
    for name in (*names.EVENT_NAMES.values(), names.GROUP_SPAN, names.ATTEMPT_SPAN, names.RUN_SPAN):
        assert f"`{name}`" in README


def test_the_synonyms_that_it_mentions_are_understood() -> None:
    for word in ("refit", "checkpoint_saved", "group_evicted", "attempt_failed"):
        assert f"`{word}`" in README
        assert word in SYNONYMS


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md"])
def test_the_usual_files_are_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 500


def test_no_placeholder_is_left() -> None:
    assert "BENCHMARK" not in README


#: Of each row of the table, the tests that show it: of the file, in the process, by a side-car.
ENDINGS = {
    "calls close(), returns, or raises": (
        "test_recorder.py::test_the_interpreters_exit_closes_it",
        "test_collector_down.py::test_what_an_outage_lost_is_counted_and_the_command_it_names_sends_it",
        "test_sidecar.py::test_spans_that_an_outage_lost_are_sent_when_the_log_is_opened_again",
        "test_sidecar.py::test_with_a_side_car_every_span_arrives_once_however_the_process_ends",
        "test_sidecar.py::test_closing_waits_for_the_side_car",
    ),
    "is killed: SIGKILL, SIGTERM, OOM, os._exit": (
        "test_kills.py::test_what_was_emitted_is_in_the_file_whenever_a_process_is_killed",
        "test_sidecar.py::test_what_a_killed_process_did_not_send_is_sent_when_its_log_is_opened_again",
        "test_kills.py::test_a_side_car_ends_what_a_killed_process_left_open",
    ),
    "goes on while the collector is down": (
        "test_collector_down.py::test_the_file_is_complete",
        "test_outages.py::test_whatever_the_receiver_does_counts_are_exact_and_following_completes_it",
        "test_sidecar.py::test_a_side_car_waits_for_a_receiver_that_is_away",
        "test_follow.py::test_it_falls_behind_while_the_receiver_is_away_and_catches_up",
    ),
    "goes on while the disk is full or gone": (
        "test_disks.py::test_on_a_full_disk_every_event_is_written_or_told_of",
        "test_disks.py::test_a_directory_that_disappears_is_made_again",
    ),
    "forks": ("test_endings.py::test_forks_while_spans_are_sent_lock_nothing",),
    "and the follower or side-car is killed": (
        "test_followers.py::test_a_follower_that_is_killed_goes_on_where_it_was",
        "test_sidecar.py::test_a_side_car_that_is_killed_is_started_again_at_the_end",
    ),
}


def test_every_row_of_what_is_lost_has_a_test() -> None:
    rows = [row[0] for row in rows_under("the process", "the file loses")]
    assert rows == list(ENDINGS)
    tests = Path(__file__).parent
    written = {
        f"{path.name}::{name}"
        for path in tests.rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    assert {test for named in ENDINGS.values() for test in named} <= written
