"""Desired + observation + memory + now -> Decision: the one policy that the controller and the simulations run."""

from fleetctl.core.reconcile.fleet import reconcile

__all__ = ["reconcile"]
