"""What the trials found, as one table for the terminal."""

from __future__ import annotations

from typing import Final

__all__ = ["Figures"]

_HEADER: Final = ("trial", "what", "figure")


class Figures:
    """Collects what was counted and measured, in the order in which it was."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str]] = []

    def note(self, trial: str, what: str, figure: object) -> None:
        """Add a row."""
        self._rows.append((trial, what, str(figure)))

    def text(self) -> str:
        """The table; empty where there is nothing in it."""
        if not self._rows:
            return ""
        rows = [_HEADER, *self._rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        head, *body = [
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        rule = "|" + "|".join("-" * (width + 2) for width in widths)
        return "\n".join(
            line + " |" if line is not rule else line + "|" for line in (head, rule, *body)
        )
