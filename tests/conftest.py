"""Settings of all tests."""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import HealthCheck, settings

# Machines differ in how long an example takes; the suite has a timeout of its own.
_COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))

# The same examples every time, so that a red build is red again.
settings.register_profile("repeatable", _COMMON, max_examples=60, derandomize=True, database=None)
# The first of those, for one Python after another.
settings.register_profile("brief", settings.get_profile("repeatable"), max_examples=20)
# New ones each time, for looking for trouble: HYPOTHESIS_PROFILE=search
settings.register_profile("search", _COMMON, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> None:
    """The command line quietens the package's logger, for the rest of its process."""
    logging.getLogger("otel_rollout_trace").setLevel(logging.NOTSET)
