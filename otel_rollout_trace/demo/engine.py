"""The engine: what generates, on the weights of one version at a time.

It stands for an inference server. Calls to it run side by side, token by token; a
refit pauses them where they are, and they go on with the next version's weights.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from .policy import Policy
from .task import END, Prompt, budget

__all__ = ["Attempt", "Engine", "Group"]

_TIMEOUT_SECONDS: Final = 2.4


@dataclass
class Attempt:
    """One try at one generation.

    Attributes:
        id: its id, new for each try.
        generation_index: which generation of its group.
        begun_on: the weight version it began on.
        token_seconds: how long each of its tokens takes.
        tokens: its tokens so far.
        log_chances: their log-probabilities for the weights that made them.
        cuts: refits while it ran: version replaced, version installed, tokens by then.
        reward: what its answer was found worth, once it is sealed.
    """

    id: str
    generation_index: int
    begun_on: int
    token_seconds: float
    tokens: list[int] = field(default_factory=list)
    log_chances: list[float] = field(default_factory=list)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    reward: float | None = None


@dataclass
class Group:
    """One prompt and its generations.

    Attributes:
        id: its id.
        prompt: what is asked.
        begun_on: the oldest weight version that its tokens may be of.
        attempts: the latest attempt at each generation, by generation index.
        tokens_by_version: how many tokens each version made, once it is published.
    """

    id: str
    prompt: Prompt
    begun_on: int
    attempts: dict[int, Attempt] = field(default_factory=dict)
    tokens_by_version: dict[int, int] = field(default_factory=dict)

    def rewards(self) -> list[float]:
        """The rewards of its sealed attempts, by generation index."""
        sealed = (attempt for _, attempt in sorted(self.attempts.items()))
        return [attempt.reward for attempt in sealed if attempt.reward is not None]


class Engine:
    """What generates: weights of one version, and calls that sample from them.

    Args:
        policy: the weights to begin with.
        version: their version.
        rng: where samples come from.
    """

    def __init__(self, policy: Policy, version: int, rng: np.random.Generator) -> None:
        self.version = version
        self.running: dict[str, Attempt] = {}
        self._policy = policy.copy()
        self._rng = rng
        self._open = asyncio.Event()
        self._open.set()

    async def generate(self, prompt: Prompt, attempt: Attempt) -> None:
        """Add tokens to an attempt until its answer ends, or its budget does.

        Raises:
            asyncio.TimeoutError: if that takes too long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TIMEOUT_SECONDS
        self.running[attempt.id] = attempt
        try:
            while attempt.tokens[-1:] != [END] and len(attempt.tokens) < budget(prompt):
                await asyncio.sleep(attempt.token_seconds)
                await self._open.wait()
                if loop.time() > deadline:
                    raise asyncio.TimeoutError
                token, log_chance = self._policy.sample(prompt, attempt.tokens, self._rng)
                attempt.tokens.append(token)
                attempt.log_chances.append(log_chance)
        finally:
            del self.running[attempt.id]

    async def refit(self, policy: Policy, seconds: float) -> list[tuple[str, int]]:
        """Pause every call where it is, install the next version's weights, and go on.

        Returns:
            The calls that were paused, each with its tokens so far.
        """
        self._open.clear()
        await asyncio.sleep(seconds)
        for attempt in self.running.values():
            attempt.cuts.append((self.version, self.version + 1, len(attempt.tokens)))
        self._policy = policy.copy()
        self.version += 1
        self._open.set()
        return [(attempt.id, len(attempt.tokens)) for attempt in self.running.values()]
