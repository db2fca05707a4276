"""Any Python value as plain JSON: what a log line can hold, or the nearest to it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

__all__ = ["Degraded", "degrade", "number_of"]

_CUT: Final = "..."

# Limits on values that have no end, or none that a reader would reach.
_DEEPEST: Final = 64
_MOST_PARTS: Final = 100_000
_MOST_BITS: Final = 4096

_BYTES: Final = (bytes, bytearray, memoryview)


class Degraded:
    """A value as plain JSON, and whether it lost something on the way.

    Attributes:
        value: made of dicts with text keys, lists, text, numbers, truth values
            and None only.
        changed: whether something became text, None, or was cut.
    """

    __slots__ = ("_open", "_parts", "changed", "value")

    def __init__(self, value: object) -> None:
        self.changed = False
        self._parts = 0
        self._open: set[int] = set()  # containers being walked: one inside itself is cut
        self.value = self._plain(value)

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._clean(value)
        if kind is bool or value is None:
            return value
        if kind is int:
            return value if value.bit_length() <= _MOST_BITS else self._lost(_CUT)
        if kind is float:
            return value if math.isfinite(value) else self._lost(None)
        identity = id(value)
        if len(self._open) >= _DEEPEST or identity in self._open:
            return self._lost(_CUT)
        self._open.add(identity)
        try:
            return self._of_object(value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a value may raise what is no Exception, as a cancelled one does
            return self._text(value)
        finally:
            self._open.discard(identity)

    def _of_object(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return self._plain(value.value)
        if isinstance(value, Mapping):
            return {self._key(key): self._plain(item) for key, item in self._some(value.items())}
        for base in (int, float, str):
            if isinstance(value, base):
                return self._plain(base(value))
        if isinstance(value, (Sequence, AbstractSet)) and not isinstance(value, _BYTES):
            return [self._plain(item) for item in self._some(value)]
        try:
            return self._plain(number_of(value))
        except TypeError:
            pass
        # What msgspec knows and JSON lacks: dates, UUIDs, decimals, dataclasses, ...
        return self._plain(msgspec.to_builtins(value))

    def _some(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, as many as a line may hold altogether."""
        for item in items:
            self._parts += 1
            if self._parts > _MOST_PARTS:
                self.changed = True
                return
            yield item

    def _key(self, key: object) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if type(key) is str:
            return self._clean(key)
        if isinstance(key, (int, float)) and not isinstance(key, bool):
            return str(key)
        return self._text(key)

    def _text(self, value: object) -> str:
        self.changed = True
        try:
            return self._clean(str(value))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return f"<{type(value).__name__}>"

    def _clean(self, text: str) -> str:
        if text.isascii():
            return text
        cleaned = text.encode("utf-8", "replace").decode()
        return text if cleaned == text else self._lost(cleaned)

    def _lost(self, instead: Any) -> Any:
        self.changed = True
        return instead


def degrade(value: object) -> Any:
    """The value as plain JSON. Never fails.

    NumPy scalars become numbers, enums their values, sets lists, NaN and the
    infinities None, paths and other objects their ``str``, keys text.
    """
    return Degraded(value).value


def number_of(value: object) -> Any:
    """A scalar or array of NumPy, PyTorch or JAX as a plain number or nested list.

    Raises:
        TypeError: for anything else. (It serves as msgspec's ``enc_hook``.)
    """
    kind = type(value)
    if hasattr(kind, "dtype") and hasattr(kind, "tolist"):
        return value.tolist()  # type: ignore[attr-defined] # just looked
    raise TypeError(f"{kind.__name__} is not a JSON value")
