"""What would fail in a cluster, looked at before anything is created: the API server, the namespace, rights, GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.catalogue.kubernetes_rights import (
    AUTOSCALER_NODE_RIGHTS,
    AUTOSCALER_RIGHTS,
    NETWORK_RIGHTS,
    NODE_RIGHTS,
    RIGHTS,
)
from fleetctl.errors import CredentialsError, ProviderError
from fleetctl.model.preflight import Finding, Verdict
from fleetctl_kubernetes.connection import NotThereError
from fleetctl_kubernetes.cordons import cordoned_text
from fleetctl_kubernetes.device_claims import claims_finding
from fleetctl_kubernetes.groups import group_finding
from fleetctl_kubernetes.network import network_finding
from fleetctl_kubernetes.placement import product_of
from fleetctl_kubernetes.pod_admission import admission_finding
from fleetctl_kubernetes.priorities import priority_finding
from fleetctl_kubernetes.reviews import may
from fleetctl_kubernetes.settings import NAMESPACE

if TYPE_CHECKING:
    from fleetctl.model.catalogue import Offering
    from fleetctl.model.preflight import PlannedNodes
    from fleetctl_kubernetes.connection import ClusterConnection
    from fleetctl_kubernetes.offer_list import ClusterOffers
    from fleetctl_kubernetes.settings import ClusterSettings


async def judge(
    connection: ClusterConnection, settings: ClusterSettings, nodes: tuple[PlannedNodes, ...], offers: ClusterOffers
) -> tuple[Finding, ...]:
    """Return the findings; where the API server does not answer that alone is one."""
    version = await connection.read("VersionApi", "get_code")
    answered = f"API server {version.get('gitVersion', '?')}, namespace {connection.namespace}"
    findings = [Finding(name="cluster", verdict=Verdict.OK, detail=answered)]
    findings.append(await _namespace(connection))
    findings.append(await _rights(connection, (*RIGHTS, *(NETWORK_RIGHTS if settings.gateway_source else ()))))
    findings += await admission_finding(connection, settings, nodes)
    findings.append(network_finding(settings))
    findings += await _autoscalers(connection)
    findings.append(await priority_finding(connection, settings))
    if (size := max((each.node_count for each in nodes), default=1)) > 1:
        findings.append(await group_finding(connection, size))
    findings += await claims_finding(connection, settings, nodes)
    findings += await offers.finding()
    findings += await _cordoned(connection)
    if nodes:
        findings.append(_gpus(nodes, offers.latest))
    return tuple(findings)


async def _namespace(connection: ClusterConnection) -> Finding:
    name = connection.namespace
    try:
        found = await connection.read("CoreV1Api", "read_namespace", name)
    except NotThereError:
        hint = f"kubectl create namespace {name}, or name another: provider.namespace, or {NAMESPACE}"
        return Finding(name="namespace", verdict=Verdict.FAIL, detail=f"{name} does not exist", hint=hint)
    except ProviderError as exc:
        hint = "whether pods can be made there shows once they are ordered"
        return Finding(name="namespace", verdict=Verdict.WARN, detail=f"{name}: {exc.message}", hint=hint)
    phase = found.get("status", {}).get("phase", "Active")
    if phase != "Active":
        hint = "wait until it has gone, and create it again"
        return Finding(name="namespace", verdict=Verdict.FAIL, detail=f"{name} is {phase}", hint=hint)
    return Finding(name="namespace", verdict=Verdict.OK, detail=f"{name} is {phase}")


async def _rights(connection: ClusterConnection, rights: tuple[tuple[str, str], ...]) -> Finding:
    missing = [f"{verb} {what}" for verb, what in rights if not await may(connection, verb, what, connection.namespace)]
    missing += [f"{verb} {what} (cluster)" for verb, what in NODE_RIGHTS if not await may(connection, verb, what, "")]
    if missing:
        hint = f"have them granted; see `kubectl auth can-i --list -n {connection.namespace}`"
        return Finding(name="rights", verdict=Verdict.FAIL, detail=f"not allowed: {', '.join(missing)}", hint=hint)
    return Finding(name="rights", verdict=Verdict.OK, detail=f"all {len(rights) + len(NODE_RIGHTS)} that are needed")


async def _autoscalers(connection: ClusterConnection) -> list[Finding]:
    """Return a warning where it cannot be seen what autoscalers do, nothing else."""
    missing = [
        f"{verb} {what}"
        for verb, what in AUTOSCALER_RIGHTS
        if not await may(connection, verb, what, connection.namespace)
    ]
    missing += [
        f"{verb} {what} (cluster)" for verb, what in AUTOSCALER_NODE_RIGHTS if not await may(connection, verb, what, "")
    ]
    if not missing:
        return []
    hint = "pods that no node has room for go elsewhere after 30 s, and only GPUs that are there are planned with"
    detail = f"what they do is not seen, not allowed: {', '.join(missing)}"
    return [Finding(name="autoscalers", verdict=Verdict.WARN, detail=detail, hint=hint)]


async def _cordoned(connection: ClusterConnection) -> list[Finding]:
    """Return a warning where machines with GPUs take nothing new, nothing else."""
    try:
        machines = await connection.read("CoreV1Api", "list_node", resource_version="0")
    except CredentialsError:
        return []  # said with the rights
    found = cordoned_text(machines["items"])
    if not found:
        return []
    hint = "they are not planned with; kubectl uncordon those that are to be"
    return [Finding(name="cordons", verdict=Verdict.WARN, detail=found, hint=hint)]


def _gpus(nodes: tuple[PlannedNodes, ...], sold: tuple[Offering, ...]) -> Finding:
    """Return whether the cluster has the GPUs in all; what others hold of them shows when pods are scheduled."""
    wanted: dict[str, int] = {}
    for each in nodes:
        gpu = each.offering.gpu
        wanted[gpu] = wanted.get(gpu, 0) + each.count * each.gpu_count * each.node_count
    # Nodes that different labels name may have the same GPU; what is there of each product counts once.
    products = {
        (each.gpu, product_of(each)): each.pool_gpus or 0 for each in (*sold, *(node.offering for node in nodes))
    }
    there = {gpu: sum(count for (of, _), count in products.items() if of == gpu) for gpu in wanted}
    short = [
        f"{count} {gpu} are to be had by the plan, and the cluster has, or can bring, {there[gpu]}"
        for gpu, count in wanted.items()
        if count > there[gpu]
    ]
    if short:
        hint = "pods beyond them stay Pending until nodes are added: plan fewer, or let a cluster autoscaler add them"
        return Finding(name="GPUs", verdict=Verdict.WARN, detail="; ".join(short), hint=hint)
    shown = ", ".join(
        f"the plan takes {count} of {there[gpu]} {gpu}"
        if count
        else f"the plan takes none of {there[gpu]} {gpu}: its engines are emulated, and their pods ask for no GPU"
        for gpu, count in wanted.items()
    )
    return Finding(name="GPUs", verdict=Verdict.OK, detail=shown)
