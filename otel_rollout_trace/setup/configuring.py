"""`configure`: the drop-in."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from ..events import version_of
from ..metrics import rollout_views
from ..recorder import RolloutTrace, log_path
from ..resource import detect
from .exporters import (
    check_endpoint,
    exporter_names,
    label_of,
    make_exporter,
    protocol_of,
    target_of,
)
from .providers import CountingExporter, CountingProcessor, RolloutTracerProvider, Telemetry
from .sidecar import SideCar, recover

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider as ApiMeterProvider
    from opentelemetry.trace import TracerProvider as ApiTracerProvider

__all__ = [
    "DEFAULT_SERVICE_NAME",
    "configure",
    "make_meter_provider",
    "resource_of",
    "resource_of_run",
]

logger = logging.getLogger(__name__)

DEFAULT_SERVICE_NAME = "rollout-trace"

_T = TypeVar("_T")


class _WrongArgumentError(ValueError):
    """Something that the caller gave cannot be used."""


def configure(
    path: str | os.PathLike[str] | None = None,
    *,
    service_name: str | None = None,
    endpoint: str | None = None,
    protocol: str | None = None,
    headers: Mapping[str, str] | None = None,
    resource_attributes: Mapping[str, str | int | float | bool] | None = None,
    synonyms: Mapping[str, str] | None = None,
    close_timeout: float = 5.0,
    export: Literal["process", "sidecar"] = "process",
) -> RolloutTrace:
    """Record a run in a log and send it to an OTLP backend: everything in one call.

    Builds a tracer and a meter provider from the standard ``OTEL_*`` variables,
    makes them the global ones, and opens the log. Where a provider is set
    already, that one is used as it is. Whatever is given here wins over the
    environment. With ``OTEL_SDK_DISABLED=true`` only the file is written.

    Args:
        path: the log, or its directory. ``OTEL_ROLLOUT_TRACE_PATH`` by default,
            and without it ``rollout_trace.jsonl`` in the working directory.
        service_name: what backends list the run under; ``rollout-trace`` by default.
        endpoint: an OTLP receiver's address, ``http://host:4317`` or ``:4318``.
        protocol: ``grpc`` or ``http/protobuf``; by default what the port is for.
        headers: sent with every request, say for authentication.
        resource_attributes: more that is true of everything sent.
        synonyms: other words for events of the log, as ``{word: event}``.
        close_timeout: how long `RolloutTrace.close` may take, in seconds.
        export: who makes and sends spans and metrics. ``process``: this one, on a
            thread. ``sidecar``: a process of its own that follows the log, which
            costs this one nothing more and survives its being killed; no provider
            is set then.

    Returns:
        The trace, to be closed at the end of the run (or by the interpreter's exit).

    Raises:
        ValueError: for arguments that cannot be used. What the environment has
            wrong is logged, and does without: it does not stop a training run.

    Example:
        >>> trace = configure("rollout_trace.jsonl")  # doctest: +SKIP
        >>> trace.emit("group_reserved", group_id="g1", prompt_id=17)  # doctest: +SKIP
    """
    if export not in ("process", "sidecar"):
        raise ValueError(f"export={export!r} is neither 'process' nor 'sidecar'")
    # Importing these later would keep the thread that writes from writing.
    for module in ("projection", "pricing", "spans.emit", "metrics"):
        import_module(f"{__package__.rpartition('.')[0]}.{module}")
    run = uuid.uuid4().hex
    log = log_path(path)
    otlp = {"endpoint": endpoint, "protocol": protocol, "headers": headers}
    if endpoint or protocol:
        protocol_of("traces", endpoint, protocol)  # a wrong argument is the caller's to hear of
    settings: dict[str, Any] = {"synonyms": synonyms, "close_timeout": close_timeout, "run": run}
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    tracer_provider: RolloutTracerProvider | None = None
    meter_provider: MeterProvider | None = None
    exporters: list[CountingExporter] = []
    resource: Resource | None = None
    set_already = False
    if not disabled:
        resource = resource_of(run, service_name, resource_attributes)
        # So that a replay sends the very spans, where they came from included.
        settings["opened"] = {"resource": dict(resource.attributes)}
        if endpoint:
            check_endpoint(endpoint)
        if export == "sidecar":
            sidecar = SideCar(log, otlp, synonyms)
            # Before there is anything to lose.
            sidecar.start(run)
            return RolloutTrace(
                log, project=False, on_open=sidecar.ensure, on_close=sidecar.finish, **settings
            )
        set_already = not _unset(trace.get_tracer_provider(), "tracer")
        if not set_already:
            made = _without_errors(lambda: _tracer_provider(resource, log, otlp))
            tracer_provider, exporters = made or (None, [])
        if _unset(metrics.get_meter_provider(), "meter"):
            meter_provider = _without_errors(lambda: make_meter_provider(resource, **otlp))
    if tracer_provider is not None:
        trace.set_tracer_provider(tracer_provider)
    if meter_provider is not None:
        metrics.set_meter_provider(meter_provider)
    if set_already and (endpoint or protocol or headers):
        logger.warning("a tracer provider is set already: endpoint, protocol, headers are its own")
    telemetry = _ours(trace.get_tracer_provider())
    if telemetry is None or tracer_provider is not None or meter_provider is not None:
        telemetry = Telemetry(tracer_provider, meter_provider, exporters)

    def opened(run: str) -> None:
        if tracer_provider is not None:
            telemetry.keeper.begin(run, log)
            recover(log, otlp)

    return RolloutTrace(
        log,
        on_open=opened,
        on_close=lambda run, left: telemetry.drain(left, log, run),
        **settings,
    )


def resource_of(
    run: str,
    service_name: str | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Resource:
    """The resource of a run in this process.

    ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` win over what is
    detected, and what is given wins over them.
    """
    merged = _base(run, detect())
    merged.update(attributes or {})
    if service_name:
        merged["service.name"] = service_name
    return Resource(merged)


def resource_of_run(run: str, opened: Mapping[str, Any]) -> Resource:
    """The resource of a run that another process recorded, as far as its log tells.

    Not where this process runs: a replay on a laptop must not say that the run was there.

    Args:
        run: the run's id.
        opened: its ``trace_opened`` event, empty where the log has none.
    """
    told = opened.get("resource")
    if isinstance(told, dict):
        plain = {key: value for key, value in told.items() if isinstance(value, (str, int, float))}
        return Resource(plain | {"service.instance.id": run})
    pid = version_of(opened.get("pid"))
    return Resource(_base(run, {"process.pid": pid} if pid is not None else {}))


def _base(run: str, detected: Mapping[str, Any]) -> dict[str, Any]:
    """What the SDK says of itself, what is detected, what the environment says; in this order."""
    return {
        **Resource.create().attributes,
        "service.name": DEFAULT_SERVICE_NAME,
        # The SDK makes one up, and a run has one.
        "service.instance.id": run,
        **detected,
        **OTELResourceDetector().detect().attributes,
    }


def _ours(provider: ApiTracerProvider) -> Telemetry | None:
    """What an earlier call of `configure` set up, to be drained for this log too."""
    return provider.telemetry if isinstance(provider, RolloutTracerProvider) else None


def _unset(provider: ApiTracerProvider | ApiMeterProvider, kind: str) -> bool:
    if type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics")):
        return True  # the API's own stand-in
    if not isinstance(provider, RolloutTracerProvider):
        logger.info("using the %s provider that is set already", kind)
    return False


def _without_errors(make: Callable[[], _T]) -> _T | None:
    """What can be made of the environment; a run is not stopped for what it has wrong."""
    try:
        return make()
    except _WrongArgumentError:
        raise
    except Exception as error:
        logger.error("no spans and metrics are sent, the log is written: %s", error)
        return None


def _tracer_provider(
    resource: Resource, log: Any, otlp: dict[str, Any]
) -> tuple[RolloutTracerProvider | None, list[CountingExporter]]:
    exporters: list[CountingExporter] = []
    for name in exporter_names("traces"):
        if name == "rollout_jsonl" and log_path(None) == log:
            continue  # the trace writes that file itself, as things happen
        exporter = _made(name, "traces", otlp)
        if exporter is not None:
            target = name
            if name == "otlp":
                chosen = protocol_of("traces", otlp["endpoint"], otlp["protocol"])
                target = target_of("traces", otlp["endpoint"], otlp["protocol"])
                target = label_of(target, chosen)
            again = partial(_made, name, "traces", otlp)
            exporters.append(CountingExporter(exporter, target, again))
    if not exporters:
        return None, []
    provider = RolloutTracerProvider(resource)
    for counting in exporters:
        provider.add_span_processor(CountingProcessor(counting))
    return provider, exporters


def make_meter_provider(resource: Resource, **otlp: Any) -> MeterProvider | None:
    """A meter provider as the environment says; None where no metrics are to be sent.

    Args:
        resource: of everything that goes through it.
        otlp: settings for `make_otlp_exporter`.
    """
    readers: list[MetricReader] = []
    for name in exporter_names("metrics"):
        exporter = _made(name, "metrics", otlp)
        if isinstance(exporter, MetricReader):
            readers.append(exporter)
        elif exporter is not None:
            readers.append(PeriodicExportingMetricReader(exporter))
    if not readers:
        return None
    return MeterProvider(
        metric_readers=readers, resource=resource, views=rollout_views(), shutdown_on_exit=False
    )


def _made(name: str, signal: Any, otlp: Mapping[str, Any]) -> Any:
    try:
        return make_exporter(name, signal, **(otlp if name == "otlp" else {}))
    except Exception as error:
        if otlp.get("endpoint") and name == "otlp" and isinstance(error, ValueError):
            raise _WrongArgumentError(str(error)) from None
        logger.error("%s exporter %r cannot be used: %s", signal, name, error)
        return None
