"""The objects of a fleet's gateways where each is a pod: a Deployment, whom their control port lets in, a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleetctl.catalogue import kubernetes_parts as parts
from fleetctl.catalogue.kubernetes_objects import PROMETHEUS
from fleetctl.model.gateway_process import LIVEZ, READYZ
from fleetctl.model.tls import SECRET_AT
from fleetctl_kubernetes.settings import FLEET, label_value

if TYPE_CHECKING:
    from collections.abc import Mapping

Object = dict[str, Any]
SECRETS_AT = "/etc/fleetctl"
# Endpoints follow a pod's deletion within a second or two, and proxies their change: until then new clients still come.
_LEAVE_S = 8
# What an answer under way may take. A pod that has none left ends at once.
_FINISH_S = 600
_SPARE_S = 12
_LOOPBACK = "127.0.0.1"  # where a port-forward ends


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayObjects:
    """Those of one fleet, without metadata."""

    fleet: str
    secret: str  # that has the gateways' token
    labels: dict[str, str]  # by which their pods are found
    controller: dict[str, str]  # the labels of the pod that may call them
    port: int
    control_port: int
    prometheus: bool = False  # Prometheus' pods read figures at the control port
    pull_secrets: tuple[str, ...] = ()  # that nodes pull the image with
    tls_secret: str = ""  # that has their certificate; empty: clients are served in clear

    def deployment(self, image: str, *, replicas: int, annotations: Mapping[str, str]) -> Object:
        """Return the Deployment: one more pod at a time while they are replaced, as for new annotations, and never one fewer that is ready."""
        made = parts.deployment(
            self._container(image),
            selector=self.labels,
            labels={"app.kubernetes.io/component": "gateway", FLEET: label_value(self.fleet)},
            annotations=annotations,
            account="default",
            pull_secrets=self.pull_secrets,
            volumes=[
                {"name": "state", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "token", "secret": self._token()},
                *([parts.tls_volume(self.tls_secret)] if self.tls_secret else ()),
            ],
        )
        made["spec"] |= {
            "replicas": replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        }
        pod = made["spec"]["template"]["spec"]
        del pod["shareProcessNamespace"]  # it starts nothing
        pod |= {
            # It speaks to engines and clients alone.
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": _LEAVE_S + _FINISH_S + _SPARE_S,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": self.labels},
                }
            ],
        }  # fmt: skip
        return made

    def network_policy(self) -> Object:
        """Return who reaches which port: clients the public one, from anywhere; the controller's pod the other, and Prometheus."""
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "spec": {
                "podSelector": {"matchLabels": self.labels},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"ports": [{"protocol": "TCP", "port": self.port}]},
                    {
                        "from": [
                            {"podSelector": {"matchLabels": self.controller}},
                            *((PROMETHEUS,) if self.prometheus else ()),
                        ],
                        "ports": [{"protocol": "TCP", "port": self.control_port}],
                    },
                ],
            },
        }

    def budget(self) -> Object:
        """Return the budget by which evictions take one at a time."""
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": self.labels},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }

    def _token(self) -> Object:
        """Return the one key of the Secret that a gateway may read."""
        item = {"key": parts.GATEWAY_TOKEN_FILE, "path": parts.GATEWAY_TOKEN_FILE}
        return {"secretName": self.secret, "defaultMode": 0o440, "items": [item]}

    def _container(self, image: str) -> Object:
        command = [
            "python", "-m", "fleetctl.gateway", self.fleet, "--host", f"$({parts.POD_ADDRESS})", "--also-on", _LOOPBACK,
            "--port", str(self.port), "--beside", "--control-port", str(self.control_port),
            "--control-token", f"{SECRETS_AT}/{parts.GATEWAY_TOKEN_FILE}",
            "--leave-s", str(_LEAVE_S), "--stop-timeout-s", str(_FINISH_S), *(["--open-metrics"] if self.prometheus else ()),
            *(["--tls", "--tls-directory", SECRET_AT] if self.tls_secret else ()),
        ]  # fmt: skip
        made = parts.container(
            image, command, variables={parts.POD_ADDRESS: "field:status.podIP"}, port=self.port,
            mounts=[
                {"name": "state", "mountPath": parts.HOME},
                {"name": "token", "mountPath": SECRETS_AT, "readOnly": True},
                *([parts.TLS_MOUNT] if self.tls_secret else ()),
            ],
        )  # fmt: skip
        made["name"] = "gateway"
        made["ports"].append({"name": "control", "containerPort": self.control_port})
        made["readinessProbe"] = {
            "httpGet": {"path": READYZ, "port": "control"}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2,
        }  # fmt: skip
        made["livenessProbe"] = {
            "httpGet": {"path": LIVEZ, "port": "control"}, "initialDelaySeconds": 15, "periodSeconds": 5,
            "timeoutSeconds": 5, "failureThreshold": 6,
        }  # fmt: skip
        return made
