"""The metrics view: accumulators fed by a lifecycle, shown through instruments."""

from .accumulators import RolloutMetrics
from .instruments import MetricsView
from .views import rollout_views

__all__ = ["MetricsView", "RolloutMetrics", "rollout_views"]
