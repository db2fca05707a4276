"""See inside an asynchronous RL post-training run: its rollout log as OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .batch_age import (
    BATCH_AGE_TOKENS_METRIC,
    BATCH_AGE_VERSION_SUM_METRIC,
    RefitCuts,
    batch_age_by_step,
    batch_age_group_metrics,
    pop_batch_age,
    tokens_by_version,
)
from .journal import LogError, read_events
from .version import __version__

if TYPE_CHECKING:
    from .cost import Cost, cost_of
    from .exporter import JsonlSpanExporter
    from .metrics import rollout_views
    from .recorder import ROLLOUT_TRACE_FILENAME, RolloutTrace
    from .replaying import Replayed, replay
    from .setup.configuring import configure
    from .spans import attempt_context

__all__ = [
    "BATCH_AGE_TOKENS_METRIC",
    "BATCH_AGE_VERSION_SUM_METRIC",
    "ROLLOUT_TRACE_FILENAME",
    "Cost",
    "JsonlSpanExporter",
    "LogError",
    "RefitCuts",
    "Replayed",
    "RolloutTrace",
    "__version__",
    "attempt_context",
    "batch_age_by_step",
    "batch_age_group_metrics",
    "configure",
    "cost_of",
    "pop_batch_age",
    "read_events",
    "replay",
    "rollout_views",
    "tokens_by_version",
]

# The rest is imported when it is asked for: training code that only holds a disabled
# trace does not pay for OpenTelemetry, and who only reads a log not for recording.
_LATER = {
    "Cost": "cost",
    "JsonlSpanExporter": "exporter",
    "ROLLOUT_TRACE_FILENAME": "recorder",
    "Replayed": "replaying",
    "RolloutTrace": "recorder",
    "attempt_context": "spans",
    "configure": "setup",
    "cost_of": "cost",
    "replay": "replaying",
    "rollout_views": "metrics",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value
