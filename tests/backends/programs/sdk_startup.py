"""Emits a log's events where the SDK set itself up: ``sdk_startup.py LOG SOURCE``.

Does what ``opentelemetry-instrument`` does before a program runs, with the class
that the configurators of all distributions are made from.
"""

import json
import sys
from typing import Any

from opentelemetry.sdk._configuration import _OTelSDKConfigurator


class Configurator(_OTelSDKConfigurator):
    """A distribution's own."""


configurator: Any = Configurator
configurator().configure(auto_instrumentation_version="")

import otel_rollout_trace  # noqa: E402 - programs are imported once the SDK is set up

with otel_rollout_trace.RolloutTrace(sys.argv[1]) as trace, open(sys.argv[2]) as source:
    for line in source:
        event = json.loads(line)
        del event["run"]
        trace.emit(event.pop("event"), **event)
