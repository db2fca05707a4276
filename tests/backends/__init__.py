"""Tests against what users point it at: Jaeger, OTLP receivers, and ones that are away."""
