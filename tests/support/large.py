"""A log of as many attempts as one wants, as a busy training would write it."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator

from otel_rollout_trace.events import Event

__all__ = ["busy_log"]

_EPOCH = 1_790_000_000.0


def busy_log(attempts: int, *, in_flight: int = 512, runs: int = 2, seed: int = 1) -> list[Event]:
    """Two runs by default, the first killed: groups of eight, a step for each 128 attempts.

    Args:
        attempts: how many attempts, of all runs.
        in_flight: how many are out at once.
        runs: how many runs; each but the first restores a step some way back.
        seed: of what is left to chance.
    """
    rng = random.Random(seed)
    events: list[Event] = []
    t, step = _EPOCH, 0
    for number in range(runs):
        run = f"{number + 1:032x}"
        events.append({"t": t, "run": run, "event": "trace_opened", "pid": number + 1})
        if number:
            step = max(0, step - 5)
            events.append({"t": t, "run": run, "event": "checkpoint_restored", "step": step})
        for event in _run(rng, t, step, attempts // runs, in_flight):
            events.append({"t": event.pop("t"), "run": run, **event})
            step = event.get("step", step)
        t = events[-1]["t"] + 8 * 3600
    return events


def _run(rng: random.Random, t: float, step: int, attempts: int, in_flight: int) -> Iterator[Event]:
    out: list[tuple[float, int]] = []
    version, begun, sealed, ready = step, 0, dict[int, int](), list[str]()
    while begun < attempts:
        while len(out) < in_flight and begun < attempts:
            ids = {"group_id": f"g{step_id(begun // 8)}", "attempt_id": f"a{step_id(begun)}"}
            fields = {"prompt_id": begun // 8, "generation_index": begun % 8}
            yield {"t": t, "event": "attempt_dispatched", **ids, **fields,
                   "weight_version": version}  # fmt: skip
            heapq.heappush(out, (t + rng.lognormvariate(3, 0.7), begun))
            begun += 1
            t += 1e-3
        t, attempt = heapq.heappop(out)
        group = attempt // 8
        ids = {"group_id": f"g{step_id(group)}", "attempt_id": f"a{step_id(attempt)}"}
        name = rng.choices(("sealed", "refused", "abandoned"), (0.93, 0.03, 0.04))[0]
        reason = {} if name == "sealed" else {"reason": rng.choice(("timeout", "too_long"))}
        yield {"t": t, "event": f"attempt_{name}", **ids, "tokens": rng.randrange(50, 4_000),
               **reason}  # fmt: skip
        sealed[group] = sealed.get(group, 0) + 1
        if sealed[group] == 8:
            counts = {str(version): 9_000, str(max(0, version - 1)): 7_000}
            yield {"t": t, "event": "group_published", "group_id": f"g{step_id(group)}",
                   "tokens_by_version": counts}  # fmt: skip
            ready.append(f"g{step_id(group)}")
        if len(ready) == 16:
            step += 1
            yield {"t": t, "event": "step_trained", "step": step, "trained_version": version,
                   "group_ids": ready}  # fmt: skip
            yield {"t": t, "event": "weights_synced", "replaced_version": version,
                   "weight_version": version + 1, "duration_s": 1.5}  # fmt: skip
            version, ready = version + 1, []


def step_id(number: int) -> str:
    """An id of the length that real ones have."""
    return f"{number * 2_654_435_761 % 2**48:012x}"
