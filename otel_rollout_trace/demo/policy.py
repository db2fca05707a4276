"""The policy, and how it learns: GRPO with the gradient written out.

Its logits are a sum of three rows: one for the letter a period before, one for the
letter just before, one for whether the answer is long enough. So the best weights
are easy to say, and have to be found by trial and error all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .task import LETTERS, TOKENS, Prompt

__all__ = ["Policy", "Trajectory", "advantages_of", "features_of", "grpo_update"]

Floats: TypeAlias = NDArray[np.float64]
Trajectory: TypeAlias = tuple[Prompt, Sequence[int], Sequence[float], float]
"""A prompt, an answer's tokens, their log-probabilities when sampled, and its advantage."""

# The rows of the weights: a period before, just before, and long enough or not.
_ROWS: Final = 2 * LETTERS + 2

_LEARNING_RATE: Final = 12.0
_PASSES: Final = 4  # over each batch
_CLIP: Final = 0.2
# This share of all tokens is drawn blindly. Groups whose answers are all alike teach
# nothing, so a policy that became certain, rightly or wrongly, would stay as it is.
_EXPLORED: Final = 0.02


class Policy:
    """A softmax over the tokens, and now and then any of them.

    Attributes:
        weights: logits by feature (row) and token (column).
    """

    def __init__(self, weights: Floats | None = None) -> None:
        self.weights: Floats = np.zeros((_ROWS, TOKENS)) if weights is None else weights

    def copy(self) -> Policy:
        """One that does not change when this one learns."""
        return Policy(self.weights.copy())

    def sample(
        self, prompt: Prompt, answer: Sequence[int], rng: np.random.Generator
    ) -> tuple[int, float]:
        """The next token of an answer, and its log-probability."""
        rows = features_of(prompt, answer)
        chances = _explored(_softmax(self.weights[rows].sum(axis=0)))
        token = int(np.searchsorted(chances.cumsum(), rng.random()))
        token = min(token, TOKENS - 1)  # the sum may end a little below 1
        return token, float(np.log(chances[token]))


def features_of(prompt: Prompt, answer: Sequence[int]) -> list[int]:
    """The rows of the weights that say what comes after an answer's beginning."""
    place, period = len(answer), len(prompt.pattern)
    period_before = answer[place - period] if place >= period else prompt.pattern[place]
    just_before = answer[-1] if answer else prompt.pattern[-1]
    return [period_before, LETTERS + just_before, 2 * LETTERS + (place >= prompt.asked)]


def advantages_of(rewards: Sequence[float]) -> list[float]:
    """How much better each answer is than the others of its group, in standard deviations.

    All 0 where all are alike: such a group teaches nothing.
    """
    values = np.asarray(rewards)
    return [float(value) for value in (values - values.mean()) / (values.std() + 1e-6)]


def grpo_update(policy: Policy, batch: Sequence[Trajectory]) -> float:
    """One step of GRPO on a batch, in place.

    Maximizes the mean over tokens of ``min(ratio * A, clip(ratio, 1 - c, 1 + c) * A)``
    with each answer's advantage ``A``. A token's ratio is how likely it is now, to how
    likely it was for the weights that made it, whichever version they were: this is
    what makes training on tokens of older versions right.

    Returns:
        The loss of the first pass over the batch: minus that mean.
    """
    rows = np.array(
        [
            features_of(prompt, tokens[:place])
            for prompt, tokens, _, _ in batch
            for place in range(len(tokens))
        ]
    )
    chosen = np.concatenate([tokens for _, tokens, _, _ in batch])
    log_chance_then = np.concatenate([log_chances for _, _, log_chances, _ in batch])
    advantage = np.concatenate([np.full(len(tokens), a) for _, tokens, _, a in batch])
    every = np.arange(len(chosen))
    losses = []
    for _ in range(_PASSES):
        softmax = _softmax(policy.weights[rows].sum(axis=1))
        chance = _explored(softmax)[every, chosen]
        ratio = chance / np.exp(log_chance_then)
        gained = np.minimum(ratio * advantage, np.clip(ratio, 1 - _CLIP, 1 + _CLIP) * advantage)
        losses.append(-float(gained.mean()))
        # Where the clipped term is the smaller one it is constant, and has no gradient.
        clipped = ((advantage > 0) & (ratio > 1 + _CLIP)) | ((advantage < 0) & (ratio < 1 - _CLIP))
        weight = np.where(clipped, 0.0, ratio * advantage) / len(chosen)
        # How much of the token's chance is the softmax's; what is drawn blindly has no gradient.
        weight *= (1 - _EXPLORED) * softmax[every, chosen] / chance
        # The gradient of a softmax's log-probability: one for the token, less all chances.
        gradient = -softmax * weight[:, None]
        gradient[every, chosen] += weight
        for feature in rows.T:
            np.add.at(policy.weights, feature, _LEARNING_RATE * gradient)
    return losses[0]


def _softmax(logits: Floats) -> Floats:
    raised: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
    chances: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return chances


def _explored(softmax: Floats) -> Floats:
    return (1 - _EXPLORED) * softmax + _EXPLORED / TOKENS
