"""Desired + observation + memory + now -> Decision: the one policy that the controller and the simulations run.

Shadow mode parts what a person ordered from what the controller thinks of, and does only the first:

- done: launching what `up` planned or `scale` set, once each; warming and admitting; recording deaths; drains by
  hand with their replacements; what `scale` made too many; retiring lanes the profile no longer has; steps pinned by
  `shed`; ending drains that were begun; keeping the gateway process; `down`.
- only journalled, marked `shadow`: replacing the dead, scaling by load, heeding notices, taking the sick out of
  rotation, giving up slow starts, the ladder's own steps, ending strays.

A fleet that is switched to shadow keeps what it has; one that is switched back to active is brought to what it should
have at the next tick.
"""

from fleetctl.core.reconcile.fleet import reconcile

__all__ = ["reconcile"]
