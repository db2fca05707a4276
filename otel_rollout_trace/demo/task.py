"""The task: go on with a pattern of letters, then stop.

A prompt shows a pattern and asks for a number of letters: for ``c a b`` and 5 the
answer is ``c a b c a END``. Each letter is checked against the one a period before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["END", "LETTERS", "TASK_NAME", "TOKENS", "Prompt", "budget", "draw_prompt", "reward_of"]

TASK_NAME: Final = "repeat_pattern"
LETTERS: Final = 8
END: Final = LETTERS
"""The token that ends an answer, after those of the letters."""
TOKENS: Final = LETTERS + 1

_PERIODS: Final = (2, 5)
_ASKED: Final = (1, 40)


@dataclass(frozen=True)
class Prompt:
    """A pattern to go on with.

    Attributes:
        id: its place in the dataset.
        pattern: the letters of one period.
        asked: how many letters the answer should have.
    """

    id: int
    pattern: tuple[int, ...]
    asked: int


def draw_prompt(prompt_id: int, seed: int) -> Prompt:
    """A prompt of the dataset: the same for the same id and seed. Few answers are long."""
    rng = np.random.default_rng((seed, prompt_id))
    period = int(rng.integers(_PERIODS[0], _PERIODS[1] + 1))
    pattern = rng.integers(0, LETTERS, period)
    asked = np.exp(rng.uniform(*np.log(_ASKED)))
    return Prompt(prompt_id, tuple(int(letter) for letter in pattern), round(float(asked)))


def budget(prompt: Prompt) -> int:
    """How many tokens an answer may have; one that has not ended by then is refused."""
    return 2 * prompt.asked + 12


def reward_of(prompt: Prompt, answer: list[int]) -> float:
    """How good an answer is, from 0 to 1.

    The share of letters that are the same as a period before; of those asked for,
    or of all if there are more, so that an answer too short or too long is worse.
    """
    letters = [token for token in answer if token != END]
    text = [*prompt.pattern, *letters]
    right = sum(text[place] == letter for place, letter in enumerate(letters[: prompt.asked]))
    return right / max(prompt.asked, len(letters))
