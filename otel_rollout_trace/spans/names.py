"""Names of spans, span events and attributes, and which field of the log is which attribute."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..events import VOCABULARY

__all__ = [
    "ATTEMPT_SPAN",
    "EVENT_NAMES",
    "FIELD_ATTRIBUTES",
    "FIELD_OF_ATTRIBUTE",
    "FIELD_PREFIX",
    "GROUP_SPAN",
    "RUN_SPAN",
    "SCOPE",
    "attributes_of_row",
    "attributes_on_group",
    "start_event",
]

SCOPE: Final = "otel_rollout_trace"
"""The instrumentation scope of every span and metric."""

GROUP_SPAN: Final = "rl.rollout.group"
ATTEMPT_SPAN: Final = "rl.rollout.attempt"
RUN_SPAN: Final = "rl.run"

REFIT_EVENT: Final = "rl.refit"
RESTORE_EVENT: Final = "rl.restore"
RESTORE_PREFIX: Final = "rl.restore."
STEP_EVENT: Final = "rl.step"

EVENT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "group_admitted": "rl.group.admitted",
        "group_sealed": "rl.group.sealed",
        "group_published": "rl.group.published",
        "step_trained": STEP_EVENT,
        "weights_synced": REFIT_EVENT,
        "checkpoint_published": "rl.checkpoint.published",
        "checkpoint_restored": "rl.checkpoint.restored",
    }
)
"""Rows that are span events of their subject, and the name they have there."""

ROW_OF_EVENT_NAME: Final[Mapping[str, str]] = MappingProxyType(
    {name: row for row, name in EVENT_NAMES.items()}
)

RUN_ID: Final = "rl.run.id"
SEGMENT_INDEX: Final = "rl.segment.index"
OUTCOME: Final = "rl.outcome"
REASON: Final = "rl.reason"
ERROR_TYPE: Final = "error.type"
BATCH_AGE: Final = "rl.batch_age"
TOKENS_TOTAL: Final = "rl.tokens.total"
TOKENS_RESUMED: Final = "rl.tokens.resumed"
TOKENS_GENERATED: Final = "rl.tokens.generated"
TOKEN_VERSIONS: Final = "rl.tokens.versions"
TOKEN_COUNTS: Final = "rl.tokens.counts"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GROUP_ID: Final = "rl.group.id"
GROUP_IDS: Final = "rl.group.ids"
ATTEMPT_ID: Final = "rl.attempt.id"
WEIGHT_VERSION: Final = "rl.weight_version"
REPLACED_VERSION: Final = "rl.weight_version.replaced"
TRAINED_VERSION: Final = "rl.weight_version.trained"
REFIT_DURATION: Final = "rl.refit.duration"
STEP: Final = "rl.step"
PROMPT_ID: Final = "rl.prompt.id"
TASK_NAME: Final = "rl.task.name"
EVENTS_DROPPED: Final = "rl.events.dropped"
CLOCK_SKEWED: Final = "rl.clock.skewed"

#: Lines whose content the attributes alone could not give back, as JSON text: of
#: the event that began a span (empty: the log has none), that ended it, or that a
#: span event is made from.
LOG_START: Final = "rl.log.start"
LOG_END: Final = "rl.log.end"
LOG_LINE: Final = "rl.log.line"

FIELD_PREFIX: Final = "rl.field."
"""What the name of any other field of the log is put behind."""

FIELD_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "group_id": GROUP_ID,
        "attempt_id": ATTEMPT_ID,
        "prompt_id": PROMPT_ID,
        "generation_index": "rl.generation.index",
        "task_name": TASK_NAME,
        "weight_version": WEIGHT_VERSION,
        "target_step": "rl.target_step",
        "reason": REASON,
        "reward": "rl.reward",
        "tokens": TOKENS_TOTAL,
        "step": STEP,
        "trained_version": TRAINED_VERSION,
        "replaced_version": REPLACED_VERSION,
        "duration_s": REFIT_DURATION,
        "path": "rl.checkpoint.path",
    }
)
"""The vocabulary's fields that have an attribute name of their own."""

# Ids mean the same on an event of any name.
_COMMON_FIELDS: Final = ("group_id", "attempt_id", "prompt_id", "generation_index")

# The tokens a resumed attempt begins with are not those that it ends with.
_ROW_ATTRIBUTES: Final = {("attempt_resumed", "tokens"): TOKENS_RESUMED}

FIELD_OF_ATTRIBUTE: Final[Mapping[str, str]] = MappingProxyType(
    {name: field for field, name in FIELD_ATTRIBUTES.items()}
    | {name: field for (_, field), name in _ROW_ATTRIBUTES.items()}
)


# Shown as arrays, whatever event they are on; see `fields`.
_ARRAYS: Final = ("tokens_by_version", "group_ids")


def _attributes_of_row(row_name: str, said: tuple[str, ...] = ()) -> Mapping[str, str]:
    own = VOCABULARY[row_name].fields if row_name else ()
    fields = dict.fromkeys((*own, *_COMMON_FIELDS))
    return {
        field: _ROW_ATTRIBUTES.get(
            (row_name, field), FIELD_ATTRIBUTES.get(field, FIELD_PREFIX + field)
        )
        for field in fields
        if field not in _ARRAYS and field not in said
    }


_PLANS: Final = {name: _attributes_of_row(name) for name in ("", *VOCABULARY)}
_GROUP_PLANS: Final = {name: _attributes_of_row(name, ("group_id",)) for name in VOCABULARY}


def attributes_of_row(row_name: str) -> Mapping[str, str]:
    """The attribute that each of a row's fields becomes; ``""`` is an event of no row."""
    return _PLANS[row_name]


def attributes_on_group(row_name: str) -> Mapping[str, str]:
    """`attributes_of_row` without the group's id, which its span says."""
    return _GROUP_PLANS[row_name]


RESUMED_FROM: Final = FIELD_PREFIX + "resumed_from"
_PID: Final = FIELD_PREFIX + "pid"


def start_event(attributes: Mapping[str, object], subject: str) -> str:
    """The event that began a span, as its attributes tell; empty where none is told."""
    if subject == "attempt":
        return "attempt_resumed" if RESUMED_FROM in attributes else "attempt_dispatched"
    if subject == "group":
        return "group_reserved"
    return "trace_opened" if _PID in attributes else ""
