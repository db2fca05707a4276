"""Whatever Python value a field holds: emit never raises, and the line is strict JSON."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import logging
import math
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import temporary_log

from otel_rollout_trace import RolloutTrace, read_events
from otel_rollout_trace.events import Event
from otel_rollout_trace.values import degrade


class _Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class _Level(enum.IntEnum):
    HIGH = 3


class _Text(str):
    __slots__ = ()


class _Silent:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class _Hostile(Mapping[str, int]):
    """Everything about it fails."""

    def __getitem__(self, key: str) -> int:
        raise RuntimeError

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError


@dataclasses.dataclass
class _Point:
    x: int
    y: float


class _Pair(NamedTuple):
    left: int
    right: int


def _cyclic_list() -> list[Any]:
    items: list[Any] = [1]
    items.append(items)
    return items


def _cyclic_dict() -> dict[str, Any]:
    fields: dict[str, Any] = {"a": 1}
    fields["self"] = {"again": fields}
    return fields


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(5_000):
        value = [value]
    return value


# What a value becomes, where the nearest JSON is clear.
_KNOWN: list[tuple[object, object]] = [
    (np.int64(7), 7),
    (np.uint8(7), 7),
    (np.float64(0.5), 0.5),
    (np.float32(0.25), 0.25),
    (np.float16(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.array([1, 2]), [1, 2]),
    (np.array([[1.5], [2.5]]), [[1.5], [2.5]]),
    (np.array(3), 3),
    (np.array([]), []),
    (np.float64("nan"), None),
    (np.array([1.0, np.nan]), [1.0, None]),
    (_Colour.RED, "red"),
    (_Colour.PAIR, [1, 2]),
    (_Level.HIGH, 3),
    (_Text("x"), "x"),
    (PurePosixPath("/a/b"), "/a/b"),
    ({3}, [3]),
    (frozenset({"a"}), ["a"]),
    ((1, "a"), [1, "a"]),
    (_Pair(1, 2), [1, 2]),
    (OrderedDict(a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (float("nan"), None),
    (float("inf"), None),
    (-math.inf, None),
    ([1.0, float("nan"), {"a": float("-inf")}], [1.0, None, {"a": None}]),
    ({1: "a", 2.5: "b"}, {"1": "a", "2.5": "b"}),
    ({np.int64(1): 2}, {"1": 2}),
    ({_Level.HIGH: 2}, {"3": 2}),
    ({_Colour.RED: 2}, {"red": 2}),
    (2**63, 2**63),
    (2**64, 2**64),
    (-(2**70), -(2**70)),
    (_Point(1, 2.5), {"x": 1, "y": 2.5}),
    (uuid.UUID(int=1), str(uuid.UUID(int=1))),
    ("a\ud800b", "a?b"),
    ({"k\udfff": 1}, {"k?": 1}),
]

# Others: some JSON, and nothing raised.
_ODD: list[Callable[[], object]] = [
    lambda: b"\xff\x00",
    lambda: bytearray(b"x"),
    lambda: memoryview(b"x"),
    lambda: 10**5_000,
    lambda: -(10**5_000),
    lambda: 1j,
    lambda: decimal.Decimal("1.5"),
    lambda: decimal.Decimal("NaN"),
    lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    lambda: datetime.timedelta(seconds=3),
    lambda: np.datetime64("2026-01-01"),
    lambda: np.array([object()], dtype=object),
    lambda: np.array(["a", "b"]),
    lambda: np.array([1 + 2j]),
    lambda: np.void(b"abc"),
    _cyclic_list,
    _cyclic_dict,
    _deep,
    object,
    lambda: object,
    lambda: len,
    lambda: (number for number in range(3)),
    lambda: RuntimeError("x"),
    lambda: {None: 1, True: 2, (1, 2): 3, b"x": 4},
    lambda: {float("nan"): 1},
    lambda: range(10**12),
    lambda: deque([1, 2]),
    lambda: enum.Enum("Odd", {"A": object()}).A,  # type: ignore[attr-defined] # made here
    lambda: NotImplemented,
    lambda: ...,
]

# Of these even a test's own report would fail.
_WORSE: list[Callable[[], object]] = [
    _Silent,
    lambda: [_Silent()],
    lambda: {_Silent(): 1},
    _Hostile,
    lambda: {"a": _Hostile()},
]


def _recorded(**fields: Any) -> tuple[Event, list[Event]]:
    """The event in the file, and its neighbours."""
    with temporary_log() as path:
        with RolloutTrace(path) as trace:
            trace.emit("before", number=1)
            trace.emit("odd", **fields)
            trace.emit("after", number=2)
        assert trace.dropped == 0
        _, before, odd, after = read_events(path, strict=True)
        for line in path.read_bytes().splitlines():
            json.loads(line, parse_constant=pytest.fail)
    return odd, [before, after]


@pytest.mark.parametrize(("value", "expected"), _KNOWN, ids=lambda value: type(value).__name__)
def test_a_value_becomes_the_nearest_that_json_has(value: object, expected: object) -> None:
    """Numbers stay numbers, sets become lists, what is no number None."""
    odd, neighbours = _recorded(value=value, beside=5)
    assert odd["value"] == expected
    assert type(odd["value"]) is type(expected)
    assert odd["beside"] == 5
    assert [event["event"] for event in neighbours] == ["before", "after"]
    nested, _ = _recorded(value={"in": [value]})
    assert nested["value"] == {"in": [expected]}


@pytest.mark.parametrize("make", [*_ODD, *_WORSE], ids=range(len(_ODD + _WORSE)))
def test_no_value_makes_emit_raise(make: Callable[[], object]) -> None:
    """And it costs neither its neighbours nor the fields beside it."""
    odd, neighbours = _recorded(value=make(), beside=5)
    assert odd["event"] == "odd"
    assert odd["beside"] == 5
    assert "value" in odd
    assert [event["number"] for event in neighbours] == [1, 2]


def test_names_of_fields_may_be_anything() -> None:
    """Odd keys are kept as text."""
    fields: dict[Any, Any] = {"": 1, "a b": 2, "\ud800": 3, "é": 4, "t": "x", "self": 5}
    odd, _ = _recorded(**fields)
    assert (odd[""], odd["a b"], odd["?"], odd["é"], odd["t_"], odd["self"]) == (1, 2, 3, 4, "x", 5)


@pytest.mark.parametrize(
    "value",
    [float("nan"), [1.0, float("nan")], {"a": float("inf")}, np.array([np.nan]), object()],
    ids=["nan", "nan in a list", "infinity in a dict", "nan in an array", "object"],
)
def test_one_warning_names_event_and_field_where_a_value_lost_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: object
) -> None:
    """Once for each, however often it comes."""
    with RolloutTrace(tmp_path) as trace:
        for _ in range(5):
            trace.emit("some_event", some_field=value, other=1)
        trace.emit("some_event", third_field=value)
        trace.flush()
    messages = [record.getMessage() for record in caplog.records]
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert sum("some_event" in text and "some_field" in text for text in messages) == 1
    assert sum("some_event" in text and "third_field" in text for text in messages) == 1
    assert len(messages) == 2


def test_values_that_json_has_are_written_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No warning for what lost nothing."""
    with RolloutTrace(tmp_path) as trace:
        trace.emit("x", a=[1, 2.5, None, True, "é", {"b": []}], n=np.int64(3), c=_Colour.RED)
    assert not caplog.records


_ANY_VALUE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.binary(max_size=4),
        st.sampled_from([value for value, _ in _KNOWN]),
        st.sampled_from(_ODD).map(lambda make: make()),
        st.complex_numbers(),
        st.decimals(),
        st.timedeltas(),
    ),
    lambda values: st.one_of(
        st.lists(values, max_size=3),
        st.tuples(values, values),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.none()), values),
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text(st.characters(), max_size=4), _ANY_VALUE, max_size=4))
def test_any_fields_make_one_whole_line_between_their_neighbours(fields: dict[str, Any]) -> None:
    """Never an exception, never a torn or missing line."""
    odd, neighbours = _recorded(**fields)
    assert odd["event"] == "odd"
    assert [event["number"] for event in neighbours] == [1, 2]


@given(_ANY_VALUE)
def test_what_a_value_becomes_is_plain_json(value: object) -> None:
    """Text keys, finite numbers, no surrogates."""
    plain = degrade(value)
    assert json.loads(json.dumps(plain, allow_nan=False, ensure_ascii=False).encode()) == plain
