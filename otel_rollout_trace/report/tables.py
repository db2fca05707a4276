"""Tables of the page: each stop's figures, what was wasted, and the prompts that cost most."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from ..cost import Ledger, Stop
from ..cost.words import LOST_BECAUSE
from ..words import duration, many, moment
from .collecting import Collector, Prompt
from .style import Table

__all__ = ["most_retried", "slowest", "stop_table", "waste_table"]

_PROMPTS: Final = 10
_REASONS: Final = 20
_NEVER: Final = "not in this log"


def stop_table(stop: Stop) -> Table:
    """One stop's figures; a name, the figure, and what it means."""
    steps = ", ".join(map(str, stop.steps_repeated[:12]))
    steps += ", …" if len(stop.steps_repeated) > 12 else ""
    first, caught = stop.first_step_s, stop.caught_up_s
    rows: list[Sequence[str]] = [
        ("Stopped", moment(stop.stopped_at), f"last event of run {stop.run[:8]}"),
        ("Resumed", moment(stop.resumed_at), f"first event of run {stop.next_run[:8]}"),
        ("Downtime", duration(stop.downtime_s), ""),
        ("Restored step", str(stop.restored_step) if stop.restored_step else "none",
         "" if stop.restored_step else "a start from scratch"),
        ("Steps repeated", f"{len(stop.steps_repeated):,}", steps),
        ("Tokens trained again", f"{stop.tokens_trained_again:,}", "in those steps"),
        ("In flight", many(stop.attempts_in_flight, "attempt"),
         f"{duration(stop.in_flight_s)} of generation when it stopped"),
        ("Kept", many(stop.attempts_kept, "attempt"),
         f"{stop.tokens_kept:,} tokens: finished, and the next run had them"),
        ("Lost", many(stop.attempts_lost, "attempt"),
         f"{stop.tokens_lost:,} tokens: finished, and the next run did not have them"),
        ("Generation lost", duration(stop.generation_s_lost),
         "time of the lost attempts, and of those in flight"),
        ("First step after", _NEVER if first is None else duration(first), "from resuming"),
        ("Caught up after", _NEVER if caught is None else duration(caught),
         "from stopping until a new step was trained: the price in wall-clock time"),
    ]  # fmt: skip
    return Table(("figure", "value", ""), rows, texts=3)


def waste_table(ledger: Ledger) -> Table:
    """What was generated for nothing, by reason."""
    rows: list[Sequence[str]] = []
    for waste in ledger.waste[:_REASONS]:
        reason = waste.reason or "no reason given"
        if waste.fate == "lost":
            reason = LOST_BECAUSE.get(waste.reason, reason)
        rows.append((waste.fate, reason, f"{waste.tokens:,}", f"{waste.attempts:,}",
                     f"{waste.uncounted:,}"))  # fmt: skip
    further = len(ledger.waste) - _REASONS
    note = f"And {many(further, 'further reason')}." if further > 0 else ""
    head = ("fate", "reason", "tokens", "attempts", "not counted")
    return Table(head, rows, texts=2, note=note)


def slowest(found: Collector) -> Table:
    """The prompts with the longest attempts."""
    best = heapq.nlargest(_PROMPTS, found.prompts.items(), key=lambda item: item[1].longest)
    rows: list[Sequence[str]] = [
        (name, prompt.longest_id, prompt.longest_outcome, duration(prompt.longest),
         f"{prompt.attempts:,}", duration(prompt.seconds), f"{prompt.tokens:,}")
        for name, prompt in best
        if prompt.longest > 0
    ]  # fmt: skip
    head = ("prompt", "longest attempt", "it was", "took", "attempts", "all took", "tokens")
    return Table(head, rows, texts=3, note=_left_out(found))


def most_retried(found: Collector) -> Table:
    """The prompts whose attempts were refused or abandoned most often."""

    def rank(item: tuple[str, Prompt]) -> tuple[int, float]:
        return item[1].failed, item[1].seconds

    best = heapq.nlargest(_PROMPTS, found.prompts.items(), key=rank)
    rows: list[Sequence[str]] = [
        (name, f"{prompt.failed:,}", f"{prompt.interrupted:,}", f"{prompt.attempts:,}",
         duration(prompt.seconds), f"{prompt.tokens:,}")
        for name, prompt in best
        if prompt.failed
    ]  # fmt: skip
    head = ("prompt", "refused or abandoned", "interrupted", "attempts", "all took", "tokens")
    return Table(head, rows, texts=1, note=_left_out(found))


def _left_out(found: Collector) -> str:
    if not found.prompts_left_out:
        return ""
    return (
        f"Only the first {len(found.prompts):,} prompts of the log were followed; "
        f"{many(found.prompts_left_out, 'attempt')} at others are not counted here."
    )
