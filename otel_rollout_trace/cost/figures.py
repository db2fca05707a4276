"""What the report says: stops, ledgers, steps and runs, as plain values.

Names are those of the JSON that ``cost --json`` prints. Times are seconds since the
Unix epoch, durations seconds, ages weight updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

__all__ = ["FATES", "Cost", "Ledger", "RunCost", "StepAge", "Stop", "Waste"]

FATES: Final = ("trained", "waiting", "refused", "abandoned", "discarded", "lost")
"""What becomes of a token, each of exactly one of these.

``waiting`` is sealed or published and not trained yet, or still being generated where
the log ends. ``lost`` is lost at a stop: no later run had it, or the step that trained
it was undone by restoring an earlier one.
"""

#: Why tokens were lost at a stop, as the ledger's ``reason``.
IN_FLIGHT: Final = "in_flight"
NOT_TRAINED: Final = "not_trained"
TRAINING_UNDONE: Final = "training_undone"


@dataclass(slots=True)
class Stop:
    """The end of a run that a later run of the file follows, and what it cost.

    Attributes:
        run, next_run: ids of the two runs.
        stopped_at: the first run's last event.
        resumed_at: the next run's first event.
        downtime_s: from the one to the other.
        restored_step: the step the next run restored; 0 for a start from scratch.
        steps_repeated: the steps above ``restored_step`` that the run had trained.
        tokens_trained_again: the counted tokens of those steps.
        attempts_in_flight: attempts of the run without an end.
        in_flight_s: the sum of their ages at the stop.
        attempts_kept, tokens_kept: sealed, not safe, and the next run has them.
        attempts_lost, tokens_lost: sealed, not safe, and the next run has them not.
            Where it resumed an attempt at fewer tokens than had been sealed, the
            attempt is kept and the rest of its tokens is lost.
        generation_s_lost: durations of the lost attempts, plus ``in_flight_s``.
        first_step_s: from ``resumed_at`` to the next run's first trained step; None
            where it trained none.
        caught_up_s: from ``stopped_at`` until a later run had trained a step above the
            run's last one; None where none has yet.
    """

    run: str
    next_run: str
    stopped_at: float
    resumed_at: float
    downtime_s: float
    restored_step: int
    steps_repeated: list[int] = field(default_factory=list)
    tokens_trained_again: int = 0
    attempts_in_flight: int = 0
    in_flight_s: float = 0.0
    attempts_kept: int = 0
    tokens_kept: int = 0
    attempts_lost: int = 0
    tokens_lost: int = 0
    generation_s_lost: float = 0.0
    first_step_s: float | None = None
    caught_up_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures by name; which runs they are of is in the report's ``runs``."""
        figures = asdict(self)
        del figures["run"], figures["next_run"]
        return figures


@dataclass(slots=True)
class Waste:
    """Tokens that were generated and will not be trained, for one reason.

    Attributes:
        fate: refused, abandoned, discarded or lost.
        reason: as the log gives it (empty where it gives none); of what was lost at a
            stop ``in_flight``, ``not_trained`` or ``training_undone``.
        attempts: how many attempts.
        uncounted: how many of them had no count of tokens.
        tokens: tokens of the others.
    """

    fate: str
    reason: str
    attempts: int = 0
    uncounted: int = 0
    tokens: int = 0


def _no_fate() -> dict[str, int]:
    return dict.fromkeys(FATES, 0)


@dataclass(slots=True)
class Ledger:
    """Every token that the log says was generated, once, with what became of it.

    Attributes:
        tokens: tokens by fate; they add up to ``total``.
        attempts: attempts by fate.
        uncounted: those of them that the log gives no (or not the whole) count of.
        repeated: tokens among the trained that were trained again, for each further time.
        resumed: tokens that resumed attempts brought along: generated, and counted,
            where the attempt they continue was. ``total + resumed`` is the sum of what
            the attempts' events say.
        waste: what was refused, abandoned, discarded and lost, by reason, most first.
    """

    tokens: dict[str, int] = field(default_factory=_no_fate)
    attempts: dict[str, int] = field(default_factory=_no_fate)
    uncounted: dict[str, int] = field(default_factory=_no_fate)
    repeated: int = 0
    resumed: int = 0
    waste: list[Waste] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All tokens generated."""
        return sum(self.tokens.values())

    @property
    def uncounted_attempts(self) -> int:
        """How many attempts could not be counted, or not wholly."""
        return sum(self.uncounted.values())

    def percent(self) -> dict[str, float]:
        """Each fate's part of the total, in tenths of a percent that add up to 100.

        Rounded by largest remainder; all 0 where nothing is counted.
        """
        total = self.total
        if not total:
            return dict.fromkeys(self.tokens, 0.0)
        tenths = {fate: 1000 * tokens // total for fate, tokens in self.tokens.items()}
        by_rest = sorted(tenths, key=lambda fate: 1000 * self.tokens[fate] % total, reverse=True)
        for fate in by_rest[: 1000 - sum(tenths.values())]:
            tenths[fate] += 1
        return {fate: tenth / 10 for fate, tenth in tenths.items()}

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "total": self.total,
            **self.tokens,
            "percent": self.percent(),
            "repeated": self.repeated,
            "resumed": self.resumed,
            "attempts": dict(self.attempts),
            "uncounted_attempts": self.uncounted_attempts,
            "uncounted": dict(self.uncounted),
            "waste": [asdict(waste) for waste in self.waste],
        }


@dataclass(slots=True)
class StepAge:
    """A trained step, and how stale what it trained on was.

    Attributes:
        run: id of the run that trained it.
        step: its number; None where the log gives none.
        t: when.
        trained_version: the weight version that it updates.
        tokens: counted tokens of its groups.
        batch_age: their mean age in weight updates; None where none is counted.
        batch_age_generation: the part gained while they were generated.
        batch_age_queue: the part gained while they waited in the replay buffer.
        coverage: the part of its groups that has counts; None where it names none.
        undone: whether a later run restored an earlier step, so that this was for nothing.
    """

    run: str
    step: int | None
    t: float
    trained_version: int | None
    tokens: int
    batch_age: float | None
    batch_age_generation: float | None
    batch_age_queue: float | None
    coverage: float | None
    undone: bool = False


@dataclass(slots=True)
class RunCost:
    """One run of the log.

    Attributes:
        run: its id.
        started_at, ended_at: its first and its last event.
        restored_step: the step it restored; None where it began from scratch.
        followed_by: id of the run that came back for it; None where none has.
        first_step, last_step: the lowest and the highest step it trained.
        ledger: of the tokens that it generated, whichever run trained them.
    """

    run: str
    started_at: float
    ended_at: float
    restored_step: int | None = None
    followed_by: str | None = None
    first_step: int | None = None
    last_step: int | None = None
    ledger: Ledger = field(default_factory=Ledger)


class Cell(NamedTuple):
    """What one run generated while it worked towards one step, of one fate.

    Attributes:
        run: id of the run.
        step: the step.
        fate: one of `FATES`.
        reason: why, where it is waste.
        attempts, uncounted, tokens, repeated, resumed: see `Ledger`.
    """

    run: str
    step: int
    fate: str
    reason: str
    attempts: int
    uncounted: int
    tokens: int
    repeated: int
    resumed: int


def ledger_of(cells: Iterable[Cell]) -> Ledger:
    """Cells added up."""
    ledger = Ledger()
    wastes: dict[tuple[str, str], Waste] = {}
    for cell in cells:
        fate = cell.fate
        ledger.tokens[fate] += cell.tokens
        ledger.attempts[fate] += cell.attempts
        ledger.uncounted[fate] += cell.uncounted
        ledger.repeated += cell.repeated
        ledger.resumed += cell.resumed
        if fate in ("trained", "waiting"):
            continue
        key = (fate, cell.reason)
        waste = wastes.get(key)
        if waste is None:
            waste = wastes[key] = Waste(fate, cell.reason)
        waste.attempts += cell.attempts
        waste.uncounted += cell.uncounted
        waste.tokens += cell.tokens
    ledger.waste = sorted(
        (waste for waste in wastes.values() if waste.attempts or waste.tokens),
        key=lambda waste: (-waste.tokens, -waste.attempts, waste.fate, waste.reason),
    )
    return ledger


@dataclass(slots=True)
class Cost:
    """What the stops of a log cost, and what became of all its tokens.

    Attributes:
        stops: its stops, in the order of the runs that ended.
        ledger: of the whole file.
        runs: its runs, in the order of their first events.
        steps: every training of a step, in the order of the log; a step that was
            trained again stands there again.
    """

    stops: list[Stop]
    ledger: Ledger
    runs: list[RunCost]
    steps: list[StepAge]
    _cells: list[Cell] = field(repr=False, default_factory=list)

    def ledger_of(
        self, *, run: str | None = None, first: int | None = None, last: int | None = None
    ) -> Ledger:
        """The ledger of one run, of a range of steps, or of both.

        A token belongs to the run that generated it and to the step which that run
        trained next after the token's attempt ended (after its last one: the step
        that would have come next). So the ledgers of disjoint ranges, or of all runs,
        add up to the file's.

        Args:
            run: the run's id; None for all.
            first: the range's first step; None for no beginning.
            last: its last step, included; None for no end.
        """
        return ledger_of(
            cell
            for cell in self._cells
            if (run is None or cell.run == run)
            and (first is None or cell.step >= first)
            and (last is None or cell.step <= last)
        )

    def ages(self) -> Mapping[int, StepAge]:
        """Each step's last training that has an age, by step in ascending order."""
        latest = {step.step: step for step in self.steps if step.batch_age is not None}
        return {number: latest[number] for number in sorted(n for n in latest if n is not None)}

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "stops": [stop.to_dict() for stop in self.stops],
            "ledger": self.ledger.to_dict(),
            "runs": [{**asdict(run), "ledger": run.ledger.to_dict()} for run in self.runs],
            "steps": [asdict(step) for step in self.steps],
        }
