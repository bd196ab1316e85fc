"""A pod that Pod Security refuses: how the API server says so, and what is to be done about it."""

from __future__ import annotations

POD_SECURITY = "violates PodSecurity"  # in the words of the API server's admission
POD_SECURITY_HINT = (
    "the namespace's label pod-security.kubernetes.io/enforce refuses it: have whoever runs the cluster lower it for this "
    "namespace, or name another (provider.namespace)"
)
