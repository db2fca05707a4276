"""The figures of a run, as plain numbers. Nothing here knows OpenTelemetry.

Counters only grow; gauges are the last value, or None before there is one, so
that nothing is shown that was not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from ..events import Event, EventRow, clamped, count_of, version_of
from ..lifecycle import Attempt, Group, Listener, Refit, Step

__all__ = ["Counts", "Labels", "RolloutMetrics", "Sample"]

Labels: TypeAlias = tuple[tuple[str, str], ...]
Counts: TypeAlias = dict[Labels, int]

# A reason made of free text would give every event a time series of its own.
_MOST_REASONS: Final = 50
OTHER: Final = "_OTHER"

#: Ages from here on are counted together.
OLDEST_AGE: Final = 16


class Sample(NamedTuple):
    """One value for a histogram.

    Attributes:
        name: the instrument.
        value: in the instrument's unit.
        labels: its attributes.
        group_id, attempt_id: whose span it is an exemplar of; None for none.
        run: the run of both.
    """

    name: str
    value: float
    labels: Labels
    run: str = ""
    group_id: str | None = None
    attempt_id: str | None = None


class RolloutMetrics(Listener):
    """Adds up what a lifecycle tells.

    Args:
        observe: takes each sample for a histogram.
    """

    def __init__(self, observe: Callable[[Sample], object] = lambda _: None) -> None:
        self._observe = observe
        self._reasons: set[str] = set()
        self.batch_age: float | None = None
        self.batch_age_max: int | None = None
        self.batch_age_generation: float | None = None
        self.batch_age_queue: float | None = None
        self.batch_age_coverage: float | None = None
        self.step: int | None = None
        self.weight_version: int | None = None
        self.unsaved_tokens = 0
        self.open_attempts = 0
        self.open_groups = 0
        self.events = 0
        self.dropped_events = 0
        #: How far a follower is behind the log, in seconds; None for a live run.
        self.lag: float | None = None
        self.trained_tokens: Counts = {}
        self.tokens: Counts = {}
        self.attempts: Counts = {}
        self.groups: Counts = {}
        self.checkpoints: Counts = {}

    def event_read(self, run: str, event: Event, row: EventRow | None) -> None:
        """See `Listener`."""
        self.events += 1
        if row is None:
            return
        if row.name == "checkpoint_published":
            self._add(self.checkpoints, 1, ("rl.checkpoint.action", "published"))
            self.unsaved_tokens = 0
        elif row.name == "checkpoint_restored":
            self._add(self.checkpoints, 1, ("rl.checkpoint.action", "restored"))
            version = version_of(event.get("weight_version"))
            self.weight_version = version if version is not None else self.weight_version
        elif row.name == "trace_gap":
            self.dropped_events += count_of(event.get("lost")) or 0

    def attempt_started(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self.open_attempts += 1

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        self.open_attempts -= 1
        outcome, tokens, group = attempt.outcome, attempt.tokens or 0, attempt.group
        if outcome == "sealed":
            self._add(self.attempts, 1, ("rl.outcome", outcome))
            self.unsaved_tokens = clamped(self.unsaved_tokens + tokens)
            if group is not None and group.outcome == "discarded":
                self._add(self.tokens, tokens, ("rl.token.fate", "discarded"))
        else:
            reason = ("error.type", self._reason(attempt.reason or outcome))
            self._add(self.attempts, 1, ("rl.outcome", outcome), reason)
            self._add(self.tokens, tokens, ("rl.token.fate", outcome))
        self._observe(
            Sample(
                "rl.attempt.duration",
                max(0, attempt.ended - attempt.started) / 1e6,
                (("rl.outcome", outcome),),
                attempt.run,
                attempt.group_id,
                attempt.attempt_id,
            )
        )

    def group_started(self, group: Group) -> None:
        """See `Listener`."""
        self.open_groups += 1

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        self.open_groups -= 1
        outcome = group.outcome
        labels = [("rl.outcome", outcome)]
        if group.reason:
            labels.append(("rl.reason", self._reason(group.reason)))
        self._add(self.groups, 1, *labels)
        counts = group.published
        tokens = group.sealed_tokens
        if outcome == "trained" and counts is not None:
            tokens = counts.tokens
        self._add(self.tokens, tokens, ("rl.token.fate", outcome))

        def sample(name: str, value: float) -> Sample:
            return Sample(name, value, (("rl.outcome", outcome),), group.run, group.group_id)

        self._observe(sample("rl.group.duration", max(0, group.ended - group.started) / 1e6))
        if outcome == "trained" and group.published_at is not None:
            waited = max(0, group.ended - group.published_at) / 1e6
            self._observe(sample("rl.group.queue.duration", waited))
        step = group.step
        if step is not None and step.trained_version is not None and counts and counts.tokens:
            age = (step.trained_version * counts.tokens - counts.version_sum) / counts.tokens
            self._observe(Sample("rl.group.age", age, (), group.run, group.group_id))

    def refitted(self, refit: Refit) -> None:
        """See `Listener`."""
        if refit.weight_version is not None:
            self.weight_version = refit.weight_version
        if refit.duration is not None:
            self._observe(Sample("rl.refit.duration", refit.duration, ()))

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        self.step = step.number if step.number is not None else self.step
        counted = step.counted
        self.batch_age_coverage = len(counted) / len(step.groups) if step.groups else None
        version = step.trained_version
        age = step.batch_age
        if version is None or age is None:
            # A step without counted tokens has no age; the last one's is not its.
            self.batch_age = self.batch_age_max = None
            self.batch_age_generation = self.batch_age_queue = None
            return
        ages = [
            (version - made_by, tokens)
            for counts in counted
            for made_by, tokens in zip(counts.versions, counts.counts, strict=True)
            if tokens
        ]
        self.batch_age = age
        self.batch_age_max = max(age for age, _ in ages)
        self.batch_age_queue = step.batch_age_queue
        self.batch_age_generation = age - (step.batch_age_queue or 0.0)
        for token_age, tokens in ages:
            self._add(self.trained_tokens, tokens, ("rl.token.age", age_label(token_age)))

    def _reason(self, reason: str) -> str:
        if reason not in self._reasons:
            if len(self._reasons) >= _MOST_REASONS or len(reason) > 80:
                return OTHER
            self._reasons.add(reason)
        return reason

    @staticmethod
    def _add(counts: Counts, number: int, *labels: tuple[str, str]) -> None:
        if number:
            counts[labels] = clamped(counts.get(labels, 0) + number)


def age_label(age: int) -> str:
    """A token's age as the value of ``rl.token.age``; a negative one means a bug somewhere."""
    if age < 0:
        return "<0"
    return str(age) if age < OLDEST_AGE else f"{OLDEST_AGE}+"
