"""What stays known across the runs of a file.

Counts of groups that a checkpoint carried over, and attempts that a later run resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ..batch_age import sums_of
from ..events import Event, Vocabulary, id_of, version_counts_of, version_of
from ..recent import Recent

__all__ = ["Carried", "Published"]

# The newest of each are kept. A group is trained within a few steps of being
# published, so what falls out was trained, or never will be.
MOST_GROUPS: Final = 50_000
MOST_ATTEMPTS: Final = 50_000


class Published(msgspec.Struct, frozen=True, gc=False):
    """A published group's counts.

    Attributes:
        versions: the weight versions that made its tokens, in the order of the log.
        counts: how many tokens each of them made.
        tokens: all its tokens.
        version_sum: its tokens, each times the version that made it.
        published_version: the version generation ran on when it was published.
    """

    versions: tuple[int, ...]
    counts: tuple[int, ...]
    tokens: int
    version_sum: int
    published_version: int


def published_of(event: Event, current_version: int | None) -> Published | None:
    """The counts in a ``group_published`` event; None where it has none.

    Args:
        event: the event.
        current_version: what generation runs on, where the log says; else the
            newest version among the tokens is taken for it.
    """
    value = event.get("tokens_by_version")
    if not isinstance(value, dict):
        return None
    counts = version_counts_of(value)
    tokens, version_sum = sums_of(counts)
    if current_version is None:
        current_version = max(counts, default=0)
    return Published(tuple(counts), tuple(counts.values()), tokens, version_sum, current_version)


#: The rows of the vocabulary that `Carried` reads of earlier runs.
EARLIER_ROWS: Final = (
    "group_published",
    "attempt_dispatched",
    "attempt_resumed",
    "attempt_sealed",
    "attempt_refused",
    "attempt_abandoned",
    "weights_synced",
    "checkpoint_restored",
)


class Carried:
    """Published groups and dispatched attempts of a file, whichever run they are of.

    Args:
        earlier: gives the events of earlier runs, for a lifecycle that is fed
            one run only. Called once, when something is asked for that this
            run does not know. None where every run of the file is fed.
        vocabulary: which words mean which row.
    """

    def __init__(
        self,
        earlier: Callable[[], Iterable[Event]] | None = None,
        *,
        vocabulary: Vocabulary,
    ) -> None:
        self._earlier = earlier
        self._vocabulary = vocabulary
        self._one_run = earlier is not None
        self._published: Recent[Published] = Recent(MOST_GROUPS)
        self._attempts: Recent[tuple[str, str]] = Recent(MOST_ATTEMPTS)
        self._before: Recent[tuple[str, str]] = Recent(MOST_ATTEMPTS)
        self._versions: dict[str, int | None] = {}

    def publish(self, group_id: str, counts: Published) -> None:
        """Note a group's counts."""
        self._published.put(group_id, counts)

    def dispatch(self, run: str, group_id: str, attempt_id: str) -> None:
        """Note where an attempt is from, for a later run that resumes it."""
        if not self._one_run:
            self._remember(run, group_id, attempt_id)

    def note(self, event: Event) -> None:
        """Note an event of a run that no lifecycle is fed with."""
        row = self._vocabulary.row_of(event["event"])
        if row is None or row.name not in EARLIER_ROWS:
            return
        run, group_id = event["run"], id_of(event.get("group_id"))
        if row.subject == "run":
            self._versions[run] = version_of(event.get("weight_version"))
        elif group_id is None:
            return
        elif row.subject == "group":
            counts = published_of(event, self._versions.get(run))
            if counts is not None:
                self.publish(group_id, counts)
        else:
            attempt_id = id_of(event.get("attempt_id"))
            known = self._attempts.get(attempt_id, None) if attempt_id is not None else None
            # One whose start the log lacks is known by its end.
            if attempt_id is not None and not (row.outcome and known == (run, group_id)):
                self._remember(run, group_id, attempt_id)

    def counts_of(self, group_id: str) -> Published | None:
        """A published group's counts, this run's or an earlier one's."""
        if group_id not in self._published:
            self._read_earlier()
        return self._published.get(group_id, None)

    def origin_of(self, attempt_id: str, run: str) -> tuple[str, str] | None:
        """``(run, group id)`` of an attempt, if it is another run's than this one."""
        if attempt_id not in self._attempts:
            self._read_earlier()
        for known in (self._attempts, self._before):
            origin = known.get(attempt_id, None)
            if origin is not None and origin[0] != run:
                return origin
        return None

    def _remember(self, run: str, group_id: str, attempt_id: str) -> None:
        before = self._attempts.get(attempt_id, None)
        if before is not None and before[0] != run:
            self._before.put(attempt_id, before)  # this run uses the id anew
        self._attempts.put(attempt_id, (run, group_id))

    def _read_earlier(self) -> None:
        if self._earlier is None:
            return
        earlier, self._earlier = self._earlier, None
        this_run, self._published = self._published, Recent(MOST_GROUPS)
        for event in earlier():
            self.note(event)
        for group_id, counts in this_run.items():
            self.publish(group_id, counts)
