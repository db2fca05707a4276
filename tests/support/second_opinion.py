"""What stops cost, worked out the slow way: every token is an object of its own.

For logs of runs one after another, in which attempts are named and start before they
end. Shares nothing with the package.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

__all__ = ["ledgers", "stops"]

_ENDS = {"attempt_sealed", "attempt_refused", "attempt_abandoned"}
_STARTS = {"attempt_dispatched", "attempt_resumed"}
_ORDER = ("trained", "waiting", "discarded", "refused", "abandoned", "lost")

_Event = dict[str, Any]


def _runs_of(events: list[_Event]) -> list[list[_Event]]:
    runs: dict[str, list[_Event]] = {}
    for event in events:
        runs.setdefault(event["run"], []).append(event)
    return list(runs.values())


def _restored(run: list[_Event]) -> int:
    for event in run:
        if event["event"] == "checkpoint_restored":
            step: int = event["step"]
            return step
    return 0


def _steps(run: list[_Event]) -> list[_Event]:
    return [event for event in run if event["event"] == "step_trained"]


def _groups(event: _Event) -> set[str]:
    return {str(group_id) for group_id in event["group_ids"]}


def _counts(events: list[_Event]) -> dict[str, int]:
    return {
        str(event["group_id"]): sum(event["tokens_by_version"].values())
        for event in events
        if event["event"] == "group_published" and "tokens_by_version" in event
    }


def stops(events: list[_Event]) -> list[dict[str, Any]]:
    """The figures of each stop, by their names."""
    runs = _runs_of(events)
    return [_stop(events, runs, place) for place in range(len(runs) - 1)]


def _stop(events: list[_Event], runs: list[list[_Event]], place: int) -> dict[str, Any]:
    a, b = runs[place], runs[place + 1]
    stopped_at, resumed_at, restored = a[-1]["t"], b[0]["t"], _restored(b)
    counts = _counts(events)
    again = [event for event in _steps(a) if event["step"] > restored]
    starts = {str(e["attempt_id"]): e for e in a if e["event"] in _STARTS}
    ends: dict[str, _Event] = {}
    for event in a:
        if event["event"] in _ENDS:
            ends.setdefault(str(event["attempt_id"]), event)
    ages = [stopped_at - start["t"] for each, start in starts.items() if each not in ends]
    safe = {g for event in _steps(a) if event["step"] <= restored for g in _groups(event)}
    safe |= {str(e["group_id"]) for e in a if e["event"] == "group_discarded"}
    resumed: dict[str, list[Any]] = defaultdict(list)
    for event in b:
        if event["event"] == "attempt_resumed":
            resumed[str(event["resumed_from"])].append(event.get("tokens"))
    trained_by_b = {g for event in _steps(b) for g in _groups(event)}
    kept = lost = tokens_kept = tokens_lost = 0
    seconds = 0.0
    for attempt_id, end in ends.items():
        group = str(starts[attempt_id]["group_id"])
        if end["event"] != "attempt_sealed" or group in safe:
            continue
        tokens = end.get("tokens") or 0
        if group in trained_by_b:
            kept, tokens_kept = kept + 1, tokens_kept + tokens
        elif attempt_id in resumed:
            brought = max(tokens if n is None else min(n, tokens) for n in resumed[attempt_id])
            kept, tokens_kept = kept + 1, tokens_kept + brought
            tokens_lost += tokens - brought
        else:
            lost, tokens_lost = lost + 1, tokens_lost + tokens
            seconds += end["t"] - starts[attempt_id]["t"]
    last = max((event["step"] for event in _steps(a)), default=_restored(a))
    caught_up = [e["t"] for run in runs[place + 1 :] for e in _steps(run) if e["step"] > last]
    return {
        "stopped_at": stopped_at,
        "resumed_at": resumed_at,
        "downtime_s": resumed_at - stopped_at,
        "restored_step": restored,
        "steps_repeated": sorted({event["step"] for event in again}),
        "tokens_trained_again": sum(counts.get(str(g), 0) for e in again for g in e["group_ids"]),
        "attempts_in_flight": len(ages),
        "in_flight_s": sum(ages),
        "attempts_kept": kept,
        "tokens_kept": tokens_kept,
        "attempts_lost": lost,
        "tokens_lost": tokens_lost,
        "generation_s_lost": seconds + sum(ages),
        "first_step_s": _steps(b)[0]["t"] - resumed_at if _steps(b) else None,
        "caught_up_s": caught_up[0] - stopped_at if caught_up else None,
    }


class _Attempt:
    """One attempt, and which tokens it had: objects that a resumed one has too."""

    def __init__(self, run: int, start: _Event) -> None:
        self.run = run
        self.group = str(start["group_id"])
        self.origin = str(start["resumed_from"]) if "resumed_from" in start else None
        self.brought = start.get("tokens") if self.origin is not None else 0
        self.end: _Event | None = None
        self.refit: int | None = None
        self.next_step = 0
        self.tokens: list[tuple[int, str]] = []
        self.new: list[tuple[int, str]] = []


def ledgers(events: list[_Event]) -> dict[tuple[int, int], Counter[str]]:
    """Tokens by fate, and more, by (place of the run, step that it worked towards)."""
    runs = _runs_of(events)
    attempts: dict[str, _Attempt] = {}
    for place, run in enumerate(runs):
        numbers = [event["step"] for event in _steps(run)]
        numbers.append((numbers[-1] if numbers else _restored(run)) + 1)
        done = 0
        for event in run:
            name = event["event"]
            if name in _STARTS:
                attempts[str(event["attempt_id"])] = _Attempt(place, event)
            elif name in _ENDS and attempts[str(event["attempt_id"])].end is None:
                attempt = attempts[str(event["attempt_id"])]
                attempt.end, attempt.next_step = event, numbers[done]
            elif name == "weights_synced":
                for call, tokens in event["calls"]:
                    if attempts[str(call)].end is None:
                        attempts[str(call)].refit = tokens
            elif name == "step_trained":
                done += 1
        for attempt in attempts.values():
            if attempt.run == place and attempt.end is None:
                attempt.next_step = numbers[-1]
    heirs: dict[str, list[_Attempt]] = defaultdict(list)
    for attempt in attempts.values():
        if attempt.origin in attempts:
            heirs[attempt.origin].append(attempt)
    holders: dict[tuple[int, str], list[_Attempt]] = defaultdict(list)
    uncounted: set[str] = set()
    for attempt_id, attempt in attempts.items():
        known = attempt.end.get("tokens") if attempt.end is not None else attempt.refit
        origin = attempts.get(attempt.origin or "")
        if known is None or attempt.brought is None:
            uncounted.add(attempt_id)
        if attempt.end is None or known is None:
            known = max(
                [
                    known or 0,
                    attempt.brought or 0,
                    *(heir.brought or 0 for heir in heirs[attempt_id]),
                ]
            )
        if attempt.brought is None:
            attempt.tokens = list(origin.tokens) if origin is not None else []
            # What it has beyond that cannot be told.
        else:
            brought = min(attempt.brought, known)
            from_there = origin.tokens[:brought] if origin is not None else []
            attempt.new = [(number, attempt_id) for number in range(brought, known)]
            attempt.tokens = from_there + attempt.new
        for token in attempt.tokens:
            holders[token].append(attempt)
    fate_of = _Fates(runs)
    found: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for attempt_id, attempt in attempts.items():
        sums = found[attempt.run, attempt.next_step]
        if attempt_id in uncounted:
            sums["uncounted"] += 1
        for token in attempt.new:
            fates = [fate_of(each) for each in holders[token]]
            best = min(fates, key=_ORDER.index)
            sums[best] += 1
            if best == "trained":
                sums["repeated"] += sum(fate_of.trainings(each) for each in holders[token]) - 1
    return found


class _Fates:
    def __init__(self, runs: list[list[_Event]]) -> None:
        self.last = len(runs) - 1
        self.trained: dict[str, list[bool]] = defaultdict(list)
        self.discarded = {
            str(e["group_id"]) for run in runs for e in run if e["event"] == "group_discarded"
        }
        for place, run in enumerate(runs):
            later = [_restored(each) for each in runs[place + 1 :]]
            for event in _steps(run):
                for group in _groups(event):
                    self.trained[group].append(all(event["step"] <= r for r in later))

    def __call__(self, attempt: _Attempt) -> str:
        if attempt.end is not None and attempt.end["event"] != "attempt_sealed":
            return str(attempt.end["event"]).removeprefix("attempt_")
        if attempt.end is not None and any(self.trained[attempt.group]):
            return "trained"
        if attempt.group in self.discarded:
            return "discarded"
        return "waiting" if attempt.run == self.last else "lost"

    def trainings(self, attempt: _Attempt) -> int:
        """How often its tokens were trained, undone steps included."""
        if attempt.end is None or attempt.end["event"] != "attempt_sealed":
            return 0
        return len(self.trained[attempt.group])
