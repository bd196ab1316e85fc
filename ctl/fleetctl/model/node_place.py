"""Where credentials lead: whose nodes a provider lists and makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """An account, a cluster: what neither a profile nor a variable has to name, and what another kubeconfig or login changes."""

    ids: tuple[str, ...]  # by which it is known, the same from every machine; one in common is enough
    name: str  # for people: "account 123456789012, us-east-1"
    chosen_by: str  # what leads there: "KUBECONFIG and its current context"

    def is_same(self, other: NodePlace) -> bool:
        """Whether two readings are of one place."""
        return not set(self.ids).isdisjoint(other.ids)
