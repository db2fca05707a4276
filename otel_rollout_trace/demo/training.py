"""Training: a replay buffer, steps on what is in it, and a refit after each."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from otel_rollout_trace import RolloutTrace, batch_age_group_metrics, pop_batch_age

from .engine import Engine, Group
from .policy import Policy, Trajectory, advantages_of, grpo_update
from .rollouts import Rollouts

__all__ = ["GROUPS_PER_STEP", "MAX_AGE", "ReplayBuffer", "StepReport", "Trainer"]

GROUPS_PER_STEP: Final = 6
MAX_AGE: Final = 3
"""The most weight updates that may lie between a group's beginning and training on it."""

# A real step takes far longer than this one's arithmetic, and rollouts go on meanwhile.
_STEP_SECONDS: Final = 0.6
_REFIT_SECONDS: Final = 0.12

# A kill takes the last 20 milliseconds of the log with it. At a high pace whole steps fit
# into that, and the demo is to look the same at any.
_REACHES_THE_LOG_S: Final = 0.1


class ReplayBuffer:
    """Published groups that wait to be trained, oldest first."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._added = asyncio.Event()

    def add(self, group: Group) -> None:
        """Put a group in."""
        self.groups.append(group)
        self._added.set()

    async def take(self, number: int) -> list[Group]:
        """Wait until there are so many, and take them out."""
        while len(self.groups) < number:
            self._added.clear()
            await self._added.wait()
        batch, self.groups = self.groups[:number], self.groups[number:]
        return batch


class StepReport(NamedTuple):
    """What came of a step.

    Attributes:
        step: its number.
        reward: the mean reward of its groups.
        batch_age: its batch age, in weight updates.
        loss: the loss before it.
    """

    step: int
    reward: float
    batch_age: float
    loss: float


class Trainer:
    """Trains the policy, and hands each new version to the engine.

    Args:
        trace: where what happens is recorded.
        policy: what learns.
        engine: what generates.
        rollouts: where groups come from, and may have to be given up.
        buffer: the groups to train on.
        step: the steps trained before.
        kill_at: the step during which to kill this process.
    """

    def __init__(
        self,
        trace: RolloutTrace,
        policy: Policy,
        engine: Engine,
        rollouts: Rollouts,
        buffer: ReplayBuffer,
        *,
        step: int = 0,
        kill_at: int | None = None,
    ) -> None:
        self.step = step
        self._trace = trace
        self._policy = policy
        self._engine = engine
        self._rollouts = rollouts
        self._buffer = buffer
        self._kill_at = kill_at

    async def train(self, steps: int | None, after: Callable[[StepReport], None]) -> None:
        """Step after step.

        Args:
            steps: the last one; None for no end.
            after: called after each.
        """
        while steps is None or self.step < steps:
            report = await self._train_step()
            await self._refit()
            self._discard_stale()
            after(report)

    async def _train_step(self) -> StepReport:
        batch = await self._buffer.take(GROUPS_PER_STEP)
        await asyncio.sleep(_STEP_SECONDS / 2)
        if self.step + 1 == self._kill_at:
            time.sleep(_REACHES_THE_LOG_S)
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(_STEP_SECONDS / 2)
        trained_version = self._engine.version
        loss = grpo_update(self._policy, _trajectories(batch))
        metrics = [batch_age_group_metrics(group.tokens_by_version) for group in batch]
        rewards = [reward for group in batch for reward in group.rewards()]
        self.step += 1
        self._trace.emit(
            "step_trained",
            step=self.step,
            trained_version=trained_version,
            group_ids=[group.id for group in batch],
            loss=loss,
            reward=sum(rewards) / len(rewards),
        )
        for _ in batch:
            self._rollouts.slots.release()
        return StepReport(
            step=self.step,
            reward=sum(rewards) / len(rewards),
            batch_age=pop_batch_age(metrics, trained_version) or 0.0,
            loss=loss,
        )

    async def _refit(self) -> None:
        replaced_version = self._engine.version
        started = time.monotonic()
        calls = await self._engine.refit(self._policy, _REFIT_SECONDS)
        self._rollouts.cuts.record(replaced_version, self._engine.version, calls)
        self._trace.emit(
            "weights_synced",
            replaced_version=replaced_version,
            weight_version=self._engine.version,
            duration_s=time.monotonic() - started,
            calls=calls,
        )

    def _discard_stale(self) -> None:
        """Give up what is too old for the next step, generated or not."""
        oldest = self._engine.version - MAX_AGE
        self._rollouts.discard_open("stale_weights", begun_before=oldest)
        for group in [group for group in self._buffer.groups if group.begun_on < oldest]:
            self._buffer.groups.remove(group)
            self._rollouts.discard(group, "stale_weights")
        self._rollouts.cuts.forget_before(oldest)

    def wind_down(self) -> None:
        """Give up what will not be trained any more, at the end of the run."""
        rollouts = self._rollouts
        rollouts.discard_open("run_ended")
        for group in (*self._buffer.groups, *([rollouts.reserved] if rollouts.reserved else [])):
            rollouts.discard(group, "run_ended")
        self._buffer.groups.clear()


def _trajectories(batch: list[Group]) -> list[Trajectory]:
    found: list[Trajectory] = []
    for group in batch:
        attempts = [attempt for _, attempt in sorted(group.attempts.items())]
        for attempt, advantage in zip(attempts, advantages_of(group.rewards()), strict=True):
            found.append((group.prompt, attempt.tokens, attempt.log_chances, advantage))
    return found
