"""Logs in other tools' formats: timelines, OTLP files and tables, from what a replay shows."""

from .exports import Export, MissingExtraError, Pairing
from .formats import FORMATS, Format
from .running import Exported, default_output, export_logs

__all__ = [
    "FORMATS",
    "Export",
    "Exported",
    "Format",
    "MissingExtraError",
    "Pairing",
    "default_output",
    "export_logs",
]
