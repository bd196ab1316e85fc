"""What a controller whose replicas are pods does in a cluster: the one list that roles grant, and that `doctor` looks through."""

from __future__ import annotations

# In its namespace, as (verb, resource), of a group other than the core as RESOURCE.GROUP: a Role with these is all that it needs there.
RIGHTS = (
    *((verb, "pods") for verb in ("create", "get", "list", "watch", "delete")),
    *((verb, "configmaps") for verb in ("create", "get", "list", "patch", "delete")),
    *((verb, "serviceaccounts") for verb in ("create", "get", "patch", "delete")),
    *((verb, "secrets") for verb in ("create",)),
    *((verb, "services") for verb in ("create", "get", "list", "patch", "delete")),
    *((verb, "poddisruptionbudgets.policy") for verb in ("create", "get", "list", "patch", "delete")),
    ("get", "pods/log"),
)
# To set labels back that somebody has taken from a pod; without it such a pod is known all the same, and the status says so. And for a
# drill, of whoever has it made; the controller that carries it out needs no more than the rights above.
IDENTITY_RIGHTS = (("patch", "pods"),)
# For who may reach the engines, where the profile says where its gateway is.
NETWORK_RIGHTS = tuple(
    (verb, "networkpolicies.networking.k8s.io") for verb in ("create", "get", "list", "patch", "delete")
)
# For replicas that span nodes, where a plan has some.
GROUP_RIGHTS = tuple(
    (verb, "leaderworkersets.leaderworkerset.x-k8s.io") for verb in ("create", "get", "list", "delete")
)
# For GPUs by DRA, where only ResourceSlices show them, or the profile says so. In its namespace, and of the whole cluster.
CLAIM_RIGHTS = tuple((verb, "resourceclaimtemplates.resource.k8s.io") for verb in ("create", "get"))
CLAIM_NODE_RIGHTS = (("list", "resourceslices.resource.k8s.io"), ("get", "deviceclasses.resource.k8s.io"))
# For offerings and for notices; of the whole cluster.
NODE_RIGHTS = (("list", "nodes"), ("watch", "nodes"))
# To know what autoscalers do for pods that wait, and what they could bring; without these a pod waits half a minute, and only
# nodes that are there are offered. In its namespace, and of the whole cluster.
AUTOSCALER_RIGHTS = (("list", "events"),)
AUTOSCALER_NODE_RIGHTS = (("list", "nodeclaims.karpenter.sh"), ("list", "nodepools.karpenter.sh"))
# For PriorityClasses of lanes; of the whole cluster, the latter for fleetctl's own by their names alone. Without these pods have none.
PRIORITY_RIGHTS = tuple((verb, "priorityclasses.scheduling.k8s.io") for verb in ("create", "list"))
PRIORITY_NAMED_RIGHTS = tuple((verb, "priorityclasses.scheduling.k8s.io") for verb in ("get", "patch", "delete"))
# To see whether its namespace is there; a Role in that namespace can grant it.
OWN_NAMESPACE_RIGHT = ("get", "namespaces")
# In the namespace of a state that is kept in the cluster; without the second line leases are not shown, and hold all the same.
STATE_RIGHTS = (
    *((verb, "configmaps") for verb in ("create", "get", "list", "patch", "delete")),
    *((verb, "leases.coordination.k8s.io") for verb in ("create", "get", "patch")),
)
# For whoever places controller and gateways in a cluster (`host: kubernetes`), in the fleet's namespace; to hand on rights takes having them.
_PLACED = ("create", "get", "patch", "delete")
HOST_RIGHTS = (
    *((verb, "deployments.apps") for verb in _PLACED),
    *((verb, "services") for verb in _PLACED),
    *((verb, "secrets") for verb in _PLACED),
    *((verb, "networkpolicies.networking.k8s.io") for verb in _PLACED),
    *((verb, "poddisruptionbudgets.policy") for verb in _PLACED),
    ("list", "pods"),
)
# For the controller of such a fleet, by the names of its own Secret, which its pod has mounted anyway, and of its gateways' Deployment:
# to see that they are there, and to make that Deployment again.
UPKEEP_RIGHTS = (("get", "secrets"), *((verb, "deployments.apps") for verb in ("create", "get", "patch")))
# The account of the pod and what it may do, unless there is one already: in the namespace, and of the whole cluster.
HOST_ACCOUNT_RIGHTS = (
    *((verb, "serviceaccounts") for verb in _PLACED),
    *((verb, "roles.rbac.authorization.k8s.io") for verb in _PLACED),
    *((verb, "rolebindings.rbac.authorization.k8s.io") for verb in _PLACED),
)
HOST_CLUSTER_RIGHTS = (
    *((verb, "clusterroles.rbac.authorization.k8s.io") for verb in _PLACED),
    *((verb, "clusterrolebindings.rbac.authorization.k8s.io") for verb in _PLACED),
)
# The ways of commands to the pods: either will do.
HOST_WAYS = (("get", "pods/proxy"), ("create", "pods/portforward"))
