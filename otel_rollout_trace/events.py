"""The vocabulary: what the lines of a rollout log say, and one record of it.

An event is a plain ``dict`` as the log spells it: ``t`` (seconds since the Unix
epoch), ``run`` (which process wrote it), ``event`` (what happened) and that
event's own fields beside them. This module knows names and fields; it knows
nothing of files or of OpenTelemetry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "SYNONYMS",
    "VOCABULARY",
    "Event",
    "EventRow",
    "NotAnEvent",
    "Vocabulary",
    "check_event",
    "clamped",
    "count_of",
    "id_of",
    "micros_of",
    "seconds_of",
    "text_of",
    "version_counts_of",
    "version_of",
]

Event: TypeAlias = dict[str, Any]
"""One line of the log, decoded."""

Subject = Literal["run", "group", "attempt"]

#: Keys that every line has, in the order in which they are written.
HEADER: Final = ("t", "run", "event")

#: The latest time a line may carry: later ones do not fit the signed 64-bit
#: nanoseconds that span processors and backends keep times in.
MAX_SECONDS: Final = 9_223_372_036.0


class EventRow(NamedTuple):
    """One row of the vocabulary.

    Attributes:
        name: the event's name, ``<noun>_<past participle>``.
        subject: what it is about, which is where it is shown.
        fields: the fields that belong to it; an event may carry others too.
        outcome: how its subject ends with it, empty where it does not end.
    """

    name: str
    subject: Subject
    fields: tuple[str, ...] = ()
    outcome: str = ""


VOCABULARY: Final[Mapping[str, EventRow]] = MappingProxyType(
    {
        row.name: row
        for row in (
            EventRow("trace_opened", "run", ("pid",)),
            EventRow(
                "group_reserved",
                "group",
                (
                    "group_id",
                    "prompt_id",
                    "expected_generations",
                    "target_step",
                    "weight_version",
                    "task_name",
                ),
            ),
            EventRow("group_admitted", "group", ("group_id", "weight_version")),
            EventRow(
                "attempt_dispatched",
                "attempt",
                ("group_id", "attempt_id", "prompt_id", "generation_index", "weight_version"),
            ),
            EventRow(
                "attempt_resumed",
                "attempt",
                (
                    "group_id",
                    "attempt_id",
                    "prompt_id",
                    "generation_index",
                    "resumed_from",
                    "tokens",
                ),
            ),
            EventRow(
                "attempt_sealed",
                "attempt",
                ("group_id", "attempt_id", "tokens", "reward"),
                "sealed",
            ),
            EventRow(
                "attempt_refused",
                "attempt",
                ("group_id", "attempt_id", "reason", "tokens"),
                "refused",
            ),
            EventRow(
                "attempt_abandoned",
                "attempt",
                ("group_id", "attempt_id", "reason", "tokens"),
                "abandoned",
            ),
            EventRow("group_sealed", "group", ("group_id",)),
            EventRow("group_published", "group", ("group_id", "prompt_id", "tokens_by_version")),
            EventRow("group_discarded", "group", ("group_id", "reason"), "discarded"),
            EventRow("step_trained", "run", ("step", "trained_version", "group_ids")),
            EventRow(
                "weights_synced",
                "run",
                ("replaced_version", "weight_version", "duration_s", "calls"),
            ),
            EventRow("checkpoint_published", "run", ("step", "path", "weight_version")),
            EventRow("checkpoint_restored", "run", ("step", "path", "weight_version")),
            EventRow("trace_gap", "run", ("lost",)),
        )
    }
)
"""Every event that has a meaning of its own, by name."""

SYNONYMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "run_started": "trace_opened",
        "trace_started": "trace_opened",
        "group_created": "group_reserved",
        "group_claimed": "group_reserved",
        "group_started": "group_admitted",
        "group_completed": "group_sealed",
        "group_finished": "group_sealed",
        "group_buffered": "group_published",
        "group_enqueued": "group_published",
        "group_dropped": "group_discarded",
        "group_evicted": "group_discarded",
        "group_filtered": "group_discarded",
        "attempt_started": "attempt_dispatched",
        "attempt_continued": "attempt_resumed",
        "attempt_completed": "attempt_sealed",
        "attempt_finished": "attempt_sealed",
        "attempt_rejected": "attempt_refused",
        "attempt_aborted": "attempt_abandoned",
        "attempt_cancelled": "attempt_abandoned",
        "attempt_failed": "attempt_abandoned",
        "attempt_timed_out": "attempt_abandoned",
        "step_completed": "step_trained",
        "step_finished": "step_trained",
        "train_step": "step_trained",
        "refit": "weights_synced",
        "weight_synced": "weights_synced",
        "weights_refitted": "weights_synced",
        "weights_updated": "weights_synced",
        "checkpoint_saved": "checkpoint_published",
        "checkpoint_written": "checkpoint_published",
        "checkpoint_loaded": "checkpoint_restored",
        "checkpoint_resumed": "checkpoint_restored",
        "events_lost": "trace_gap",
    }
)
"""Other words for the rows, as other code bases write them.

``rollout_`` in place of ``attempt_`` is understood for every attempt row and
synonym, and need not be listed.
"""

_ATTEMPT: Final = "attempt_"
_ROLLOUT: Final = "rollout_"


class Vocabulary:
    """The rows together with the words that are understood for them.

    Args:
        synonyms: words of one's own, each with the row's name (or a known
            synonym of it) that it means.

    Raises:
        ValueError: if a synonym points at no row, or renames a row.
    """

    def __init__(self, synonyms: Mapping[str, str] | None = None) -> None:
        words = dict(SYNONYMS)
        for word, meaning in (synonyms or {}).items():
            if word in VOCABULARY:
                raise ValueError(f"{word!r} is an event of the log and cannot be a synonym")
            target = words.get(meaning, meaning)
            if target not in VOCABULARY:
                known = ", ".join(VOCABULARY)
                raise ValueError(f"synonym {word!r} means {meaning!r}, which is none of: {known}")
            words[word] = target
        rows = dict(VOCABULARY) | {word: VOCABULARY[name] for word, name in words.items()}
        for word, row in list(rows.items()):
            if word.startswith(_ATTEMPT):
                rows.setdefault(_ROLLOUT + word.removeprefix(_ATTEMPT), row)
        #: The row that each word means.
        self.rows: Mapping[str, EventRow] = MappingProxyType(rows)
        #: What ``row_of`` does, as a bound ``dict.get``: it runs once an event.
        self.find = rows.get

    def row_of(self, name: str) -> EventRow | None:
        """The row that an event's name means, or None for a name in no row."""
        return self.find(name)

    def words_for(self, *names: str) -> tuple[str, ...]:
        """Every word, the row's name first, that means one of the rows ``names``."""
        return tuple(word for word, row in self.rows.items() if row.name in names)


class NotAnEvent(ValueError):  # noqa: N818 - what it says of the line
    """A value that is no event of a log; the message says why."""


def check_event(value: object) -> Event:
    """The value as an event, if it is one.

    Raises:
        NotAnEvent: if it is no object, or lacks a usable ``t``, ``run`` or ``event``.
    """
    if type(value) is not dict:
        raise NotAnEvent(f"not a JSON object but {_kind(value)}")
    t, run, event = value.get("t"), value.get("run"), value.get("event")
    if (
        type(t) is float
        and 0.0 <= t < MAX_SECONDS
        and type(run) is str
        and type(event) is str
        and run
        and event
    ):
        return value
    missing = [key for key in HEADER if key not in value]
    if missing:
        raise NotAnEvent(f"no {' and no '.join(repr(key) for key in missing)}")
    if isinstance(t, bool) or not isinstance(t, (int, float)):
        raise NotAnEvent(f"'t' is not a number but {_kind(t)}")
    if not 0 <= t < MAX_SECONDS:
        raise NotAnEvent(f"'t' is not a time since the epoch: {t!r:.40}")
    if not isinstance(run, str) or not run:
        raise NotAnEvent(f"'run' is not a name but {_kind(run)}")
    if not isinstance(event, str) or not event:
        raise NotAnEvent(f"'event' is not a name but {_kind(event)}")
    return value


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "an array", str: "a string", bool: "a truth value"}
    if value == "":
        return "an empty string"
    return names.get(type(value), "a number")


def micros_of(t: float) -> int:
    """A line's ``t`` in whole microseconds, the resolution the log keeps."""
    return round(t * 1e6)


def seconds_of(micros: int) -> float:
    """Whole microseconds as a line's ``t``; `micros_of` gives them back exactly."""
    return micros / 1e6


def id_of(value: object) -> str | None:
    """A group's or attempt's id as text; None where the line gives none.

    Ids are strings in the reference's logs; other writers use numbers.
    """
    if type(value) is str:
        return value or None
    if value is None or isinstance(value, (bool, dict, list)):
        return None
    return str(value)


def text_of(value: object) -> str:
    """A reason as text; empty where there is none."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def count_of(value: object) -> int | None:
    """A number of tokens or of events; None for anything that counts nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value < 0 or value > 2**63 - 1 or not math.isfinite(value):
        return None
    return int(value)


def version_of(value: object) -> int | None:
    """A weight version or a step; None where the line gives none.

    Versions are whole numbers, or such numbers as text (JSON keys are text).
    """
    if isinstance(value, str):
        try:
            value = int(value) if len(value) < 24 else None
        except ValueError:
            return None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    return None


def version_counts_of(value: object) -> dict[int, int]:
    """``tokens_by_version`` as ``{weight version: tokens}``; unusable entries left out."""
    if not isinstance(value, dict):
        return {}
    counts: dict[int, int] = {}
    for key, tokens in value.items():
        try:
            version = int(key) if type(key) is str and len(key) < 19 else version_of(key)
        except ValueError:
            continue
        count = tokens if type(tokens) is int and 0 <= tokens < 2**63 else count_of(tokens)
        if version is not None and count is not None:
            counts[version] = counts[version] + count if version in counts else count
    return counts


def clamped(number: int) -> int:
    """A sum of counts, as large as a signed 64-bit number can be."""
    return min(number, 2**63 - 1)
