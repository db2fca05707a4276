"""The sample log that ships with the package: one run, killed twice and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["SAMPLE_LOG"]

SAMPLE_LOG: Final = Path(__file__).parent / "data" / "sample.jsonl.gz"
"""A log of three runs of one training: 14 steps, two kills, two restores from a checkpoint."""
