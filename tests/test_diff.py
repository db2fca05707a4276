"""Two runs side by side: what counts as the same work, and how differences are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import Command, check_golden
from support.logs import DATA, any_logs, simulate, simulations, write_log

from otel_rollout_trace.comparing import Row, compare, read_side
from otel_rollout_trace.events import Event

KILLED = DATA / "killed_and_restored.jsonl"
STEADY = DATA / "steady.jsonl"

_RUN = "a" * 32


def _log(*lines: tuple[str, dict[str, Any]], run: str = _RUN) -> list[Event]:
    """Events a second apart."""
    return [
        {"t": 1_790_000_000.0 + second, "run": run, "event": event, **fields}
        for second, (event, fields) in enumerate(lines)
    ]


def _try(attempt: str, event: str = "attempt_sealed", **fields: Any) -> Any:
    ids = {"group_id": "g", "attempt_id": attempt}
    return [
        ("attempt_dispatched", {**ids, "prompt_id": 17, "generation_index": 0}),
        (event, {**ids, **fields}),
    ]


def _rows(events: list[Event]) -> dict[tuple[str, str], Row]:
    return read_side(events).rows


class TestRows:
    def test_the_last_sealed_try_counts(self) -> None:
        """Whatever was tried before it or after it."""
        events = _log(
            *_try("a", tokens=5, reward=0.0),
            *_try("b", tokens=6, reward=1.0),
            *_try("c", "attempt_abandoned", tokens=7, reason="timeout"),
        )
        assert _rows(events) == {("17", "0"): Row("sealed", 6, 1.0, 1.0)}

    def test_without_a_sealed_one_the_last_counts(self) -> None:
        """Ended or not."""
        events = _log(
            *_try("a", "attempt_refused", tokens=5),
            *_try("b", "attempt_abandoned", reason="timeout"),
        )
        assert _rows(events) == {("17", "0"): Row("abandoned", None, None, 1.0)}
        assert _rows(events[:3]) == {("17", "0"): Row("interrupted", None, None, 0.0)}

    def test_an_attempt_without_prompt_is_in_no_row(self) -> None:
        """It is counted."""
        side = read_side(_log(("attempt_sealed", {"attempt_id": "a", "tokens": 5})))
        assert (side.rows, side.unnamed, side.tokens) == ({}, 1, 5)

    def test_the_prompt_may_be_the_groups(self) -> None:
        """Where the attempt's own events do not name it."""
        ids = {"group_id": "g", "attempt_id": "a"}
        events = _log(
            ("group_reserved", {"group_id": "g", "prompt_id": 3}),
            ("attempt_dispatched", {**ids, "generation_index": 1}),
            ("attempt_sealed", {**ids, "tokens": 5}),
        )
        assert list(_rows(events)) == [("3", "1")]


class TestSameness:
    @given(any_logs())
    def test_a_log_did_the_same_work_as_itself(self, events: list[Event]) -> None:
        """Any log."""
        found = compare(read_side(events), read_side(events))
        assert found.same
        assert found.a == found.b
        json.dumps(found.to_dict(), allow_nan=False)

    @given(simulations(max_runs=1), st.integers(1, 9_000))
    def test_time_and_ids_are_no_work(self, events: list[Event], later: int) -> None:
        """Another machine on another day, with other ids."""
        text = json.dumps(events)
        for field in ("group_id", "attempt_id", "resumed_from"):
            for name in {event[field] for event in events if field in event}:
                text = text.replace(f'"{name}"', f'"another {name}"')
        others = [event | {"t": event["t"] + later} for event in json.loads(text)]
        assert compare(read_side(events), read_side(others)).same

    @given(simulations(max_runs=1), st.data())
    def test_a_difference_is_found(self, events: list[Event], data: st.DataObject) -> None:
        """In tokens, in a reward, in a step."""
        events = [event for event in events if event["event"] not in ("checkpoint_published",)]
        sealed = [n for n, event in enumerate(events) if event["event"] == "attempt_sealed"]
        place = data.draw(st.sampled_from(sealed))
        field, by = data.draw(st.sampled_from([("tokens", 1), ("reward", 0.25)]))
        others = list(events)
        others[place] = events[place] | {field: events[place][field] + by}
        found = compare(read_side(events), read_side(others))
        assert not found.same
        [pair] = found.rows
        assert pair.what == (field,)
        without = [event for event in events if event["event"] != "step_trained"]
        assert not compare(read_side(events), read_side(without)).same


class TestCommand:
    def test_the_same_log_is_status_0(self) -> None:
        """Also from another file, and as gzip."""
        ended = Command("diff", KILLED, KILLED)
        assert (ended.status, ended.err) == (0, "")
        assert ended.out.endswith("A and B did the same work.\n")

    def test_different_logs_are_status_1(self) -> None:
        """And what is long is cut, with a count of the rest."""
        ended = Command("diff", STEADY.name, KILLED.name, cwd=DATA)
        assert (ended.status, ended.err) == (1, "")
        assert max(map(len, ended.out.splitlines())) <= 80
        check_golden("diff_steady_and_killed.txt", ended.out)

    def test_runs_of_one_file(self) -> None:
        """By the beginnings of their ids."""
        ended = Command("diff", f"{KILLED.name}@87", f"{KILLED.name}@a2", cwd=DATA)
        assert ended.status == 1
        check_golden("diff_of_two_runs.txt", ended.out)

    def test_json_has_all_of_it(self) -> None:
        """Rows, steps and totals."""
        ended = Command("diff", "--json", f"{KILLED}@87", f"{KILLED}@f4")
        found = json.loads(ended.out)
        assert (ended.status, found["same"]) == (1, False)
        assert len(found["rows"]) + len(found["only_a"]) + found["rows_same"] == found["a"]["rows"]
        assert [step["step"] for step in found["steps"]] == list(range(1, 15))
        assert found["steps"][4]["in_a"]

    def test_a_file_with_an_at_in_its_name(self, tmp_path: Path) -> None:
        """Is that file, where it is there."""
        path = write_log(tmp_path / "log@2.jsonl", simulate(1, runs=1, steps=1))
        assert Command("diff", path, path).status == 0

    @pytest.mark.parametrize(
        ("a", "b", "reason"),
        [
            (str(STEADY), "/none.jsonl", "No such file"),
            (f"{STEADY}@zz", str(STEADY), "no run begins with 'zz'"),
            (str(Path(__file__)), str(STEADY), "not a rollout log"),
        ],
    )
    def test_bad_input_is_one_line(self, a: str, b: str, reason: str) -> None:
        """With exit status 2, which is neither the same nor different."""
        assert reason in Command("diff", a, b).refused()
