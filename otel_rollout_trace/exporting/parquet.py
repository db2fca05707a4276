"""Parquet: a row for each attempt, each group and each step, for SQL over many runs.

Three files in a directory, ``attempts.parquet``, ``groups.parquet`` and
``steps.parquet``, which DuckDB, Polars, pandas and Spark read. See `columns` for what
is in them. Rows are written in groups, so that memory does not grow with the log.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ..events import HEADER, clamped, version_of
from ..lifecycle import Attempt, Group, Listener, Published, Step
from ..metrics.accumulators import RolloutMetrics
from ..spans import SpanRecord, names
from ..values import degrade
from .columns import TABLES
from .exports import Pairing, missing, well_formed

__all__ = ["ParquetTables"]

# Rows of a table that wait in memory, and so the size of a row group: small ones
# compress badly and are slow to read.
_ROWS: Final = 20_000

_encode: Final = msgspec.json.Encoder().encode

_GENERATION: Final = names.FIELD_ATTRIBUTES["generation_index"]
_REWARD: Final = names.FIELD_ATTRIBUTES["reward"]
_TARGET_STEP: Final = names.FIELD_ATTRIBUTES["target_step"]
_EXPECTED: Final = names.FIELD_PREFIX + "expected_generations"

# Fields of the log that an attribute of that prefix is made of, and that have a column.
_SAID: Final = frozenset({names.RESUMED_FROM, _EXPECTED})
_SAID_OF_STEPS: Final = frozenset({*HEADER, "step", "trained_version", "group_ids"})


class ParquetTables(Pairing):
    """Writes the three tables.

    Args:
        directory: where; it exists.
        rows: how many rows of a table a row group has.

    Attributes:
        written: how many rows were written, by table.

    Raises:
        MissingExtraError: where ``pyarrow`` is not installed.
    """

    def __init__(self, directory: Path, *, rows: int = _ROWS) -> None:
        super().__init__()
        try:
            import pyarrow
        except ModuleNotFoundError:
            raise missing("parquet", "pyarrow") from None
        self.written: Counter[str] = Counter(dict.fromkeys(TABLES, 0))
        self.advice = ""
        self._log = ""
        self._metrics = RolloutMetrics()
        self._tables = {name: _Table(pyarrow, directory, name, rows) for name in TABLES}

    def begin(self, log: Path) -> Sequence[Listener]:
        """See `Export`."""
        self._log = well_formed(str(log))
        self._metrics = RolloutMetrics()
        return (self,)

    def flush(self) -> None:
        """See `Export`."""

    def close(self) -> None:
        """See `Export`."""
        for table in self._tables.values():
            table.close()

    def attempt_over(self, attempt: Attempt, span: SpanRecord) -> None:
        """See `Pairing`."""
        said = span.attributes
        self._add(
            "attempts",
            (
                attempt.run,
                attempt.group_id,
                attempt.attempt_id if attempt.named else None,
                _text(said.get(names.PROMPT_ID)),
                _text(said.get(names.TASK_NAME)),
                version_of(said.get(_GENERATION)),
                attempt.begun_on,
                *_lasted(span),
                attempt.outcome,
                attempt.reason or None,
                _number(said.get(_REWARD)),
                attempt.tokens,
                _pairs(said.get(names.TOKEN_VERSIONS), said.get(names.TOKEN_COUNTS)),
                len(attempt.refits) + attempt.refits_left_out,
                _text(said.get(names.RESUMED_FROM)),
                attempt.origin[0] if attempt.origin is not None else None,
                *_found(span),
            ),
        )

    def group_over(self, group: Group, span: SpanRecord) -> None:
        """See `Pairing`."""
        said, counts, step = span.attributes, group.published, group.step
        queue = None
        if step is not None and group.published_at is not None:
            queue = max(0, group.ended - group.published_at) / 1e6
        self._add(
            "groups",
            (
                group.run,
                group.group_id,
                _text(said.get(names.PROMPT_ID)),
                _text(said.get(names.TASK_NAME)),
                version_of(said.get(_TARGET_STEP)),
                version_of(said.get(_EXPECTED)),
                version_of(group.first.get("weight_version")) if group.first is not None else None,
                *_lasted(span),
                group.outcome,
                group.reason or None,
                group.published_at,
                queue,
                counts.published_version if counts is not None else None,
                step.number if step is not None else None,
                step.trained_version if step is not None else None,
                _number(said.get(names.BATCH_AGE)) if step is not None else None,
                clamped(counts.tokens if counts is not None else group.sealed_tokens),
                _pairs(said.get(names.TOKEN_VERSIONS), said.get(names.TOKEN_COUNTS)),
                *_found(span),
            ),
        )

    def stepped(self, step: Step) -> None:
        """See `Listener`."""
        metrics = self._metrics
        metrics.stepped(step)
        others = {name: value for name, value in step.event.items() if name not in _SAID_OF_STEPS}
        self._add(
            "steps",
            (
                step.run,
                step.number,
                step.time,
                step.trained_version,
                [group_id for group_id, _ in step.groups],
                clamped(step.tokens),
                _by_version(step.counted),
                metrics.batch_age,
                metrics.batch_age_generation,
                metrics.batch_age_queue,
                metrics.batch_age_max,
                metrics.batch_age_coverage,
                _json(others),
            ),
        )

    def _add(self, table: str, row: tuple[Any, ...]) -> None:
        self._tables[table].add((self._log, *row))
        self.written[table] += 1


class _Table:
    """One file."""

    def __init__(self, pyarrow: Any, directory: Path, name: str, rows: int) -> None:
        from pyarrow import parquet

        whole, text = pyarrow.int64(), pyarrow.string()
        kinds = {
            "text": text,
            "int": whole,
            "double": pyarrow.float64(),
            "time": pyarrow.timestamp("us", tz="UTC"),
            "texts": pyarrow.list_(text),
            "counts": pyarrow.map_(whole, whole),
        }
        self._columns = TABLES[name]
        self._arrow = pyarrow
        self._schema = pyarrow.schema(
            [
                pyarrow.field(column.name, kinds[column.kind], metadata={"comment": column.meaning})
                for column in self._columns
            ]
        )
        self._most = rows
        self._rows: list[tuple[Any, ...]] = []
        self._writer = parquet.ParquetWriter(
            directory / f"{name}.parquet", self._schema, compression="zstd"
        )

    def add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._most:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        if not rows:
            return
        columns = []
        for field, column, values in zip(
            self._schema, self._columns, zip(*rows, strict=True), strict=True
        ):
            clean = column.kind in ("text", "texts")
            cleaned = [_clean(value) for value in values] if clean else values
            columns.append(self._arrow.array(cleaned, field.type))
        self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))


def _clean(value: Any) -> Any:
    if type(value) is str:
        return well_formed(value)
    return [well_formed(text) for text in value] if value is not None else None


def _lasted(span: SpanRecord) -> tuple[int, int, float]:
    return span.started // 1000, span.ended // 1000, (span.ended - span.started) / 1e9


def _found(span: SpanRecord) -> tuple[str | None, str, str]:
    said, others = span.attributes, {}
    for name, value in said.items():
        if not name.startswith(names.FIELD_PREFIX) or name in _SAID:
            continue
        field = name.removeprefix(names.FIELD_PREFIX)
        # An ending event may say again what the first one said.
        if said.get(names.FIELD_ATTRIBUTES.get(field, "")) != value:
            others[field] = value
    return _json(others), f"{span.trace_id:032x}", f"{span.span_id:016x}"


def _json(fields: Mapping[str, Any]) -> str | None:
    """Fields as a JSON object; None for none."""
    if not fields:
        return None
    try:
        return _encode(fields).decode()
    except RecursionError:
        return _encode(degrade(fields)).decode()


def _text(value: Any) -> str | None:
    """An id or a name as text, whatever it is in the log."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, bool) else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _pairs(versions: Any, counts: Any) -> list[tuple[int, int]] | None:
    """Two arrays of a span as a map."""
    if not isinstance(versions, tuple) or not isinstance(counts, tuple):
        return None
    return list(zip(versions, counts, strict=True))


def _by_version(counted: Iterable[Published]) -> list[tuple[int, int]] | None:
    sums: Counter[int] = Counter()
    for counts in counted:
        sums.update(dict(zip(counts.versions, counts.counts, strict=True)))
    return [(version, clamped(tokens)) for version, tokens in sorted(sums.items())] or None
