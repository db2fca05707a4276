"""The instruments, as a table: what is shown, in which unit, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from .accumulators import Counts, RolloutMetrics

__all__ = ["HISTOGRAMS", "OBSERVED", "Histogram", "Observed"]


class Observed(NamedTuple):
    """An instrument that is read when a backend asks.

    Attributes:
        name, unit, description: as OpenTelemetry has them.
        kind: what it is.
        read: its value now, None for none; or its values by attributes.
    """

    name: str
    kind: Literal["gauge", "counter", "up_down_counter"]
    unit: str
    description: str
    read: Callable[[RolloutMetrics], float | Counts | None]


class Histogram(NamedTuple):
    """An instrument that takes each value as it comes.

    Attributes:
        name, unit, description: as OpenTelemetry has them.
        bounds: upper bounds of its buckets.
        labels: the attributes it keeps.
    """

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...]
    labels: frozenset[str]


OBSERVED: Final = (
    Observed(
        "rl.batch_age",
        "gauge",
        "{update}",
        "Batch age of the last trained step: weight updates between generating a token and "
        "training on it, mean over its tokens",
        lambda metrics: metrics.batch_age,
    ),
    Observed(
        "rl.batch_age_max",
        "gauge",
        "{update}",
        "Age of the oldest token of the last trained step",
        lambda metrics: metrics.batch_age_max,
    ),
    Observed(
        "rl.batch_age_generation",
        "gauge",
        "{update}",
        "Part of the batch age that was gained before publication, while generating",
        lambda metrics: metrics.batch_age_generation,
    ),
    Observed(
        "rl.batch_age_queue",
        "gauge",
        "{update}",
        "Part of the batch age that was gained while waiting in the replay buffer",
        lambda metrics: metrics.batch_age_queue,
    ),
    Observed(
        "rl.batch_age_coverage",
        "gauge",
        "1",
        "Share of the last trained step's groups whose tokens are counted",
        lambda metrics: metrics.batch_age_coverage,
    ),
    Observed(
        "rl.trained_tokens",
        "counter",
        "{token}",
        "Tokens trained, by their age in weight updates",
        lambda metrics: metrics.trained_tokens,
    ),
    Observed(
        "rl.tokens",
        "counter",
        "{token}",
        "Tokens generated, by what became of them",
        lambda metrics: metrics.tokens,
    ),
    Observed(
        "rl.attempts",
        "counter",
        "{attempt}",
        "Rollout attempts that ended",
        lambda metrics: metrics.attempts,
    ),
    Observed(
        "rl.groups",
        "counter",
        "{group}",
        "Prompt groups that ended",
        lambda metrics: metrics.groups,
    ),
    Observed(
        "rl.active_attempts",
        "up_down_counter",
        "{attempt}",
        "Rollout attempts that are out now",
        lambda metrics: metrics.open_attempts,
    ),
    Observed(
        "rl.open_groups",
        "up_down_counter",
        "{group}",
        "Prompt groups that are reserved and neither trained nor discarded",
        lambda metrics: metrics.open_groups,
    ),
    Observed(
        "rl.weight_version",
        "gauge",
        "{version}",
        "Weight version that generation runs on",
        lambda metrics: metrics.weight_version,
    ),
    Observed(
        "rl.step",
        "gauge",
        "{step}",
        "Last trained step",
        lambda metrics: metrics.step,
    ),
    Observed(
        "rl.checkpoints",
        "counter",
        "{checkpoint}",
        "Checkpoints published and restored",
        lambda metrics: metrics.checkpoints,
    ),
    Observed(
        "rl.unsaved_tokens",
        "gauge",
        "{token}",
        "Tokens sealed since the last checkpoint: what a kill now would cost",
        lambda metrics: metrics.unsaved_tokens,
    ),
    Observed(
        "rl.trace.events",
        "counter",
        "{event}",
        "Events of the log that were read",
        lambda metrics: metrics.events,
    ),
    Observed(
        "rl.trace.dropped_events",
        "counter",
        "{event}",
        "Events that could not be written to the log",
        lambda metrics: metrics.dropped_events,
    ),
    Observed(
        "rl.trace.lag",
        "gauge",
        "s",
        "How far a follower is behind the log that it follows",
        lambda metrics: metrics.lag,
    ),
)

_SECONDS: Final = (0.1, 0.3, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1800.0)
_OUTCOME: Final = frozenset({"rl.outcome"})

HISTOGRAMS: Final = (
    Histogram(
        "rl.attempt.duration",
        "s",
        "Time from dispatching an attempt to its end",
        _SECONDS,
        _OUTCOME,
    ),
    Histogram(
        "rl.group.duration",
        "s",
        "Time from reserving a group to its end",
        _SECONDS,
        _OUTCOME,
    ),
    Histogram(
        "rl.group.queue.duration",
        "s",
        "Time from publishing a group to training on it",
        _SECONDS,
        _OUTCOME,
    ),
    Histogram(
        "rl.group.age",
        "{update}",
        "Age of each trained group: weight updates, mean over its tokens",
        (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0),
        frozenset(),
    ),
    Histogram(
        "rl.refit.duration",
        "s",
        "Time that replacing the generator's weights took",
        (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
        frozenset(),
    ),
)
