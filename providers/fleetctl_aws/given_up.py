"""What instances tell of engines that they start no more: of which order, and how those ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.model.crash_loop import CrashLoop
from fleetctl.model.node import NodeState
from fleetctl.printable import printable
from fleetctl_aws.instances import ENDED_ITSELF

if TYPE_CHECKING:
    from fleetctl.model.node import Node

_TAIL_CHARS_MAX, _HOW_CHARS_MAX = 4_000, 160
_STARTED = (NodeState.STARTING, NodeState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """One slot's engine, as its instance tells it."""

    order: str  # whose engine it was; empty: the only one of an instance that nobody shares
    loop: CrashLoop

    def is_of(self, token: str) -> bool:
        """Whether it was the engine of an order: a slot may have been given to another meanwhile."""
        return self.order in ("", token)


def given_up_in(page: dict[str, Any]) -> dict[int, GivenUp]:
    """Return by slot the engines that an instance starts no more; what is in another form says nothing."""
    found: dict[int, GivenUp] = {}
    slots = page.get("given_up")
    for number, slot in slots.items() if isinstance(slots, dict) else ():
        try:
            loop = CrashLoop(
                ends=int(slot["ends"]),
                within_s=float(slot["within_s"]),
                exit_reason=printable(str(slot["how"])[:_HOW_CHARS_MAX]),
                log_tail=str(slot["tail"])[-_TAIL_CHARS_MAX:],
            )
            found[int(number)] = GivenUp(order=str(slot["order"]), loop=loop)
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
    return found


def with_crash_loop(node: Node, given_up: GivenUp | None) -> Node:
    """Return a node whose engine was given up with how that ended; one that has ended since, with why."""
    if given_up is None or not given_up.is_of(node.token):
        return node
    if node.state in _STARTED:
        return replace(node, crash_loop=given_up.loop)
    if node.state is NodeState.GONE:
        reason = given_up.loop.text if node.exit_reason == ENDED_ITSELF else node.exit_reason
        return replace(node, exit_reason=reason, log_tail=given_up.loop.log_tail)
    return node
