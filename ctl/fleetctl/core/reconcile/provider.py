"""What is wrong with the provider: what it keeps from being done, and how it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.model.observation import ProviderFault

if TYPE_CHECKING:
    from fleetctl.model.observation import Observation


def provider_reason(observation: Observation) -> str:
    """Return what is wrong with the provider, the gravest first; empty while nothing is."""
    message = [condition.message for condition in observation.provider_conditions]
    if not observation.listing_ok and not any(c.fault is ProviderFault.SILENT for c in observation.provider_conditions):
        message.append("the provider does not answer")
    if not observation.listing_ok:
        message.append("nothing is believed gone")
    return "; ".join(message)


def launches_blocked(observation: Observation) -> str:
    """Return why no new node may be ordered now; empty when one may."""
    for condition in observation.provider_conditions:
        if condition.fault is ProviderFault.CREDENTIALS:
            return condition.message
    return "" if observation.offerings_known else "the provider has not said yet what it sells"
