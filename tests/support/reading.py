"""What a rollout log says, read a second time: by the words of the format, without the package.

Tests compare backends with this. It is plain and slow, and shares no code with
what it checks; ids are computed from their definition.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

__all__ = [
    "AttemptSaid",
    "GroupSaid",
    "Reading",
    "copy_with_new_runs",
    "hashed",
    "lines_of",
    "read",
]

# The other words that occur in the sample logs.
_WORDS: Final = {
    "rollout_dispatched": "attempt_dispatched",
    "rollout_sealed": "attempt_sealed",
    "attempt_failed": "attempt_abandoned",
    "group_evicted": "group_discarded",
    "refit": "weights_synced",
    "checkpoint_saved": "checkpoint_published",
}
_ENDS: Final = {
    "attempt_sealed": "sealed",
    "attempt_refused": "refused",
    "attempt_abandoned": "abandoned",
}
_GROUP_EVENTS: Final = {
    "group_admitted": "rl.group.admitted",
    "group_sealed": "rl.group.sealed",
    "group_published": "rl.group.published",
}
_RUN_EVENTS: Final = {
    "step_trained": "rl.step",
    "weights_synced": "rl.refit",
    "checkpoint_published": "rl.checkpoint.published",
    "checkpoint_restored": "rl.checkpoint.restored",
}


@dataclass
class _Said:
    run: str
    group_id: str
    started: int
    ended: int = -1
    outcome: str = "interrupted"
    reason: str = ""
    prompt_id: Any = None
    events: list[tuple[int, str]] = field(default_factory=list)

    @property
    def trace_id(self) -> str:
        """Its trace: its group's."""
        return hashed(f"{self.run}/{self.group_id}", 16)


@dataclass
class GroupSaid(_Said):
    """What a log says of a group; times in nanoseconds.

    Attributes:
        tokens_by_version: its counts, once published, in whichever run.
        step, batch_age: of the step that trained it.
    """

    tokens_by_version: dict[int, int] | None = None
    step: int | None = None
    batch_age: float | None = None

    @property
    def span_id(self) -> str:
        """Its span."""
        return hashed(f"{self.run}/{self.group_id}/group", 8)


@dataclass
class AttemptSaid(_Said):
    """What a log says of an attempt; times in nanoseconds.

    Attributes:
        generation: which of its group's.
        tokens: how many it ended with.
        generated: how many it had at each refit, by time.
        resumes: trace and span of the attempt that it goes on from.
    """

    attempt_id: str = ""
    generation: Any = None
    tokens: int | None = None
    generated: dict[int, int | None] = field(default_factory=dict)
    resumes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def span_id(self) -> str:
        """Its span."""
        return hashed(f"{self.run}/{self.group_id}/{self.attempt_id}", 8)

    @property
    def failed(self) -> bool:
        """Whether its work was lost."""
        return self.outcome != "sealed"


@dataclass
class Reading:
    """What a whole log says.

    Attributes:
        groups: by run and group id.
        attempts: by run, group id and attempt id.
        run_events: what happened to each run: time and name, in the order of the log.
        batch_age: by step.
    """

    groups: dict[tuple[str, str], GroupSaid] = field(default_factory=dict)
    attempts: dict[tuple[str, str, str], AttemptSaid] = field(default_factory=dict)
    run_events: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    batch_age: dict[int, float] = field(default_factory=dict)

    def attempts_of(self, group: GroupSaid) -> list[AttemptSaid]:
        """A group's attempts."""
        return self.by_group[group.run, group.group_id]

    @cached_property
    def by_group(self) -> dict[tuple[str, str], list[AttemptSaid]]:
        """The attempts of each group."""
        found: dict[tuple[str, str], list[AttemptSaid]] = defaultdict(list)
        for (run, group_id, _), attempt in self.attempts.items():
            found[run, group_id].append(attempt)
        return found


def hashed(text: str, size: int) -> str:
    """The first so many bytes of a text's SHA-256, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()[: size * 2]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """A log's lines; of a torn one, the record that was written behind it."""
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            lines.append(json.loads(text[text.rindex('{"t"') :]))
    return lines


def copy_with_new_runs(log: Path, folder: Path) -> Path:
    """A copy of a log whose runs have ids of their own, so that it makes spans of its own."""
    text = log.read_text()
    for run in {line["run"] for line in lines_of(log)}:
        text = text.replace(run, uuid4().hex)
    copy = folder / log.name
    copy.write_text(text)
    return copy


def read(path: Path) -> Reading:
    """Read a log in which ids are strings, and every attempt event has both of them,
    or an attempt's that is out.
    """
    found = Reading()
    reader = _Reader(found)
    for line in lines_of(path):
        reader.take(line)
    reader.finish()
    return found


class _Reader:
    def __init__(self, found: Reading) -> None:
        self.found = found
        self.last: dict[str, int] = {}
        self.counts: dict[str, dict[int, int]] = {}
        self.homes: dict[str, tuple[str, str]] = {}

    def take(self, line: dict[str, Any]) -> None:
        time = round(line["t"] * 1_000_000) * 1000
        run, name = line["run"], _WORDS.get(line["event"], line["event"])
        self.last[run] = time
        events = self.found.run_events.setdefault(run, [])
        if name in _RUN_EVENTS:
            events.append((time, _RUN_EVENTS[name]))
        if name == "step_trained":
            self.train(run, line, time)
        elif name == "weights_synced":
            self.refit(run, line, time)
        elif name in ("attempt_dispatched", "attempt_resumed"):
            self.dispatch(run, line, time)
        elif name in _ENDS:
            self.end_attempt(run, line, _ENDS[name], time)
        elif name.startswith("group_"):
            self.take_of_group(run, name, line, time)
        elif name not in _RUN_EVENTS:
            self.take_unknown(run, line, time)

    def group(self, run: str, line: dict[str, Any], time: int) -> GroupSaid:
        group_id = line["group_id"]
        group = self.found.groups.setdefault((run, group_id), GroupSaid(run, group_id, time))
        if group.prompt_id is None:
            group.prompt_id = line.get("prompt_id")
        return group

    def take_of_group(self, run: str, name: str, line: dict[str, Any], time: int) -> None:
        group = self.group(run, line, time)
        if name in _GROUP_EVENTS:
            group.events.append((time, _GROUP_EVENTS[name]))
        if name == "group_published":
            counts = {int(version): n for version, n in line["tokens_by_version"].items()}
            self.counts[group.group_id] = group.tokens_by_version = counts
        if name == "group_discarded":
            group.outcome, group.reason, group.ended = "discarded", line.get("reason", ""), time

    def dispatch(self, run: str, line: dict[str, Any], time: int) -> None:
        group = self.group(run, line, time)
        attempt = AttemptSaid(
            run,
            group.group_id,
            time,
            attempt_id=line["attempt_id"],
            generation=line["generation_index"],
            prompt_id=line.get("prompt_id"),
        )
        origin = self.homes.get(line.get("resumed_from", ""))
        if origin is not None:
            trace_id = hashed(f"{origin[0]}/{origin[1]}", 16)
            span_id = hashed(f"{origin[0]}/{origin[1]}/{line['resumed_from']}", 8)
            attempt.resumes.append((trace_id, span_id))
        self.homes[attempt.attempt_id] = (run, group.group_id)
        self.found.attempts[run, group.group_id, attempt.attempt_id] = attempt

    def end_attempt(self, run: str, line: dict[str, Any], outcome: str, time: int) -> None:
        group = self.group(run, line, time)
        key = (run, group.group_id, line["attempt_id"])
        attempt = self.found.attempts.setdefault(
            key, AttemptSaid(run, group.group_id, time, attempt_id=line["attempt_id"])
        )
        attempt.outcome, attempt.reason = outcome, line.get("reason", "")
        attempt.tokens, attempt.ended = line.get("tokens"), time

    def refit(self, run: str, line: dict[str, Any], time: int) -> None:
        generated = dict(line["calls"])
        for attempt in self.found.attempts.values():
            if attempt.run == run and attempt.ended < 0:
                attempt.events.append((time, "rl.refit"))
                attempt.generated[time] = generated.get(attempt.attempt_id)

    def train(self, run: str, line: dict[str, Any], time: int) -> None:
        total = weighted = 0
        for group_id in line["group_ids"]:
            group = self.group(run, {"group_id": group_id}, time)
            group.events.append((time, "rl.step"))
            group.outcome, group.step, group.ended = "trained", line["step"], time
            counts = self.counts.get(group_id)  # none where the log begins after it
            if counts is None:
                continue
            tokens = sum(counts.values())
            age = sum(n * (line["trained_version"] - version) for version, n in counts.items())
            group.tokens_by_version, group.batch_age = counts, age / tokens
            total, weighted = total + tokens, weighted + age
        if total:
            self.found.batch_age[line["step"]] = weighted / total

    def take_unknown(self, run: str, line: dict[str, Any], time: int) -> None:
        if line["event"] == "trace_opened":
            return
        for attempt in self.found.attempts.values():
            is_out = attempt.run == run and attempt.ended < 0
            if is_out and attempt.attempt_id == line.get("attempt_id"):
                attempt.events.append((time, line["event"]))
                return
        self.found.run_events[run].append((time, line["event"]))

    def finish(self) -> None:
        for said in (*self.found.groups.values(), *self.found.attempts.values()):
            if said.ended < 0:
                said.ended = self.last[said.run]
            # Jaeger makes of no duration the shortest that it has.
            said.ended = max(said.started + 1, said.ended)
