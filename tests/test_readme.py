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
