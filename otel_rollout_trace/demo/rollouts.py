"""Rollouts: the pump that keeps the engine busy with groups.

A group is one prompt and several generations of it. Each generation is tried until
an attempt is sealed. The pump does not wait for training: it goes on as long as there
is room, on whatever weights the engine has.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from otel_rollout_trace import RefitCuts, RolloutTrace

from .engine import Attempt, Engine, Group
from .task import END, TASK_NAME, Prompt, draw_prompt, reward_of

__all__ = ["GENERATIONS", "MOST_OPEN_GROUPS", "Rollouts"]

GENERATIONS: Final = 6
MOST_OPEN_GROUPS: Final = 14
"""How many groups there may be that are admitted, and neither trained nor discarded."""

_TOKEN_SECONDS: Final = 0.03
# Some calls are on a slow machine.
_SLOW_SHARE: Final = 0.02
_SLOWER: Final = 10.0


class Rollouts:
    """The pump that keeps the engine busy.

    Args:
        trace: where what happens is recorded.
        engine: what generates.
        publish: takes a group whose generations are all sealed, for training.
        seed: of the prompts.
        rng: where everything else that is random comes from.
        next_prompt: the prompt to begin with.

    Attributes:
        cuts: where refits cut through calls.
        open: the groups that are generated now, by id.
        reserved: the group that waits for room.
        ended: how many attempts ended, by outcome.
    """

    def __init__(
        self,
        trace: RolloutTrace,
        engine: Engine,
        publish: Callable[[Group], None],
        *,
        seed: int,
        rng: np.random.Generator,
        next_prompt: int = 0,
    ) -> None:
        self.cuts = RefitCuts()
        self.open: dict[str, Group] = {}
        self.reserved: Group | None = None
        self.ended: Counter[str] = Counter()
        self.next_prompt = next_prompt
        self.slots = asyncio.Semaphore(MOST_OPEN_GROUPS)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._trace = trace
        self._engine = engine
        self._publish = publish
        self._seed = seed
        self._rng = rng

    async def pump(self, target_step: Callable[[], int], saved: Iterable[Group] = ()) -> None:
        """Reserve group after group, and start each when there is room.

        Args:
            target_step: gives the step that a group reserved now is for.
            saved: groups of an earlier run that come first.
        """
        for earlier in saved:
            group = self._reserve(earlier.prompt, target_step())
            await self.slots.acquire()
            self._start(group, earlier.attempts)
        while True:
            prompt = draw_prompt(self.next_prompt, self._seed)
            self.next_prompt += 1
            group = self._reserve(prompt, target_step())
            await self.slots.acquire()
            self._start(group, {})

    def _reserve(self, prompt: Prompt, target_step: int) -> Group:
        group = self.reserved = Group(_new_id(), prompt, self._engine.version)
        self._trace.emit(
            "group_reserved",
            group_id=group.id,
            prompt_id=prompt.id,
            expected_generations=GENERATIONS,
            target_step=target_step,
            weight_version=self._engine.version,
            task_name=TASK_NAME,
        )
        return group

    def _start(self, group: Group, saved: dict[int, Attempt]) -> None:
        """Begin a group's generations, or go on with those that were saved."""
        group.begun_on = min([self._engine.version, *(each.begun_on for each in saved.values())])
        self.reserved = None
        self.open[group.id] = group
        self._trace.emit("group_admitted", group_id=group.id, weight_version=self._engine.version)
        task = asyncio.get_running_loop().create_task(self._roll_out(group, saved))
        task.add_done_callback(self._note_failure)
        self._tasks[group.id] = task

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _roll_out(self, group: Group, saved: dict[int, Attempt]) -> None:
        generations = range(GENERATIONS)
        await asyncio.gather(*(self._generation(group, n, saved.get(n)) for n in generations))
        del self.open[group.id], self._tasks[group.id]
        self._trace.emit("group_sealed", group_id=group.id)
        calls = [(each.id, each.begun_on, len(each.tokens)) for each in group.attempts.values()]
        group.tokens_by_version = self.cuts.tokens_by_version(calls)
        if len(set(group.rewards())) == 1:  # no answer is better than another
            self.discard(group, "zero_variance")
            return
        self._trace.emit(
            "group_published",
            group_id=group.id,
            prompt_id=group.prompt.id,
            tokens_by_version=group.tokens_by_version,
        )
        self._publish(group)

    async def _generation(self, group: Group, index: int, saved: Attempt | None) -> None:
        """Try until one attempt is sealed; an attempt that was saved is the first."""
        while True:
            attempt = self._resume(group, saved) if saved else self._dispatch(group, index)
            saved = None
            group.attempts[index] = attempt
            try:
                await self._engine.generate(group.prompt, attempt)
            except asyncio.TimeoutError:
                self._abandon(group, attempt, "timeout")
                continue
            if attempt.tokens[-1] != END:
                self.ended["refused"] += 1
                self._trace.emit(
                    "attempt_refused",
                    group_id=group.id,
                    attempt_id=attempt.id,
                    reason="over_length",
                    tokens=len(attempt.tokens),
                )
                continue
            attempt.reward = reward_of(group.prompt, attempt.tokens)
            self.ended["sealed"] += 1
            self._trace.emit(
                "attempt_sealed",
                group_id=group.id,
                attempt_id=attempt.id,
                tokens=len(attempt.tokens),
                reward=attempt.reward,
            )
            return

    def _dispatch(self, group: Group, index: int) -> Attempt:
        seconds = _TOKEN_SECONDS * self._rng.lognormal(sigma=0.3)
        if self._rng.random() < _SLOW_SHARE:
            seconds *= _SLOWER
        attempt = Attempt(_new_id(), index, self._engine.version, seconds)
        self._trace.emit(
            "attempt_dispatched",
            group_id=group.id,
            attempt_id=attempt.id,
            prompt_id=group.prompt.id,
            generation_index=index,
            weight_version=attempt.begun_on,
        )
        return attempt

    def _resume(self, group: Group, saved: Attempt) -> Attempt:
        """Go on with an attempt of an earlier run, under an id of this one's."""
        attempt = Attempt(
            id=_new_id(),
            generation_index=saved.generation_index,
            begun_on=saved.begun_on,
            token_seconds=saved.token_seconds,
            tokens=saved.tokens,
            log_chances=saved.log_chances,
            cuts=saved.cuts,
        )
        for replaced, installed, tokens in attempt.cuts:
            self.cuts.record(replaced, installed, [(attempt.id, tokens)])
        self._trace.emit(
            "attempt_resumed",
            group_id=group.id,
            attempt_id=attempt.id,
            prompt_id=group.prompt.id,
            generation_index=attempt.generation_index,
            resumed_from=saved.id,
            tokens=len(attempt.tokens),
        )
        return attempt

    def _abandon(self, group: Group, attempt: Attempt, reason: str) -> None:
        self.ended["abandoned"] += 1
        self._trace.emit(
            "attempt_abandoned",
            group_id=group.id,
            attempt_id=attempt.id,
            reason=reason,
            tokens=len(attempt.tokens),
        )

    def discard(self, group: Group, reason: str) -> None:
        """Give up a group, and what runs of it."""
        self._trace.emit("group_discarded", group_id=group.id, reason=reason)
        self.slots.release()

    def discard_open(self, reason: str, *, begun_before: float = float("inf")) -> None:
        """Give up the groups that are generated now, if they began on an older version."""
        for group in [group for group in self.open.values() if group.begun_on < begun_before]:
            self._tasks.pop(group.id).cancel()
            del self.open[group.id]
            for attempt in group.attempts.values():
                if attempt.id in self._engine.running:
                    self._abandon(group, attempt, reason)
            self.discard(group, reason)


def _new_id() -> str:
    return uuid.uuid4().hex[:16]
