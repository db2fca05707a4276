"""What each item's span says: name, ids, times, attributes, events, status, links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, TypeVar

from ..batch_age import age_of, split_tokens
from ..events import clamped, id_of
from ..lifecycle import Attempt, Group, Listener, Published, Segment, Step
from ..lifecycle.items import INTERRUPTED, SEALED, Item
from . import ids, names
from .fields import Attributes, line_text
from .moments import moment_event, put_end, put_learned, put_start, refit_event
from .record import SpanEvent, SpanRecord

__all__ = ["SpanView"]

# What an SDK's span keeps by default. Past it the SDK drops the oldest silently.
MOST_EVENTS: Final = 128

_LONGEST_ERROR_TYPE: Final = 120

_T = TypeVar("_T")


class SpanView(Listener):
    """Makes a `SpanRecord` of everything that ends.

    Args:
        emit: takes each record.
        most_events: how many events a span keeps, where that is less than the
            SDK's default.
    """

    def __init__(
        self, emit: Callable[[SpanRecord], object], most_events: int = MOST_EVENTS
    ) -> None:
        self._emit = emit
        self._most_events = max(0, min(most_events, MOST_EVENTS))

    def attempt_ended(self, attempt: Attempt) -> None:
        """See `Listener`."""
        run, group_id, attempt_id = attempt.run, attempt.group_id, attempt.attempt_id
        attributes: Attributes = {names.RUN_ID: run, names.OUTCOME: attempt.outcome}
        if group_id is not None:
            attributes[names.GROUP_ID] = group_id
        if attempt.named:
            attributes[names.ATTEMPT_ID] = attempt_id
        put_start(attributes, attempt)
        put_end(attributes, attempt)
        if attempt.group is not None:
            put_learned(attributes, attempt, attempt.group)
        tokens = attempt.tokens
        if tokens is not None:
            attributes[names.OUTPUT_TOKENS] = tokens
            attributes.setdefault(names.TOKENS_TOTAL, tokens)
            _put_token_versions(attributes, attempt, tokens)
        failed = attempt.outcome != SEALED
        if failed:
            reason = attempt.reason or attempt.outcome
            attributes[names.ERROR_TYPE] = reason[:_LONGEST_ERROR_TYPE]
        refits, over = _ends_of(attempt.refits, self._most_events)
        # An attempt whose group the log never names is the root of a trace of its own.
        trace = group_id if group_id is not None else attempt_id
        self._send(
            attempt,
            names.ATTEMPT_SPAN,
            (ids.group_trace_id(run, trace), ids.attempt_span_id(run, trace, attempt_id)),
            attributes,
            parent_id=ids.group_span_id(run, group_id) if group_id is not None else None,
            others=[(refit.order, refit_event(refit, seen)) for refit, seen in refits],
            left_out=attempt.refits_left_out + over,
            links=_links_of(attempt) if attempt.origin is not None else (),
            failed=failed,
        )

    def group_ended(self, group: Group) -> None:
        """See `Listener`."""
        run, group_id = group.run, group.group_id
        attributes: Attributes = {names.RUN_ID: run, names.OUTCOME: group.outcome}
        attributes[names.GROUP_ID] = group_id
        put_start(attributes, group)
        put_end(attributes, group)
        put_learned(attributes, group, group)
        if group.outcome == INTERRUPTED and group.reason:
            attributes[names.REASON] = group.reason
        counts = group.published
        if counts is not None:
            attributes[names.TOKENS_TOTAL] = clamped(counts.tokens)
            attributes[names.TOKEN_VERSIONS] = counts.versions
            attributes[names.TOKEN_COUNTS] = tuple(map(clamped, counts.counts))
        elif group.sealed_tokens:
            attributes[names.TOKENS_TOTAL] = clamped(group.sealed_tokens)
        others = []
        if group.step is not None:
            event = _step_event(group.step, counts)
            for name in (names.STEP, names.BATCH_AGE):
                if name in event.attributes:
                    attributes[name] = event.attributes[name]
            others.append((_LAST, event))
        self._send(
            group,
            names.GROUP_SPAN,
            (ids.group_trace_id(run, group_id), ids.group_span_id(run, group_id)),
            attributes,
            others=others,
        )

    def segment_ended(self, segment: Segment) -> None:
        """See `Listener`."""
        run, index = segment.run, segment.index
        attributes: Attributes = {names.RUN_ID: run, names.SEGMENT_INDEX: index}
        if segment.first is not None:
            put_start(attributes, segment)
        self._send(
            segment,
            names.RUN_SPAN,
            (ids.run_trace_id(run, index), ids.run_span_id(run, index)),
            attributes,
        )

    def _send(
        self,
        item: Item,
        name: str,
        own_ids: tuple[int, int],
        attributes: Attributes,
        *,
        parent_id: int | None = None,
        others: Sequence[tuple[int, SpanEvent]] = (),
        left_out: int = 0,
        links: Sequence[tuple[int, int]] = (),
        failed: bool = False,
    ) -> None:
        started, ended = item.started * 1000, item.ended * 1000
        if ended < started:
            ended = started
            attributes[names.CLOCK_SKEWED] = True
            if item.last is not None:
                attributes[names.LOG_END] = line_text(item.last)
        events: Sequence[SpanEvent] = ()
        if item.moments or others:
            events, more = self._merged(item, others)
            left_out += more
        left_out += item.left_out
        if left_out:
            attributes[names.EVENTS_DROPPED] = left_out
        self._emit(
            SpanRecord(name, *own_ids, parent_id, started, ended, attributes, events, links, failed)
        )

    def _merged(
        self, item: Item, others: Sequence[tuple[int, SpanEvent]]
    ) -> tuple[list[SpanEvent], int]:
        """An item's own moments and the other events, in order, as many as a span keeps."""
        moments = item.moments or []
        fits = len(moments) + len(others) <= self._most_events
        in_order = not moments or not others or moments[-1].order < others[0][0]
        if fits and in_order and item.latest is None:
            shown = [moment_event(moment, item) for moment in moments]
            shown.extend(event for _, event in others)
            return shown, 0
        moments = moments + (item.latest or [])
        own: Sequence[tuple[int, SpanEvent]] = [
            (moment.order, moment_event(moment, item)) for moment in moments
        ]
        # Own moments are shown nowhere else; refits and steps are on the run too.
        own, own_over = _ends_of(own, self._most_events)
        kept, over = _ends_of(others, self._most_events - len(own))
        ordered = [*own, *kept]
        if kept and own and kept[0][0] < own[-1][0]:
            ordered.sort(key=_order)
        return [event for _, event in ordered], own_over + over


# After everything else that happened to a group.
_LAST: Final = 2**63


_order: Final = itemgetter(0)


def _ends_of(events: Sequence[_T], room: int) -> tuple[Sequence[_T], int]:
    """The first and the last ones, as many as there is room for, and how many are left out."""
    over = len(events) - max(0, room)
    if over <= 0:
        return events, 0
    head = max(0, room) // 2
    return [*events[:head], *events[head + over :]], over


def _step_event(step: Step, counts: Published | None) -> SpanEvent:
    attributes: Attributes = {}
    if step.number is not None:
        attributes[names.STEP] = step.number
    if step.trained_version is not None:
        attributes[names.TRAINED_VERSION] = step.trained_version
        if counts is not None:
            age = age_of(counts.tokens, counts.version_sum, step.trained_version)
            if age is not None:
                attributes[names.BATCH_AGE] = age
    return SpanEvent(names.STEP_EVENT, step.time * 1000, attributes)


def _put_token_versions(attributes: Attributes, attempt: Attempt, tokens: int) -> None:
    """Split an attempt's tokens by weight version, where every refit counted them."""
    version = attempt.begun_on
    if version is None or attempt.refits_left_out or names.TOKEN_VERSIONS in attributes:
        return
    if not attempt.refits and tokens:
        attributes[names.TOKEN_VERSIONS] = (version,)
        attributes[names.TOKEN_COUNTS] = (tokens,)
        return
    cuts = []
    for refit, seen in attempt.refits:
        if seen is None or refit.weight_version is None:
            return
        cuts.append((refit.weight_version, seen))
    parts = split_tokens(version, cuts, tokens)
    attributes[names.TOKEN_VERSIONS] = tuple(version for version, _ in parts)
    attributes[names.TOKEN_COUNTS] = tuple(tokens for _, tokens in parts)


def _links_of(attempt: Attempt) -> list[tuple[int, int]]:
    if attempt.origin is None or attempt.first is None:
        return []
    run, group_id = attempt.origin
    resumed_from = id_of(attempt.first.get("resumed_from")) or ""
    return [(ids.group_trace_id(run, group_id), ids.attempt_span_id(run, group_id, resumed_from))]
