"""What the page shows of attempts, groups, refits and steps, gathered in bounded memory."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..events import Event, EventRow, id_of, version_of
from ..lifecycle import Attempt, Group, Listener, Refit, Step
from ..lifecycle.items import Item
from ..metrics.accumulators import age_label
from .bounded import Binned, Thinned

__all__ = ["Bar", "Collector", "Mark", "Prompt"]

MOST_ATTEMPTS: Final = 40_000
MOST_GROUPS: Final = 20_000
MOST_MARKS: Final = 4_000
MOST_PROMPTS: Final = 100_000
MOST_REASONS: Final = 12
_BINS: Final = 120
_POINTS: Final = 3_000

IN_FLIGHT: Final = "attempts in flight"
OPEN: Final = "groups open"
BUFFERED: Final = "groups in the buffer"

STILL_OUT: Final = "still out"

_LONGEST: Final = 80
OTHER: Final = "other reasons"


class Bar(NamedTuple):
    """An attempt or a group, as the timeline shows it. Times are microseconds.

    Attributes:
        run: id of its run.
        started, ended: when.
        outcome, reason: how it ended, and why.
        id: its id.
        group_id: of an attempt, its group's.
        prompt: whose prompt, as text.
        generation: of an attempt, its index as text.
        tokens: how many, where counted.
        step: of a group, the step that trained it.
        published: of a group, when it was published.
    """

    run: str
    started: int
    ended: int
    outcome: str
    reason: str
    id: str
    group_id: str = ""
    prompt: str = ""
    generation: str = ""
    tokens: int | None = None
    step: int | None = None
    published: int | None = None


class Mark(NamedTuple):
    """A refit, a step or a checkpoint: a moment that concerns a whole run."""

    run: str
    time: int
    text: str


@dataclass(slots=True)
class Prompt:
    """What the attempts at one prompt came to.

    Attributes:
        attempts: how many there were, over all its groups and runs.
        failed: how many of them were refused or abandoned.
        interrupted: how many a run's end cut off.
        seconds: the sum of their durations.
        tokens: the sum of their counted tokens.
        longest: the longest duration, in seconds.
        longest_id, longest_outcome: of that attempt.
    """

    attempts: int = 0
    failed: int = 0
    interrupted: int = 0
    seconds: float = 0.0
    tokens: int = 0
    longest: float = -1.0
    longest_id: str = ""
    longest_outcome: str = ""


class Collector(Listener):
    """Hears of one log's items and keeps what its page shows.

    Args:
        run: only this run's; None for all.

    Attributes:
        events: events read, of the runs that are shown.
        spans: for each run its first and its last time, in seconds.
        attempts, groups: bars of the timeline.
        refits, steps, saves: marks of the timeline; ``saves`` are checkpoints.
        outcomes: ended attempts over time, by outcome and reason.
        levels: what changed over time in flight, open and in the buffer.
        ages: trained tokens by age, of each step's last training that has an age.
        prompts: by prompt, as text.
        prompts_left_out: attempts of prompts that there was no room for.
        last_runs: runs that no other follows: what is open when they end was not cut off
            by a stop. Known, and to be set, when the log was read to its end.
    """

    def __init__(self, run: str | None = None) -> None:
        self._run = run
        self.events = 0
        self.spans: dict[str, list[float]] = {}
        self.attempts: Thinned[Bar] = Thinned(MOST_ATTEMPTS)
        self.groups: Thinned[Bar] = Thinned(MOST_GROUPS)
        self.refits: Thinned[Mark] = Thinned(MOST_MARKS)
        self.steps: Thinned[Mark] = Thinned(MOST_MARKS)
        self.saves: Thinned[Mark] = Thinned(MOST_MARKS)
        self.outcomes: Binned[tuple[str, str]] = Binned(_BINS)
        self.totals: Counter[tuple[str, str]] = Counter()
        self.levels: Binned[str] = Binned(_POINTS)
        self.ages: dict[int, Counter[str]] = {}
        self.prompts: dict[str, Prompt] = {}
        self.prompts_left_out = 0
        self.last_runs: set[str] = set()

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        """See `Listener`."""
        if self._run not in (None, run):
            return
        self.events += 1
        t = event["t"]
        span = self.spans.get(run)
        if span is None:
            self.spans[run] = [t, t]
        elif t > span[1]:
            span[1] = t
        elif t < span[0]:
            span[0] = t
        if row is not None and row.name in ("checkpoint_published", "checkpoint_restored"):
            done = "published" if row.name == "checkpoint_published" else "restored"
            step = version_of(event.get("step"))
            of = "" if step is None else f" of step {step}"
            self.saves.add(Mark(run, round(t * 1e6), f"checkpoint{of} {done}"))

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        if self._run not in (None, attempt.run):
            return
        started, ended = attempt.started, max(attempt.started, attempt.ended)
        outcome = self._outcome_of(attempt)
        reason = shown(attempt.reason)
        tokens = attempt.tokens
        group_id = shown(attempt.group_id or "")
        prompt = attempt.group.prompt_id if attempt.group is not None else None
        if prompt is None:
            event = attempt.first or attempt.last or {}
            prompt = event.get("prompt_id")
        named = prompt_of(prompt, group_id)
        generation = (attempt.first or attempt.last or {}).get("generation_index")
        attempt_id = shown(attempt.attempt_id)
        self.attempts.add(
            Bar(
                attempt.run,
                started,
                ended,
                outcome,
                reason,
                attempt_id,
                group_id,
                named,
                shown(id_of(generation) or "", 12),
                tokens,
            )
        )
        key = (outcome, reason)
        if key not in self.totals and len(self.totals) >= MOST_REASONS:
            key = (outcome, OTHER)
        self.totals[key] += 1
        self.outcomes.add(ended, key)
        self.levels.add(started, IN_FLIGHT, 1)
        self.levels.add(ended, IN_FLIGHT, -1)
        self._count(named, attempt_id, outcome, (ended - started) / 1e6, tokens or 0)

    def _count(self, named: str, attempt_id: str, outcome: str, seconds: float, tok: int) -> None:
        prompt = self.prompts.get(named)
        if prompt is None:
            if len(self.prompts) >= MOST_PROMPTS:
                self.prompts_left_out += 1
                return
            prompt = self.prompts[named] = Prompt()
        prompt.attempts += 1
        prompt.failed += outcome in ("refused", "abandoned")
        prompt.interrupted += outcome == "interrupted"
        prompt.seconds += seconds
        prompt.tokens += tok
        if seconds > prompt.longest:
            prompt.longest = seconds
            prompt.longest_id, prompt.longest_outcome = attempt_id, outcome

    def _outcome_of(self, item: Item) -> str:
        if item.outcome == "interrupted" and item.run in self.last_runs:
            return STILL_OUT
        return item.outcome

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        if self._run not in (None, group.run):
            return
        started, ended = group.started, max(group.started, group.ended)
        counts = group.published
        group_id = shown(group.group_id)
        self.groups.add(
            Bar(
                group.run,
                started,
                ended,
                self._outcome_of(group),
                shown(group.reason),
                group_id,
                prompt=prompt_of(group.prompt_id, group_id),
                tokens=counts.tokens if counts is not None else None,
                step=group.step.number if group.step is not None else None,
                published=group.published_at,
            )
        )
        self.levels.add(started, OPEN, 1)
        self.levels.add(ended, OPEN, -1)
        if group.published_at is not None:
            self.levels.add(group.published_at, BUFFERED, 1)
            self.levels.add(max(group.published_at, ended), BUFFERED, -1)

    def refitted(self, refit: Refit) -> None:
        """See `Listener`."""
        if self._run not in (None, refit.run):
            return
        old, new = refit.replaced_version, refit.weight_version
        text = "refit" + (f" v{old}" if old is not None else "")
        text += f" → v{new}" if new is not None else ""
        if refit.duration is not None:
            text += f", took {refit.duration:.3g} s"
        self.refits.add(Mark(refit.run, refit.time, text))

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        if self._run not in (None, step.run):
            return
        age, version = step.batch_age, step.trained_version
        text = "a step" if step.number is None else f"step {step.number}"
        text += f" trained on {len(step.groups):,} group" + "s" * (len(step.groups) != 1)
        if age is not None:
            text += f", batch age {age:.3f}"
        self.steps.add(Mark(step.run, step.time, text))
        if step.number is None or age is None or version is None:
            return
        ages: Counter[str] = Counter()
        for counts in step.counted:
            for made_by, tokens in zip(counts.versions, counts.counts, strict=True):
                if tokens:
                    ages[age_label(version - made_by)] += tokens
        self.ages[step.number] = ages


def shown(text: str, most: int = _LONGEST) -> str:
    """Text of a log as one that is safe to show: of one line, and not too long."""
    if len(text) > most:
        text = text[: most - 1] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def prompt_of(value: Any, group_id: str) -> str:
    """A prompt's id as text; its group's where it has none."""
    if value is None:
        return f"of group {group_id}" if group_id else "unknown"
    if isinstance(value, str):
        return shown(value)
    return shown(json.dumps(value, ensure_ascii=False))
