"""The SDK's Views for these instruments: bucket bounds and attribute sets."""

from __future__ import annotations

from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

from .table import HISTOGRAMS

__all__ = ["rollout_views"]


def rollout_views() -> list[View]:
    """Views for a ``MeterProvider`` of one's own.

    They set bucket bounds that fit rollouts, which take minutes, and ages, which
    are small numbers, where the SDK's defaults would put all of them into a few.

    Example:
        >>> MeterProvider(metric_readers=[reader], views=rollout_views())  # doctest: +SKIP
    """
    return [
        View(
            instrument_name=histogram.name,
            attribute_keys=set(histogram.labels),
            aggregation=ExplicitBucketHistogramAggregation(boundaries=histogram.bounds),
        )
        for histogram in HISTOGRAMS
    ]
