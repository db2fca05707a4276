"""Where a run runs: host, process, Slurm job, Kubernetes pod, Ray job.

Also a plug-in for the SDK: ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=rollout``. The
SDK loads it while it is half imported itself, hence a module of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from opentelemetry.sdk.resources import Resource, ResourceDetector

__all__ = ["RolloutResourceDetector", "detect"]

#: Resource attributes, by the variable that holds them.
VARIABLES: Final = {
    "SLURM_JOB_ID": "slurm.job.id",
    "SLURM_JOB_NAME": "slurm.job.name",
    "SLURM_JOB_PARTITION": "slurm.job.partition",
    "SLURM_ARRAY_JOB_ID": "slurm.array.job.id",
    "SLURM_ARRAY_TASK_ID": "slurm.array.task.id",
    "SLURM_RESTART_COUNT": "slurm.restart.count",
    "SLURM_STEP_ID": "slurm.step.id",
    "SLURM_NODEID": "slurm.node.id",
    "SLURM_PROCID": "slurm.proc.id",
    "SLURM_CLUSTER_NAME": "slurm.cluster.name",
    "RAY_JOB_ID": "ray.job.id",
    "RAY_SUBMISSION_ID": "ray.submission.id",
    "RAY_NODE_ID": "ray.node.id",
    "RAY_CLUSTER_NAME": "ray.cluster.name",
    "POD_NAME": "k8s.pod.name",
    "POD_NAMESPACE": "k8s.namespace.name",
    "POD_UID": "k8s.pod.uid",
    "NODE_NAME": "k8s.node.name",
}

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def detect(environ: Mapping[str, str] | None = None) -> dict[str, str | int]:
    """What is known of this process, as resource attributes.

    Args:
        environ: the environment to look in; the process's own by default.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, str | int] = {"host.name": socket.gethostname(), "process.pid": os.getpid()}
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environ
    for variable, attribute in VARIABLES.items():
        value = environ.get(variable)
        # A pod's variables have names that others use too.
        if value and (in_kubernetes or not attribute.startswith("k8s.")):
            found[attribute] = value
    if in_kubernetes:
        found.setdefault("k8s.pod.name", environ.get("HOSTNAME") or socket.gethostname())
        try:
            namespace = _NAMESPACE_FILE.read_text().strip()
        except (OSError, ValueError):
            namespace = ""
        if namespace:
            found.setdefault("k8s.namespace.name", namespace)
    return found


class RolloutResourceDetector(ResourceDetector):
    """`detect` for the SDK."""

    def detect(self) -> Resource:
        """See ``opentelemetry.sdk.resources.ResourceDetector``."""
        # No schema URL: two different ones would drop the whole update.
        return Resource(detect())
