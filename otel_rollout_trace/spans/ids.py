"""Trace and span ids, computed from the log's own ids.

Each is the beginning of a SHA-256, so anyone who knows run, group and attempt
can name the span, a replay makes the very spans of the live run, and ratio
samplers, which look at an id's bits, work on them.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

__all__ = ["attempt_span_id", "group_span_id", "group_trace_id", "run_span_id", "run_trace_id"]


def _hashed(text: str, size: int) -> int:
    # Zero is no id to OpenTelemetry. No text is known that would hash to it.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:size], "big") or 1


# Every attempt of a group asks for its group's ids.
@lru_cache(maxsize=8192)
def group_trace_id(run: str, group_id: str) -> int:
    """Id of a group's trace: 16 bytes of SHA-256 of ``{run}/{group_id}``."""
    return _hashed(f"{run}/{group_id}", 16)


@lru_cache(maxsize=8192)
def group_span_id(run: str, group_id: str) -> int:
    """Id of a group's span: 8 bytes of SHA-256 of ``{run}/{group_id}/group``."""
    return _hashed(f"{run}/{group_id}/group", 8)


def attempt_span_id(run: str, group_id: str, attempt_id: str) -> int:
    """Id of an attempt's span: 8 bytes of SHA-256 of ``{run}/{group_id}/{attempt_id}``."""
    return _hashed(f"{run}/{group_id}/{attempt_id}", 8)


def run_trace_id(run: str, segment: int) -> int:
    """Id of a segment's trace: 16 bytes of SHA-256 of ``{run}/segment/{segment}``."""
    return _hashed(f"{run}/segment/{segment}", 16)


def run_span_id(run: str, segment: int) -> int:
    """Id of a segment's span: 8 bytes of SHA-256 of ``{run}/segment/{segment}/run``."""
    return _hashed(f"{run}/segment/{segment}/run", 8)
