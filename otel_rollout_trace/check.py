"""What is in a log, and what is odd about it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from .events import Event, EventRow, Vocabulary, count_of, micros_of, seconds_of, version_of
from .journal import LogReader
from .lifecycle import Attempt, Group, Lifecycle, Listener, Step

__all__ = ["Finding", "LogCheck", "RunCheck", "check_log"]

# Steps and names that a finding spells out; further ones are counted.
_MOST_NAMED: Final = 5

# Threads that emit at once pass each other by this much; a clock that is set does not.
_RACE_MICROS: Final = 100_000


@dataclass
class RunCheck:
    """One run of a log.

    Attributes:
        run: its id.
        pid: the process that wrote it, where the log says.
        events: how many events it has.
        first, last: times of its first and last event, in seconds since the epoch.
        steps: how many steps it trained.
        first_step, last_step: the lowest and the highest of them.
        restored_step: the step of the checkpoint that it started from.
        attempts, groups: how many ended, by outcome; those still open at the end
            of the log are ``interrupted``.
    """

    run: str
    pid: int | None = None
    events: int = 0
    first: float = 0.0
    last: float = 0.0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    restored_step: int | None = None
    attempts: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)


@dataclass
class Finding:
    """Something odd about a log.

    Attributes:
        kind: what it is, for programs.
        count: how often it was found.
        text: what it is, for people.
    """

    kind: str
    count: int
    text: str


@dataclass
class LogCheck:
    """What is in a log.

    Attributes:
        path: the file.
        events: how many events of each name, as written.
        rows: how many events of each row of the vocabulary, synonyms included.
        runs: its runs, in the order of their first event.
        findings: what is odd about it.
    """

    path: str
    events: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    runs: list[RunCheck] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def check_log(
    path: str | os.PathLike[str],
    *,
    vocabulary: Vocabulary | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> LogCheck:
    """Read a log and say what is in it, and what is odd about it.

    Args:
        path: the log.
        vocabulary: which words mean which row.
        progress: called now and then with the bytes of the file read so far.

    Raises:
        LogError: if the file cannot be read, or is no rollout log.
    """
    vocabulary = vocabulary or Vocabulary()
    reader = LogReader(path, required=True)
    checker = _Checker(LogCheck(str(path)))
    lifecycle = Lifecycle([checker], vocabulary=vocabulary)
    for number, event in enumerate(reader):
        if not number % 1000:
            progress(reader.position)
        lifecycle.feed(event)
    lifecycle.close()
    checker.conclude(reader)
    return checker.result


class _Checker(Listener):
    """Counts what a `LogCheck` tells."""

    def __init__(self, result: LogCheck) -> None:
        self.result = result
        self._runs: dict[str, RunCheck] = {}
        self._unknown: Counter[str] = Counter()
        self._synonyms: dict[str, str] = {}
        self._steps_back = 0
        self._furthest_back = 0
        self._undispatched = 0
        self._unreserved = 0
        self._steps: set[int] = set()
        self._repeated_steps: list[str] = []
        self._uncounted_steps: list[str] = []
        self._negative_steps: list[str] = []
        self._uncounted_attempts = 0
        self._lost = 0
        self._last_time: dict[str, int] = {}

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        """See `Listener`."""
        name = event["event"]
        self.result.events[name] += 1
        if row is None:
            self._unknown[name] += 1
        else:
            self.result.rows[row.name] += 1
            if name != row.name:
                self._synonyms[name] = row.name
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = RunCheck(run, first=event["t"])
            self.result.runs.append(found)
        found.events += 1
        time = micros_of(event["t"])
        back = self._last_time.get(run, time) - time
        if back > _RACE_MICROS:
            self._steps_back += 1
            self._furthest_back = max(self._furthest_back, back)
        self._last_time[run] = time
        found.last = event["t"]
        if row is not None and row.name == "trace_opened":
            found.pid = version_of(event.get("pid"))
        elif row is not None and row.name == "checkpoint_restored":
            found.restored_step = version_of(event.get("step"))
        elif row is not None and row.name == "trace_gap":
            self._lost += count_of(event.get("lost")) or 0

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self._run(attempt.run).attempts[attempt.outcome] += 1
        if attempt.first is None:
            self._undispatched += 1
        if attempt.last is not None and attempt.tokens is None:
            self._uncounted_attempts += 1

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        self._run(group.run).groups[group.outcome] += 1
        if group.first is None:
            self._unreserved += 1

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        run = self._run(step.run)
        run.steps += 1
        number = step.number
        if number is not None:
            first, last = run.first_step, run.last_step
            run.first_step = number if first is None else min(first, number)
            run.last_step = number if last is None else max(last, number)
        named = str(number) if number is not None else "?"
        if number is not None:
            if number in self._steps:
                self._repeated_steps.append(named)
            self._steps.add(number)
        missing = len(step.groups) - len(step.counted)
        if missing or not step.tokens:
            self._uncounted_steps.append(f"{named} ({missing} of {len(step.groups)} groups)")
        version = step.trained_version
        if version is not None and any(
            made_by > version and tokens
            for counts in step.counted
            for made_by, tokens in zip(counts.versions, counts.counts, strict=True)
        ):
            self._negative_steps.append(named)

    def conclude(self, reader: LogReader) -> None:
        """Put together what is odd."""
        if reader.first_bad is not None:
            first = reader.first_bad
            where = f"line {first.number}" if first.number else "one of them"
            self._find(
                "bad_lines",
                reader.bad_lines,
                f"bad lines were skipped, or their torn beginning; {where}: {first.reason}",
            )
        self._find("lost_events", self._lost, "events could not be written (trace_gap)")
        unknown = ", ".join(f"{name} ({count})" for name, count in self._unknown.most_common(5))
        self._find(
            "unknown_events",
            sum(self._unknown.values()),
            f"events of unknown names: {unknown}",
        )
        words = ", ".join(f"{word} = {name}" for word, name in sorted(self._synonyms.items()))
        self._find("synonyms", len(self._synonyms), f"other words for events: {words}")
        attempts = sum(run.attempts["interrupted"] for run in self.result.runs)
        self._find("attempts_without_end", attempts, "attempts have no end in the log")
        groups = sum(run.groups["interrupted"] for run in self.result.runs)
        self._find("groups_without_end", groups, "groups were neither trained nor discarded")
        self._find(
            "attempts_without_start", self._undispatched, "attempts ended that never started"
        )
        self._find("groups_without_start", self._unreserved, "groups were never reserved")
        self._find(
            "attempts_without_tokens",
            self._uncounted_attempts,
            "attempts ended without a count of tokens",
        )
        self._find_steps("steps_repeated", self._repeated_steps, "were trained again: step")
        self._find_steps("steps_without_counts", self._uncounted_steps, "lack counts: step")
        self._find_steps(
            "negative_ages", self._negative_steps, "trained tokens newer than their weights: step"
        )
        self._find(
            "time_steps_back",
            self._steps_back,
            f"times step back, by up to {seconds_of(self._furthest_back):.6g} s",
        )

    def _find_steps(self, kind: str, steps: list[str], text: str) -> None:
        times = Counter(steps)
        shown = [f"{step} ({n} times)" if n > 1 else step for step, n in times.items()]
        named = ", ".join(shown[:_MOST_NAMED])
        more = ", ..." if len(shown) > _MOST_NAMED else ""
        self._find(kind, len(steps), f"steps {text} {named}{more}")

    def _find(self, kind: str, count: int, text: str) -> None:
        if count:
            self.result.findings.append(Finding(kind, count, text))

    def _run(self, run: str) -> RunCheck:
        # An item that is pushed out may be of a run whose first event is being read.
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = RunCheck(run)
            self.result.runs.append(found)
        return found
