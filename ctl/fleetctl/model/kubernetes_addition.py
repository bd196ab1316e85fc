"""Which other controllers of a cluster a rendered fleet has objects for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Where kube-prometheus puts the service that the operator makes.
PROMETHEUS_URL = "http://prometheus-operated.monitoring.svc:9090"


class KubernetesAddition(StrEnum):
    """What is written beside a fleet's own objects; those of other controllers need their CRDs in the cluster."""

    KEDA = "keda"  # replicas by the engines' own metrics; spec.replicas is left to it
    INFERENCE = "inference"  # InferencePool, InferenceObjective and the endpoint picker's configuration
    LLM_D = "llm-d"  # the same objectives in the API group of llm-d
    MONITORS = "monitors"  # PodMonitor, and the alerts as a PrometheusRule
    DELETION_COSTS = "deletion-costs"  # a pod of fleetctl's own that has idle pods scaled down first


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesAdditions:
    """What was chosen."""

    kinds: frozenset[KubernetesAddition] = frozenset()
    prometheus_url: str = PROMETHEUS_URL  # that KEDA reads
    image: str = ""  # of what fleetctl itself runs there
    namespace: str = "default"  # whose account that is

    def __contains__(self, kind: KubernetesAddition) -> bool:
        return kind in self.kinds


NO_ADDITIONS = KubernetesAdditions()
