"""What a stop cost in plain words, the same on the terminal and on a page."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..words import duration
from .figures import IN_FLIGHT, NOT_TRAINED, TRAINING_UNDONE, Stop

__all__ = ["LOST_BECAUSE", "price_of"]

LOST_BECAUSE: Final[Mapping[str, str]] = MappingProxyType(
    {
        IN_FLIGHT: "in flight at the stop",
        NOT_TRAINED: "not trained by then",
        TRAINING_UNDONE: "trained, and undone by the restore",
    }
)
"""Why tokens were lost at a stop, by the ledger's reason."""


def price_of(stop: Stop) -> str:
    """What a stop cost, in one sentence."""
    done = stop.caught_up_s is not None
    begin = (
        f"Restoring from step {stop.restored_step}"
        if stop.restored_step
        else "Starting again from scratch"
    )
    if stop.caught_up_s is not None:
        wall = f"cost {duration(stop.caught_up_s)} of wall-clock time"
    else:
        wall = f"cost {duration(stop.downtime_s)} of downtime (it has not caught up yet)"
    again = "were generated again" if done else "are to be generated again"
    attempts = "finished attempt" + ("" if stop.attempts_lost == 1 else "s")
    kept = f"{stop.attempts_kept:,} ({stop.tokens_kept:,} tokens)" if stop.attempts_kept else "none"
    repeated = len(stop.steps_repeated)
    steps = "1 step was" if repeated == 1 else f"{repeated:,} steps were"
    return (
        f"{begin} {wall} and {duration(stop.generation_s_lost)} of generation: "
        f"{stop.attempts_lost:,} {attempts} ({stop.tokens_lost:,} tokens) {again}, "
        f"{kept} were kept, "
        f"{steps if done or not repeated else steps.replace('were', 'are').replace('was', 'is')} "
        f"{'trained twice' if done or not repeated else 'to be trained again'}."
    )
