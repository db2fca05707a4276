"""Tables: a row for everything, read back with readers that others use."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from hypothesis import given, settings
from pyarrow import parquet
from support import reading
from support.logs import DATA, EXAMPLE, any_logs, simulate, temporary_log, write_log

from otel_rollout_trace import read_events
from otel_rollout_trace.events import Event, Vocabulary
from otel_rollout_trace.exporting.columns import TABLES
from otel_rollout_trace.exporting.parquet import ParquetTables
from otel_rollout_trace.lifecycle import Listener, Refit, Step
from otel_rollout_trace.replaying import Replayed, replay_into
from otel_rollout_trace.spans import names

KILLED = DATA / "killed_and_restored.jsonl"
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Rows = list[dict[str, Any]]


class _Counted(Listener):
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.refits: list[Refit] = []

    def stepped(self, step: Step) -> None:
        self.steps.append(step)


def exported(log: Path, directory: Path, *, rows: int = 7) -> tuple[dict[str, Rows], Replayed, int]:
    """The rows of a log's tables, what was found in it, and how many steps."""
    tables, counted = ParquetTables(directory, rows=rows), _Counted()
    found = replay_into(log, tables, listeners=[*tables.begin(log), counted])
    tables.close()
    files = {name: directory / f"{name}.parquet" for name in TABLES}
    rows_of = {name: parquet.read_table(file).to_pylist() for name, file in files.items()}
    assert tables.written == {name: len(rows) for name, rows in rows_of.items()}
    return rows_of, found, len(counted.steps)


@settings(max_examples=30)
@given(any_logs().filter(bool))
def test_there_is_a_row_for_everything_that_ended(events: list[Event]) -> None:
    with temporary_log(events) as path:
        tables, found, steps = exported(path, path.parent)
    assert Counter(row["outcome"] for row in tables["attempts"]) == found.attempts
    assert Counter(row["outcome"] for row in tables["groups"]) == found.groups
    assert len(tables["steps"]) == steps
    for row in (*tables["attempts"], *tables["groups"]):
        assert row["ended"] >= row["started"]
        assert json.loads(row["fields"] or "{}").keys().isdisjoint(TABLES)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize("path", [EXAMPLE, KILLED], ids=lambda path: path.stem)
def test_attempts_are_what_the_log_says(path: Path, tmp_path: Path) -> None:
    said, (tables, _, _) = reading.read(path), exported(path, tmp_path)
    rows = {(row["run"], row["group_id"], row["attempt_id"]): row for row in tables["attempts"]}
    assert rows.keys() == said.attempts.keys()
    for key, each in said.attempts.items():
        row = rows[key]
        assert (_micros(row["started"]), _micros(row["ended"])) == (
            each.started // 1000,
            each.ended // 1000,
        )
        assert row["duration_s"] == pytest.approx((each.ended - each.started) / 1e9, abs=1e-8)
        assert (row["outcome"], row["reason"]) == (each.outcome, each.reason or None)
        assert (row["trace_id"], row["span_id"]) == (each.trace_id, each.span_id)
        assert row["refits"] == len(each.generated)
        assert row["generation_index"] == each.generation
        if each.prompt_id is not None:
            assert row["prompt_id"] == str(each.prompt_id)
        if each.outcome != "interrupted":
            assert row["tokens"] == each.tokens
        if row["tokens_by_version"] is not None:
            assert sum(tokens for _, tokens in row["tokens_by_version"]) == row["tokens"]
        assert (row["resumed_run"] is not None) is bool(each.resumes)
    rewards = Counter(
        event["reward"] for event in read_events(path) if event.get("reward") is not None
    )
    assert rewards == Counter(
        row["reward"] for row in tables["attempts"] if row["reward"] is not None
    )


@pytest.mark.parametrize("path", [EXAMPLE, KILLED], ids=lambda path: path.stem)
def test_groups_and_steps_are_what_the_log_says(path: Path, tmp_path: Path) -> None:
    said, (tables, found, _) = reading.read(path), exported(path, tmp_path)
    rows = {(row["run"], row["group_id"]): row for row in tables["groups"]}
    assert rows.keys() == said.groups.keys()
    for key, each in said.groups.items():
        row = rows[key]
        assert (_micros(row["started"]), row["outcome"]) == (each.started // 1000, each.outcome)
        assert (row["step"], row["span_id"]) == (each.step, each.span_id)
        assert row["batch_age"] == pytest.approx(each.batch_age)
        published = dict(row["tokens_by_version"] or ())
        assert published == (each.tokens_by_version or {})
        if published:
            assert row["tokens"] == sum(published.values())
        waited = [time for time, name in each.events if name == "rl.group.published"]
        assert (row["published"] is not None) is bool(waited)
        if row["queue_s"] is not None:
            assert row["queue_s"] == pytest.approx((each.ended - waited[-1]) / 1e9, abs=1e-8)
    trained = [event for event in read_events(path) if event["event"] == "step_trained"]
    assert [(row["step"], row["group_ids"]) for row in tables["steps"]] == [
        (event["step"], event["group_ids"]) for event in trained
    ]
    for row, event in zip(tables["steps"], trained, strict=True):
        others = {"t", "run", "event", "step", "trained_version", "group_ids"}
        assert json.loads(row["fields"] or "{}") == {
            name: value for name, value in event.items() if name not in others
        }
        if row["batch_age"] is not None:
            parts = row["batch_age_generation"] + row["batch_age_queue"]
            assert parts == pytest.approx(row["batch_age"])
            assert row["batch_age_max"] >= row["batch_age"]
    assert {row["step"]: row["batch_age"] for row in tables["steps"]} == found.batch_age


def test_odd_values_have_their_place(tmp_path: Path) -> None:
    def event(name: str, **fields: Any) -> Event:
        return {"t": 1_790_000_000.0, "run": "a" * 32, "event": name, **fields}

    ids = {"group_id": 7, "generation_index": 1}
    events = [
        event("group_reserved", group_id=7, prompt_id={"set": "math", "row": 3}),
        event("attempt_dispatched", **ids, worker="w1", weight_version="3"),
        event("attempt_sealed", **ids, reward="high", tokens=2**63 - 1),
        event("step_trained", step="4", trained_version=4, group_ids=[7, "x"], loss=0.5),
    ]
    tables, _, _ = exported(write_log(tmp_path / "log.jsonl", events), tmp_path)
    [attempt], [group, unknown], [step] = tables["attempts"], tables["groups"], tables["steps"]
    assert (attempt["attempt_id"], attempt["group_id"]) == (None, "7")
    assert (attempt["weight_version"], attempt["reward"]) == (3, None)
    assert json.loads(attempt["fields"]) == {"worker": "w1"}
    assert json.loads(group["prompt_id"]) == {"set": "math", "row": 3}
    assert (unknown["group_id"], unknown["outcome"]) == ("x", "trained")
    assert (step["step"], step["group_ids"], step["tokens"]) == (4, ["7", "x"], 0)
    assert step["batch_age"] is None and step["tokens_by_version"] is None
    assert json.loads(step["fields"]) == {"loss": 0.5}


def test_rows_are_written_in_groups_and_say_what_they_are(tmp_path: Path) -> None:
    """So that memory does not grow with the log."""
    tables, _, _ = exported(KILLED, tmp_path, rows=100)
    file = parquet.ParquetFile(tmp_path / "attempts.parquet")
    assert file.num_row_groups == -(-len(tables["attempts"]) // 100) > 3
    schema = file.schema_arrow
    assert schema.field("started").type == pyarrow.timestamp("us", tz="UTC")
    assert schema.field("tokens_by_version").type == pyarrow.map_(pyarrow.int64(), pyarrow.int64())
    assert schema.field("tokens").metadata[b"comment"] == b"tokens generated"


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", [{"t": 1.0, "run": "a" * 32, "event": "trace_opened"}])
    tables, _, _ = exported(log, tmp_path)
    assert tables == {"attempts": [], "groups": [], "steps": []}
    assert parquet.read_schema(tmp_path / "steps.parquet").names == [
        column.name for column in TABLES["steps"]
    ]


# The README


def _queries() -> list[str]:
    section = README.split("## Other tools")[1].split("\n## ")[0]
    [block] = [part.split("```")[0] for part in section.split("```sql\n")[1:]]
    return [query for query in block.split(";") if query.strip()]


@pytest.fixture
def queried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Rows]:
    """What the README's queries answer about two logs."""
    tables = ParquetTables(tmp_path)
    for log in (KILLED, write_log(tmp_path / "log.jsonl", simulate(7))):
        replay_into(log, tables, listeners=tables.begin(log), vocabulary=Vocabulary())
    tables.close()
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        answers = []
        for query in _queries():
            cursor = connection.execute(query)
            columns = [column[0] for column in cursor.description or ()]
            answers.append([dict(zip(columns, row, strict=True)) for row in cursor.fetchall()])
    return answers


def test_the_readmes_queries_answer(queried: list[Rows], tmp_path: Path) -> None:
    lost, ages, hard = queried
    logs = [KILLED, tmp_path / "log.jsonl"]
    said = [each for log in logs for each in reading.read(log).attempts.values()]
    assert sum(row["attempts"] for row in lost) == sum(each.failed for each in said)
    assert {row["outcome"] for row in lost} == {"refused", "abandoned", "interrupted"}
    groups = [each for log in logs for each in reading.read(log).groups.values()]
    trained = [each for each in groups if each.outcome == "trained"]
    assert sum(row["tokens"] for row in ages) == sum(
        sum((each.tokens_by_version or {}).values()) for each in trained
    )
    assert [row["age"] for row in ages] == sorted(row["age"] for row in ages)
    tries = Counter((str(each.prompt_id), each.generation) for each in said)
    assert {(row["prompt_id"], row["generation_index"]): row["tries"] for row in hard} == {
        generation: number for generation, number in tries.items() if number > 1
    }


def test_the_readmes_table_is_the_code() -> None:
    section = README.split("## Other tools")[1].split("\n## ")[0]
    written = {
        cells[1].strip(" `"): [name.strip(" `*") for name in cells[3].split(",")]
        for cells in (line.split("|") for line in section.splitlines() if ".parquet` |" in line)
    }
    assert written == {
        f"{table}.parquet": [column.name for column in columns] for table, columns in TABLES.items()
    }


def test_columns_are_called_as_the_log_calls_its_fields() -> None:
    """Where it has one, of groups, attempts and steps."""
    columns = {column.name for columns in TABLES.values() for column in columns}
    assert {*names.FIELD_ATTRIBUTES} - columns == {"path", "replaced_version"}
