"""Batch age: how many weight updates lie between generating a token and training on it.

A step's batch age is the token-weighted mean over its groups ``g`` and weight
versions ``v``::

    age(step) = sum(tokens[g][v] * (trained_version - v)) / sum(tokens[g][v])

Rolled out and trained without a refit in between is age 0. A step without
counted tokens has no age, which is not 0. Negative ages are shown as they are:
they mean a bug somewhere.

The names, arguments and results are those of NeMo RL's
``nemo_rl.algorithms.rollout_checkpointing.trace``, so that code written for it
runs on this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from .events import Vocabulary, id_of, version_counts_of, version_of

__all__ = [
    "BATCH_AGE_FIELDS",
    "BATCH_AGE_TOKENS_METRIC",
    "BATCH_AGE_VERSION_SUM_METRIC",
    "RefitCuts",
    "batch_age_by_step",
    "batch_age_group_metrics",
    "pop_batch_age",
    "tokens_by_version",
]

BATCH_AGE_TOKENS_METRIC: Final = "batch_age/trained_tokens"
"""A group's trained tokens, a sum that can be added up over groups."""

BATCH_AGE_VERSION_SUM_METRIC: Final = "batch_age/token_version_sum"
"""A group's tokens, each times the weight version that made it."""

BATCH_AGE_FIELDS: Final = ("tokens_by_version", "group_ids")
"""The fields that batch age is computed from: a line without them adds nothing to it."""

_DEFAULT_VOCABULARY: Final = Vocabulary()


class RefitCuts:
    """Where refits cut through generation calls that were running.

    Generation goes on across a refit: the tokens before the cut were made by
    the version the call was on, those after it by the version installed there.

    Example:
        >>> cuts = RefitCuts()
        >>> cuts.record(0, 1, [("call-1", 40)])
        >>> cuts.tokens_by_version([("call-1", 0, 100)])
        {0: 40, 1: 60}
    """

    def __init__(self) -> None:
        # call id -> [(version replaced, version installed, tokens by then), ...]
        self._cuts: dict[Any, list[tuple[int, int, int]]] = {}

    def __len__(self) -> int:
        """How many calls have cuts that were not counted yet."""
        return len(self._cuts)

    def record(
        self,
        replaced_version: int,
        new_version: int,
        calls: Iterable[Sequence[Any]] | Mapping[Any, int],
    ) -> None:
        """Note one refit.

        Args:
            replaced_version: the weight version generation ran on until then.
            new_version: the version it runs on from then.
            calls: ``(call id, tokens generated so far)`` for each call it paused.
        """
        pairs = calls.items() if isinstance(calls, Mapping) else calls
        for call_id, tokens in pairs:
            self._cuts.setdefault(call_id, []).append((replaced_version, new_version, tokens))

    def forget_before(self, oldest_trainable_version: int) -> None:
        """Drop the calls whose first refit replaced an older version than this.

        Their group began on weights too old to be trained, so nobody will ask.
        """
        self._cuts = {
            call_id: cuts
            for call_id, cuts in self._cuts.items()
            if cuts[0][0] >= oldest_trainable_version
        }

    def tokens_by_version(self, calls: Iterable[Sequence[Any]]) -> dict[int, int]:
        """Count tokens by the weight version that made them, and forget the calls.

        Args:
            calls: ``(call id, version it began on, tokens)`` for each call.

        Returns:
            ``{weight version: tokens}`` in order of version, without zeros. A cut
            past a call's length is clipped to it.
        """
        counts: dict[int, int] = {}
        for call_id, version, total in calls:
            done = 0
            for _, new_version, tokens in self._cuts.pop(call_id, ()):
                cut = min(max(tokens, done), total)
                counts[version] = counts.get(version, 0) + cut - done
                done, version = cut, new_version
            counts[version] = counts.get(version, 0) + total - done
        return {version: counts[version] for version in sorted(counts) if counts[version]}


def tokens_by_version(
    events: Iterable[Mapping[str, Any]], *, vocabulary: Vocabulary = _DEFAULT_VOCABULARY
) -> dict[str, dict[int, int]]:
    """The counts of each published group: ``{group id: {weight version: tokens}}``.

    Where a group is published more than once the last counts stand.
    """
    counts: dict[str, dict[int, int]] = {}
    for event in events:
        row = vocabulary.row_of(event["event"])
        if row is not None and row.name == "group_published":
            group_id = id_of(event.get("group_id"))
            if group_id is not None and "tokens_by_version" in event:
                counts[group_id] = version_counts_of(event["tokens_by_version"])
    return counts


def batch_age_group_metrics(counts: Mapping[Any, int]) -> dict[str, int]:
    """One group's counts as the two sums from which a step's age is computed.

    Args:
        counts: ``{weight version: tokens}``; versions may be text, as in JSON.

    Returns:
        The sums by `BATCH_AGE_TOKENS_METRIC` and `BATCH_AGE_VERSION_SUM_METRIC`,
        or ``{}`` where nothing is counted.
    """
    if not counts:
        return {}
    tokens, version_sum = sums_of({int(version): number for version, number in counts.items()})
    return {BATCH_AGE_TOKENS_METRIC: tokens, BATCH_AGE_VERSION_SUM_METRIC: version_sum}


def sums_of(counts: Mapping[int, int]) -> tuple[int, int]:
    """A group's tokens, and its tokens each times the version that made it."""
    tokens = version_sum = 0
    for version, number in counts.items():
        tokens += number
        version_sum += version * number
    return tokens, version_sum


def _sums_of_field(value: Any) -> tuple[int, int]:
    """`sums_of` for ``tokens_by_version`` as a line has it; most of the work of a long log."""
    tokens = version_sum = 0
    if type(value) is dict:
        try:
            for key, number in value.items():
                if type(number) is not int or number < 0 or len(key) > 18:
                    break
                tokens += number
                version_sum += int(key) * number
            else:
                return tokens, version_sum
        except ValueError:
            pass
    return sums_of(version_counts_of(value))


def pop_batch_age(
    per_group_metrics: MutableMapping[str, Any] | Sequence[MutableMapping[str, Any]],
    trained_version: int,
) -> float | None:
    """Take the two sums out of the groups' metrics and give the step's batch age.

    Args:
        per_group_metrics: metrics by name, each a number or one number a group
            (``{name: [value, ...]}``), or a sequence of such mappings. Both
            sums are removed from it.
        trained_version: the weight version that the step updates.

    Returns:
        The age in weight updates, or None where no token is counted.
    """
    mappings = (
        [per_group_metrics] if isinstance(per_group_metrics, MutableMapping) else per_group_metrics
    )
    tokens = version_sum = 0
    for metrics in mappings:
        tokens += _total(metrics.pop(BATCH_AGE_TOKENS_METRIC, 0))
        version_sum += _total(metrics.pop(BATCH_AGE_VERSION_SUM_METRIC, 0))
    return age_of(tokens, version_sum, trained_version)


def _total(value: Any) -> Any:
    if isinstance(value, Iterable):
        return sum(_total(item) for item in value if item is not None)
    return value or 0


def age_of(tokens: int, version_sum: int, trained_version: int) -> float | None:
    """The batch age from the two sums; None where no token is counted.

    The sums are whole numbers, so that one division at the end is all the
    rounding there is, and every view of a step shows the same figure.
    """
    if not tokens:
        return None
    return (trained_version * tokens - version_sum) / tokens


def batch_age_by_step(
    events: Iterable[Mapping[str, Any]], *, vocabulary: Vocabulary = _DEFAULT_VOCABULARY
) -> dict[int, float]:
    """Every trained step's batch age, by step in ascending order.

    A step that was trained again after a resume keeps the later value; its
    groups' counts may be in an earlier run's lines.

    Args:
        events: the events of one log, in the order written, read once.
        vocabulary: which words mean which row.

    Returns:
        ``{step: age in weight updates}``; a step without counted tokens is absent.
    """
    # Two sums a group instead of its counts: a log of weeks fits into memory.
    sums: dict[str, tuple[int, int]] = {}
    steps: list[tuple[int, int, list[Any]]] = []
    find = vocabulary.find
    for event in events:
        row = find(event["event"])
        if row is None:
            continue
        if row.name == "group_published":
            group_id = id_of(event.get("group_id"))
            if group_id is not None and "tokens_by_version" in event:
                sums[group_id] = _sums_of_field(event["tokens_by_version"])
        elif row.name == "step_trained":
            step = version_of(event.get("step"))
            trained_version = version_of(event.get("trained_version"))
            group_ids = event.get("group_ids")
            if step is not None and trained_version is not None and isinstance(group_ids, list):
                steps.append((step, trained_version, group_ids))
    # Sums are looked up at the end: like the reference, a step finds its
    # groups' counts wherever in the file they stand.
    ages: dict[int, float] = {}
    for step, trained_version, group_ids in steps:
        tokens = version_sum = 0
        for group_id in group_ids:
            group_sums = sums.get(group_id if type(group_id) is str else id_of(group_id) or "")
            if group_sums is not None:
                tokens += group_sums[0]
                version_sum += group_sums[1]
        age = age_of(tokens, version_sum, trained_version)
        if age is not None:
            ages[step] = age
    return dict(sorted(ages.items()))
