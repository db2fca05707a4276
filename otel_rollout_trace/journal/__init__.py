r"""The log as a file: how it is read, and how it is written.

On disk the log is UTF-8 JSON Lines: one strict JSON object a line, ended by one
``\n``, with ``t``, ``run`` and ``event`` first. A file may hold several runs,
one after another or interleaved, told apart by ``run``. It is only ever
appended to, a batch of whole lines at a time, so what a kill can leave behind
is one torn line at the end, which the next run separates from its own lines.
"""

from .lines import LineMaker, decode_line, recover
from .reader import BadLine, LogError, LogReader, read_events
from .writer import LogWriter

__all__ = [
    "BadLine",
    "LineMaker",
    "LogError",
    "LogReader",
    "LogWriter",
    "decode_line",
    "read_events",
    "recover",
]
