"""Whether a namespace takes the engines' pods: one of each kind is handed in, and nothing of it kept (a dry run)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError, FleetctlError
from fleetctl.model.catalogue import Market
from fleetctl.model.node import ContainerLaunch, NodeRequest
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes import manifest
from fleetctl_kubernetes.connection import NOT_ALLOWED, NoAnswerError, NotThereError, TerminatingError
from fleetctl_kubernetes.pod_security import POD_SECURITY, POD_SECURITY_HINT

if TYPE_CHECKING:
    from fleetctl.model.node import Mount
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.settings import ClusterSettings

Object = dict[str, Any]
_NAME = "pods"
_TRIAL = "preflight"  # stands for what an order names, and no admission looks at


async def admission_finding(
    connection: ClusterConnection, settings: ClusterSettings, nodes: tuple[PlannedNodes, ...]
) -> tuple[Finding, ...]:
    """Return what the API server's admission says of the engines' pods; nothing where that cannot be asked, which others say."""
    kinds = dict.fromkeys((each.image or settings.image, each.mounts) for each in nodes)
    for image, mounts in kinds or ((settings.image, ()),):
        try:
            await connection.read(
                "CoreV1Api",
                "create_namespaced_pod",
                connection.namespace,
                _trial(image, mounts, settings),
                dry_run="All",
            )
        except (NotThereError, TerminatingError, NoAnswerError):
            return ()
        except CredentialsError as exc:
            if exc.message.startswith(NOT_ALLOWED):
                return ()
            return (_refused(exc, Verdict.FAIL),)
        except FleetctlError as exc:
            # A quota that is used up now may have room once pods are ordered.
            return (_refused(exc, Verdict.FAIL if POD_SECURITY in exc.message else Verdict.WARN),)
    return (Finding(name=_NAME, verdict=Verdict.OK, detail="the namespace takes the engines'"),)


def _refused(error: FleetctlError, verdict: Verdict) -> Finding:
    message = error.message.partition(": ")[2] if POD_SECURITY in error.message else error.message
    hint = POD_SECURITY_HINT if POD_SECURITY in error.message else error.hint
    detail = f"the namespace refuses the engines': {message}"
    return Finding(name=_NAME, verdict=verdict, detail=detail, hint=hint or "have whoever runs the cluster allow them")


def _trial(image: str, mounts: tuple[Mount, ...], settings: ClusterSettings) -> Object:
    """Return the pod of an order with this image, which admission may go by, and these mounts, but for what belongs to a fleet."""
    request = NodeRequest(
        token=_TRIAL,
        owner=_TRIAL,
        fleet=_TRIAL,
        replica_id=_TRIAL,
        lane=_TRIAL,
        offering=_TRIAL,
        market=Market.ON_DEMAND,
        notice_s=0.0,
        argv=(),
        env={},
        host=manifest.OWN_ADDRESS,
        port=manifest.PORT,
        tags={},
        container=ContainerLaunch(image=image or _TRIAL, entrypoint=(), args=(), mounts=mounts),
    )
    anchor = {"kind": "ConfigMap", "metadata": {"name": _TRIAL, "uid": _TRIAL}}
    pod = manifest.pod_of(request, image="", anchor=anchor, secrets=(), pull_secrets=settings.image_pull_secrets)
    del pod["metadata"]["ownerReferences"], pod["spec"]["serviceAccountName"]  # there is no fleet yet
    return pod
