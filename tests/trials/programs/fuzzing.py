"""Looks for bytes that break a reader of logs, led by coverage: ``fuzzing.py FOLDER SECONDS``."""

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore] # installed where it can be

with atheris.instrument_imports(include=["otel_rollout_trace"]):
    import every_way  # type: ignore[import-not-found] # beside this program

log = Path(sys.argv[1]) / "fuzzed.jsonl"


def try_bytes(data: bytes) -> None:
    log.write_bytes(data)
    every_way.read_in_every_way(log)


corpus = Path(sys.argv[1]) / "corpus"
arguments = [sys.argv[0], str(corpus), f"-max_total_time={sys.argv[2]}", "-max_len=4000", "-seed=1"]
atheris.Setup(arguments, try_bytes)
atheris.Fuzz()
