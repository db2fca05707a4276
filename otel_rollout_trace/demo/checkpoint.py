"""Checkpoints: all that a run needs to go on where another one stopped.

One ``.npz`` each: the weights as an array, everything else as JSON text in it, and
no pickles. It is written beside its place and moved there, so that a checkpoint is
whole or absent, whenever the process is killed.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from .engine import Attempt, Group
from .policy import Policy
from .task import Prompt

__all__ = ["Checkpoint", "delete_all", "directory_of", "latest", "load", "save"]

_KEPT: Final = 2


@dataclass
class Checkpoint:
    """The state of a training between two steps.

    Attributes:
        step: the last step trained.
        weight_version: the version of the weights.
        policy: the weights.
        rng: where everything random comes from, but the prompts.
        next_prompt: the first prompt that is in no group.
        buffered: groups that are published and wait to be trained.
        unfinished: groups that are generated, with what there is of their attempts.
    """

    step: int
    weight_version: int
    policy: Policy
    rng: np.random.Generator
    next_prompt: int
    buffered: list[Group]
    unfinished: list[Group]

    @classmethod
    def fresh(cls, seed: int) -> Checkpoint:
        """The state before the first step."""
        return cls(0, 0, Policy(), np.random.default_rng(seed), 0, [], [])


def directory_of(log: Path) -> Path:
    """Where the checkpoints of a log's runs are."""
    return log.with_suffix(".checkpoints")


def save(directory: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, and delete old ones.

    Returns:
        Its file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    state = {
        "step": checkpoint.step,
        "weight_version": checkpoint.weight_version,
        "rng": checkpoint.rng.bit_generator.state,
        "next_prompt": checkpoint.next_prompt,
        "buffered": [asdict(group) for group in checkpoint.buffered],
        "unfinished": [asdict(group) for group in checkpoint.unfinished],
    }
    path = directory / f"step_{checkpoint.step}.npz"
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez(file, weights=checkpoint.policy.weights, state=np.array(json.dumps(state)))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    for old in _found(directory)[:-_KEPT]:
        old.unlink()
    return path


def latest(directory: Path) -> Path | None:
    """The newest checkpoint there, if there is one."""
    return next(reversed(_found(directory)), None)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint."""
    with np.load(path, allow_pickle=False) as arrays:
        policy = Policy(arrays["weights"])
        state = json.loads(str(arrays["state"]))
    rng = np.random.default_rng()
    rng.bit_generator.state = state.pop("rng")
    for kind in ("buffered", "unfinished"):
        state[kind] = [_group(fields) for fields in state[kind]]
    return Checkpoint(policy=policy, rng=rng, **state)


def delete_all(directory: Path) -> None:
    """Delete the checkpoints there: a run that starts anew must not go on from them."""
    for path in _found(directory):
        path.unlink()


def _found(directory: Path) -> list[Path]:
    return sorted(directory.glob("step_*.npz"), key=lambda path: int(path.stem[len("step_") :]))


def _group(fields: dict[str, Any]) -> Group:
    """A group from JSON, where keys are text and tuples are lists."""
    prompt = fields["prompt"]
    attempts = {int(index): Attempt(**each) for index, each in fields["attempts"].items()}
    for attempt in attempts.values():
        attempt.cuts = [(replaced, installed, n) for replaced, installed, n in attempt.cuts]
    counts = {int(version): tokens for version, tokens in fields["tokens_by_version"].items()}
    return Group(
        id=fields["id"],
        prompt=Prompt(prompt["id"], tuple(prompt["pattern"]), prompt["asked"]),
        begun_on=fields["begun_on"],
        attempts=attempts,
        tokens_by_version=counts,
    )
