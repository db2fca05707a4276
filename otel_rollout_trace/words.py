"""Figures as people say them, the same on the terminal and on a page."""

from __future__ import annotations

from datetime import datetime, timezone

__all__ = ["duration", "many", "moment"]


def duration(seconds: float) -> str:
    """Seconds as people say them: ``850 ms``, ``12.5 s``, ``4 min 14 s``, ``3 h 20 min``."""
    if seconds < 0:
        return f"-{duration(-seconds)}"  # a clock stepped back
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def many(number: int, noun: str) -> str:
    """``1 event``, ``2,000 events``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def moment(seconds: float) -> str:
    """A time of the log, ``2026-09-21 13:33:20 UTC``."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
