"""The tables of an export: what is in which column.

Times are UTC, in microseconds; durations are seconds. A column is null where the log
does not say. The README's tables are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["TABLES", "Column"]


class Column(NamedTuple):
    """A column.

    Attributes:
        name: its name.
        kind: ``text``, ``int``, ``double``, ``time``, ``texts`` (a list) or
            ``counts`` (a map of whole numbers).
        meaning: what is in it.
    """

    name: str
    kind: str
    meaning: str


_WHERE: Final = (
    Column("log", "text", "the file, as it was named"),
    Column("run", "text", "the run"),
)
_SPAN: Final = (
    Column("started", "time", "when it began"),
    Column("ended", "time", "when it ended; where its run did, that run's last event"),
    Column("duration_s", "double", "the seconds between the two"),
    Column("outcome", "text", "how it ended"),
    Column("reason", "text", "why, where it was not sealed or trained"),
)
_FOUND: Final = (
    Column("fields", "text", "fields that have no column, as a JSON object"),
    Column("trace_id", "text", "its trace, in hex"),
    Column("span_id", "text", "its span, in hex"),
)
_PROMPT: Final = (
    Column("prompt_id", "text", "the prompt"),
    Column("task_name", "text", "the group's task"),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = MappingProxyType(
    {
        "attempts": (
            *_WHERE,
            Column("group_id", "text", "the group it is of"),
            Column("attempt_id", "text", "the attempt; null where the log names none"),
            *_PROMPT,
            Column("generation_index", "int", "which of the group's generations it tries"),
            Column("weight_version", "int", "the weights it began on"),
            *_SPAN,
            Column("reward", "double", "its reward"),
            Column("tokens", "int", "tokens generated"),
            Column("tokens_by_version", "counts", "the same by the weights that made them"),
            Column("refits", "int", "refits that it saw"),
            Column("resumed_from", "text", "the attempt it goes on from"),
            Column("resumed_run", "text", "that one's run, where the log has it"),
            *_FOUND,
        ),
        "groups": (
            *_WHERE,
            Column("group_id", "text", "the group"),
            *_PROMPT,
            Column("target_step", "int", "the step it was reserved for"),
            Column("expected_generations", "int", "generations asked for"),
            Column("weight_version", "int", "the weights it was reserved on"),
            *_SPAN,
            Column("published", "time", "when it came into the replay buffer"),
            Column("queue_s", "double", "seconds from then until it was trained"),
            Column("published_version", "int", "what generation ran on then"),
            Column("step", "int", "the step that trained it"),
            Column("trained_version", "int", "the weights that this step updated"),
            Column("batch_age", "double", "weight updates, mean over its tokens"),
            Column("tokens", "int", "its tokens: published, else those of sealed attempts"),
            Column("tokens_by_version", "counts", "the published ones, by weights"),
            *_FOUND,
        ),
        "steps": (
            *_WHERE,
            Column("step", "int", "the step; once more where it was trained again"),
            Column("trained", "time", "when"),
            Column("trained_version", "int", "the weights that it updated"),
            Column("group_ids", "texts", "the groups it trained on"),
            Column("tokens", "int", "their counted tokens"),
            Column("tokens_by_version", "counts", "the same by the weights that made them"),
            Column("batch_age", "double", "weight updates, mean over all tokens"),
            Column("batch_age_generation", "double", "the part gained before publication"),
            Column("batch_age_queue", "double", "the part gained waiting in the replay buffer"),
            Column("batch_age_max", "int", "the oldest token's"),
            Column("batch_age_coverage", "double", "share of the groups whose tokens are counted"),
            Column("fields", "text", "fields that have no column, as a JSON object"),
        ),
    }
)
"""Each table's columns, in their order."""
