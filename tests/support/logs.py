"""Logs to try things on: those a controller would write, and those nobody should have written.

`simulations` are what an asynchronous GRPO controller writes over several runs
of one file. `hostile_logs` are any events in any order, with fields of any kind.
Both give events as a reader would, in the order of the file.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from otel_rollout_trace import RefitCuts
from otel_rollout_trace.events import SYNONYMS, VOCABULARY, Event, Vocabulary

__all__ = [
    "DATA",
    "EXAMPLE",
    "SAMPLES",
    "any_logs",
    "as_of_one_run",
    "hostile_logs",
    "json_values",
    "simulate",
    "simulations",
    "tangled_logs",
    "temporary_log",
    "write_log",
]

DATA: Final = Path(__file__).parent.parent / "data"
EXAMPLE: Final = DATA / "example.jsonl"
SAMPLES: Final = sorted(DATA.glob("*.jsonl"))

_EPOCH_MICROS: Final = 1_790_000_000_000_000


def write_log(path: Path, events: Iterable[Event]) -> Path:
    """Write events as a log file, one line each."""
    encode = msgspec.json.Encoder().encode
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return path


@contextlib.contextmanager
def temporary_log(events: Iterable[Event] = ()) -> Iterator[Path]:
    """A log file of these events, gone afterwards (for properties, which have no fixtures)."""
    with tempfile.TemporaryDirectory() as directory:
        yield write_log(Path(directory) / "rollout_trace.jsonl", events)


def as_of_one_run(events: Iterable[Event], run: str) -> list[Event]:
    """The same events, as if one run had written all of them."""
    return [event | {"run": run} for event in events]


# A controller


@dataclass
class _Try:
    group_id: str
    attempt_id: str
    prompt: int
    generation: int
    version: int
    tokens: int
    length: int


@dataclass
class _State:
    """What a checkpoint holds."""

    step: int = 0
    version: int = 0
    prompt: int = 0
    published: list[str] = field(default_factory=list)
    running: list[_Try] = field(default_factory=list)


class _Controller:
    """One run of an asynchronous controller, as far as its log shows it."""

    def __init__(self, rng: random.Random, state: _State, micros: int, *, generations: int) -> None:
        self.events: list[Event] = []
        self.rng = rng
        self.run = f"{rng.getrandbits(128):032x}"
        self.micros = micros
        self.generations = generations
        self.step, self.version, self.prompt = state.step, state.version, state.prompt
        self.published = list(state.published)
        self.cuts = RefitCuts()
        self.running: list[_Try] = []
        self.counts: dict[str, list[tuple[str, int, int]]] = {}
        self.prompts: dict[str, int] = {}
        self.saved = state

    def log(self, name: str, **fields: Any) -> None:
        # Mostly moments apart, now and then minutes, as when a step waits.
        self.micros += self.rng.choice((10, 10, 250_000, 1_500_000, 20_000_000))
        line = {"t": self.micros / 1e6, "run": self.run, "event": name, **fields}
        self.events.append(line)

    def open(self, *, restored: bool) -> None:
        self.log("trace_opened", pid=self.rng.randrange(2, 99_999))
        if not restored:
            return
        self.log(
            "checkpoint_restored",
            step=self.step,
            path=f"/ckpt/step_{self.step}",
            weight_version=self.version,
        )
        groups: dict[str, str] = {}
        for before in self.saved.running:
            if before.group_id not in groups:
                groups[before.group_id] = self.reserve(before.prompt)
            self.dispatch(groups[before.group_id], before.generation, resumed=before)

    def new_id(self, letter: str) -> str:
        return f"{letter}{self.rng.getrandbits(48):012x}"

    def reserve(self, prompt: int) -> str:
        group_id = self.new_id("g")
        self.prompts[group_id] = prompt
        self.counts[group_id] = []
        self.log(
            "group_reserved",
            group_id=group_id,
            prompt_id=prompt,
            expected_generations=self.generations,
            target_step=self.step + 1,
            weight_version=self.version,
            task_name=self.rng.choice(("math", "code")),
        )
        self.log("group_admitted", group_id=group_id, weight_version=self.version)
        return group_id

    def begin_group(self) -> None:
        group_id = self.reserve(self.prompt)
        self.prompt += 1
        for generation in range(self.generations):
            self.dispatch(group_id, generation)

    def dispatch(self, group_id: str, generation: int, *, resumed: _Try | None = None) -> None:
        attempt = _Try(
            group_id,
            self.new_id("a"),
            self.prompts[group_id],
            generation,
            self.version,
            0,
            self.rng.randrange(1, 400),
        )
        if resumed is None:
            self.log(
                "attempt_dispatched",
                group_id=group_id,
                attempt_id=attempt.attempt_id,
                prompt_id=attempt.prompt,
                generation_index=generation,
                weight_version=self.version,
            )
        else:
            attempt.tokens = resumed.tokens
            attempt.length += resumed.tokens
            self.log(
                "attempt_resumed",
                group_id=group_id,
                attempt_id=attempt.attempt_id,
                prompt_id=attempt.prompt,
                generation_index=generation,
                resumed_from=resumed.attempt_id,
                tokens=resumed.tokens,
            )
        self.running.append(attempt)

    def advance(self) -> None:
        """Generate for a while; some attempts end."""
        for attempt in list(self.running):
            attempt.tokens = min(attempt.length, attempt.tokens + self.rng.randrange(300))
            if attempt.tokens == attempt.length:
                self.running.remove(attempt)
                self.end(attempt)

    def end(self, attempt: _Try) -> None:
        ids = {"group_id": attempt.group_id, "attempt_id": attempt.attempt_id}
        luck = self.rng.random()
        if luck < 0.1:
            reason = self.rng.choice(("timeout", "worker_lost"))
            self.log("attempt_abandoned", **ids, reason=reason, tokens=attempt.tokens)
            self.dispatch(attempt.group_id, attempt.generation)
        elif luck < 0.2:
            self.log("attempt_refused", **ids, reason="too_long", tokens=attempt.tokens)
            self.dispatch(attempt.group_id, attempt.generation)
        else:
            reward = self.rng.choice((0.0, 0.5, 1.0))
            self.log("attempt_sealed", **ids, tokens=attempt.tokens, reward=reward)
            calls = self.counts[attempt.group_id]
            calls.append((attempt.attempt_id, attempt.version, attempt.tokens))
            if len(calls) == self.generations:
                self.finish_group(attempt.group_id)

    def finish_group(self, group_id: str) -> None:
        self.log("group_sealed", group_id=group_id)
        if self.rng.random() < 0.2:
            self.log("group_discarded", group_id=group_id, reason="no_signal")
            return
        counts = self.cuts.tokens_by_version(self.counts[group_id])
        self.log(
            "group_published",
            group_id=group_id,
            prompt_id=self.prompts[group_id],
            tokens_by_version={str(version): tokens for version, tokens in counts.items()},
        )
        self.published.append(group_id)

    def train(self, groups: int) -> bool:
        """Train a step, if there are groups enough."""
        if len(self.published) < groups:
            return False
        group_ids, self.published = self.published[:groups], self.published[groups:]
        self.step += 1
        self.log(
            "step_trained",
            step=self.step,
            trained_version=self.version,
            group_ids=group_ids,
            loss=round(self.rng.random(), 4),
        )
        return True

    def refit(self) -> None:
        self.log(
            "weights_synced",
            replaced_version=self.version,
            weight_version=self.version + 1,
            duration_s=round(self.rng.uniform(0.01, 3), 3),
            calls=[[attempt.attempt_id, attempt.tokens] for attempt in self.running],
        )
        calls = [(attempt.attempt_id, attempt.tokens) for attempt in self.running]
        self.cuts.record(self.version, self.version + 1, calls)
        self.version += 1

    def checkpoint(self) -> None:
        self.log(
            "checkpoint_published",
            step=self.step,
            path=f"/ckpt/step_{self.step}",
            weight_version=self.version,
        )
        copies = [_Try(**vars(attempt)) for attempt in self.running]
        self.saved = _State(self.step, self.version, self.prompt, list(self.published), copies)


def simulate(
    seed: int, *, runs: int = 2, steps: int = 4, generations: int = 2, groups: int = 2
) -> list[Event]:
    """The log of a controller that is killed ``runs - 1`` times, and restored each time.

    Args:
        seed: of everything that is left to chance.
        runs: how many runs the file holds.
        steps: how many steps each run trains before it ends, or is killed.
        generations: how many for each group.
        groups: how many for each step.
    """
    rng = random.Random(seed)
    state, micros = _State(), _EPOCH_MICROS
    events: list[Event] = []
    for number in range(runs):
        controller = _Controller(rng, state, micros, generations=generations)
        controller.open(restored=number > 0)
        trained = 0
        while trained < steps:
            while len({attempt.group_id for attempt in controller.running}) < groups:
                controller.begin_group()
            controller.advance()
            if controller.train(groups):
                trained += 1
                controller.refit()
                if rng.random() < 0.5:
                    controller.checkpoint()
            elif rng.random() < 0.1:
                controller.refit()
        events += controller.events
        state, micros = controller.saved, controller.micros + rng.choice((1_000_000, 600_000_000))
    return events


def simulations(max_runs: int = 3) -> st.SearchStrategy[list[Event]]:
    """Well-formed logs of one file, of up to so many runs."""
    return st.builds(
        simulate,
        seed=st.integers(0, 2**32),
        runs=st.integers(1, max_runs),
        steps=st.integers(1, 4),
        generations=st.integers(1, 3),
        groups=st.integers(1, 3),
    )


# Nobody


_TEXTS: Final = st.one_of(
    st.sampled_from(
        ("", "a", "timeout", "[1]", "[1", '{"a": 1}', "{", "null", '"x"', "7", "ünï\u2028", "\0")
    ),
    st.text(max_size=8),
)
_NUMBERS: Final = st.one_of(
    st.integers(-3, 40),
    st.sampled_from((-1, 0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1e300, 0.5, 3.0)),
    st.floats(allow_nan=False, allow_infinity=False),
)
_SCALARS: Final = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value of a few parts."""
    return st.recursive(
        _SCALARS,
        lambda values: st.one_of(
            st.lists(values, max_size=3), st.dictionaries(_TEXTS, values, max_size=3)
        ),
        max_leaves=4,
    )


def _mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(usual, usual, usual, json_values())


_GROUPS: Final = st.sampled_from(("g1", "g2", "g3", "1", 1, 2.5))
_ATTEMPTS: Final = st.sampled_from(("a1", "a2", "a3", "1", 1, 7))
_VERSIONS: Final = st.one_of(st.integers(-1, 6), st.sampled_from(("3", 2.0, "x")))
_COUNTS: Final = st.one_of(st.integers(0, 300), st.sampled_from((-5, 40.0, 1.5, 2**62)))
_CALLS: Final = st.one_of(
    st.lists(st.tuples(_ATTEMPTS, _COUNTS).map(list), max_size=3),
    st.dictionaries(st.sampled_from(("a1", "a2", "1")), _COUNTS, max_size=2),
)
_BY_VERSION: Final = st.dictionaries(
    st.sampled_from(("0", "1", "2", "5", "-1", " 1", "01", "v1")), _mostly(_COUNTS), max_size=3
)

_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "group_id": _mostly(_GROUPS),
    "attempt_id": _mostly(_ATTEMPTS),
    "resumed_from": _mostly(_ATTEMPTS),
    "prompt_id": _mostly(st.integers(0, 20)),
    "generation_index": _mostly(st.integers(0, 2)),
    "weight_version": _mostly(_VERSIONS),
    "replaced_version": _mostly(_VERSIONS),
    "trained_version": _mostly(_VERSIONS),
    "step": _mostly(st.integers(0, 5)),
    "tokens": _mostly(_COUNTS),
    "reason": _mostly(_TEXTS),
    "tokens_by_version": _mostly(_BY_VERSION),
    "group_ids": _mostly(st.lists(_GROUPS, max_size=3)),
    "calls": _mostly(_CALLS),
}
# Fields that no row has; some are what one of ours becomes, or nearly a header.
_EXTRAS: Final = {
    name: json_values()
    for name in ("loss", "self", "x y", "", "rl.field.loss", "rl.group.id", "t_", "prompt_id ")
}
_ODD_FIELDS: Final = st.lists(
    st.one_of(*(st.tuples(st.just(name), of) for name, of in {**_FIELDS, **_EXTRAS}.items())),
    max_size=2,
).map(dict)
_UNKNOWN: Final = ("note", "worker_joined", "rl.step", "rl.refit", "rl.group.sealed", "rl.x", "é")
_RUNS: Final = ("a" * 32, "b" * 32)

_WORDS: Final = {
    name: (
        name,
        name,
        name,
        *(word for word, row in SYNONYMS.items() if row == name),
        *(["rollout_" + name.removeprefix("attempt_")] if name.startswith("attempt_") else []),
    )
    for name in VOCABULARY
}


def _events_of_row(words: tuple[str, ...], fields: Iterable[str]) -> st.SearchStrategy[Event]:
    """Events that mostly have the fields they should have, and some that they should not."""
    own = {name: _FIELDS.get(name, json_values()) for name in fields}
    nothing: st.SearchStrategy[Event] = st.just({})

    def put_together(run: str, word: str, fields: Event, drop: set[str], more: Event) -> Event:
        kept = {name: value for name, value in fields.items() if name not in drop}
        return {"t": 0.0, "run": run, "event": word, **kept, **more}

    return st.builds(
        put_together,
        run=st.sampled_from(_RUNS),
        word=st.sampled_from(words),
        fields=st.fixed_dictionaries(own),
        drop=st.one_of(
            st.just(set()), st.just(set()), st.sets(st.sampled_from(sorted(own)), max_size=2)
        )
        if own
        else st.just(set()),
        more=st.one_of(nothing, nothing, nothing, _ODD_FIELDS),
    )


_HOSTILE_EVENTS: Final = st.one_of(
    *(_events_of_row(_WORDS[row.name], row.fields) for row in VOCABULARY.values()),
    _events_of_row(_UNKNOWN, ("group_id", "attempt_id")),
    _events_of_row(_UNKNOWN, ("group_id", "generation_index", "loss")),
    _events_of_row(_UNKNOWN, ("loss",)),
)

# How long after the event before, in microseconds, and how the time is spelled.
_DELAYS: Final = st.sampled_from(
    (0, 1, 7, 250_000, 1_000_000, 90_000_000, 301_000_000, -1, -5_000_000)
)
_SPELLINGS: Final = st.sampled_from(("float", "float", "float", "whole", "finer"))
_MANY: Final = st.sampled_from((3, 101, 129, 300))


def _timed(events: Iterable[tuple[int, str, Event]]) -> Iterator[Event]:
    micros = _EPOCH_MICROS
    for delay, spelling, event in events:
        micros += delay
        t: float = micros / 1e6
        if spelling == "whole":
            t = micros // 1_000_000
        elif spelling == "finer":
            t += 3e-7
        yield event | {"t": t}


def hostile_logs(max_events: int = 24) -> st.SearchStrategy[list[Event]]:
    """Events of any kind in any order, of two interleaved runs.

    Ids are few, so that they meet: starts and ends come twice, ends come first,
    times step back, and sometimes one event stands there hundreds of times.
    """

    def put_together(
        events: list[tuple[int, str, Event]], place: int, many: int, *, again: bool
    ) -> list[Event]:
        if events and again:
            place %= len(events)
            _, _, repeated = events[place]
            events = events[:place] + [(7, "float", repeated)] * many + events[place:]
        return list(_timed(events))

    return st.builds(
        put_together,
        events=st.lists(st.tuples(_DELAYS, _SPELLINGS, _HOSTILE_EVENTS), max_size=max_events),
        place=st.integers(0, max_events),
        many=_MANY,
        again=st.sampled_from((False, False, False, True)),
    )


_TANGLED_WORDS: Final = (
    *VOCABULARY,
    *(name for name in VOCABULARY if name.startswith("attempt_")),
    *(name for name in VOCABULARY if name.startswith("attempt_")),
    "rollout_failed",
    "note",
)


def tangled_logs(max_events: int = 40) -> st.SearchStrategy[list[Event]]:
    """Well-formed events in any order, about very few groups and attempts.

    The same ids begin, end and come back again, in one group and in another, in
    two interleaved runs; some events name neither group nor attempt.
    """

    def event(run: str, word: str, group: str, attempt: str, number: int) -> Event:
        said: Event = {
            "group_id": group,
            "attempt_id": attempt,
            "resumed_from": "a1",
            "generation_index": number % 2,
            "prompt_id": 17 + number,
            "weight_version": number,
            "replaced_version": number - 1,
            "trained_version": number,
            "step": number,
            "tokens": 10 * number,
            "reason": "timeout",
            "tokens_by_version": {"0": 5 * number, "1": 7},
            "group_ids": [group, "g1"] if group else [],
            "calls": [["a1", 3 * number], ["a2", 4]],
            "path": "/ckpt",
            "lost": number,
            "duration_s": 0.5,
            "pid": 7,
        }
        row = Vocabulary().row_of(word)
        fields = row.fields if row is not None else ("group_id", "attempt_id")
        if word.startswith(("attempt_", "rollout_")):
            fields += ("generation_index",)
        named = {name: said[name] for name in fields if said.get(name, "") != ""}
        return {"t": 0.0, "run": run, "event": word, **named}

    events = st.builds(
        event,
        run=st.sampled_from((_RUNS[0], _RUNS[0], _RUNS[1])),
        word=st.sampled_from(_TANGLED_WORDS),
        group=st.sampled_from(("g1", "g1", "g2", "")),
        attempt=st.sampled_from(("a1", "a1", "a2", "")),
        number=st.integers(0, 3),
    )
    timed = st.tuples(st.sampled_from((250_000, 1, 0, -7)), st.just("float"), events)
    return st.lists(timed, max_size=max_events).map(lambda drawn: list(_timed(drawn)))


def any_logs() -> st.SearchStrategy[list[Event]]:
    """A log of any kind."""
    return st.one_of(hostile_logs(), tangled_logs(), simulations())
