"""Desired + observation + memory + now -> Decision: the one policy that the controller and the simulations run.

Shadow mode does what an operator requested and only journals what the controller decides by itself:

- done: launching what `up` planned or `scale` set, once each; warming and admitting; recording deaths; drains by
  hand with their replacements; what `scale`, its end or an `up` for fewer made too many, once in shadow mode; retiring
  lanes the profile no longer has; steps pinned by `shed`; ending drains that were begun; keeping the gateway process;
  `down`.
- only journalled, marked `shadow`: replacing the dead, scaling by load, heeding notices, taking unhealthy replicas out
  of rotation, giving up slow starts, the ladder's own steps, ending orphaned nodes.

A fleet that is switched to shadow keeps what it has, also beyond its plan; one that is switched back to active is brought to what it should
have at the next tick.
"""

from fleetctl.core.reconcile.fleet import reconcile

__all__ = ["reconcile"]
