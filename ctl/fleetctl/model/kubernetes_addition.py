"""Which other controllers of a cluster a rendered fleet has objects for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Where kube-prometheus puts the service that the operator makes.
PROMETHEUS_URL = "http://prometheus-operated.monitoring.svc:9090"


class KubernetesAddition(StrEnum):
    """Whose objects are written beside a fleet's own; each needs its CRDs in the cluster."""

    KEDA = "keda"  # replicas by the gateway's metrics; spec.replicas is left to it
    INFERENCE = "inference"  # InferencePool, InferenceObjective and the endpoint picker's configuration
    LLM_D = "llm-d"  # the same objectives in the API group of llm-d
    MONITORS = "monitors"  # PodMonitor, and the alerts as a PrometheusRule


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesAdditions:
    """What was chosen."""

    kinds: frozenset[KubernetesAddition] = frozenset()
    prometheus_url: str = PROMETHEUS_URL  # that KEDA reads

    def __contains__(self, kind: KubernetesAddition) -> bool:
        return kind in self.kinds


NO_ADDITIONS = KubernetesAdditions()
