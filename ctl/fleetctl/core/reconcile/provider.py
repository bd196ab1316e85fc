"""What is wrong with the provider or the state: what it keeps from being done, and how it is said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fleetctl.core.reconcile.shared import prepare_shared
from fleetctl.model.observation import ProviderFault
from fleetctl.model.reason import Reason, ReasonCode, join_messages
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.observation import Observation

_ASKED_STEP_S = 5.0  # `up` and `down` write a line whenever what they show has changed


def provider_reasons(observation: Observation) -> tuple[Reason, ...]:
    """Return what is wrong with the provider, the gravest first; none while nothing is."""
    message = [condition.message for condition in observation.provider_conditions]
    if not observation.listing_ok:
        message += _listing_messages(observation)
    elif observation.listing_silent_s > 0.0:
        silent_s = math.floor(observation.listing_silent_s / _ASKED_STEP_S) * _ASKED_STEP_S
        message += (f"the provider has not answered for {format_duration(silent_s)}", "what it last showed stands")
    return tuple(ReasonCode.PROVIDER_TROUBLE.because(each) for each in message)


def store_reasons(observation: Observation) -> tuple[Reason, ...]:
    """Return what is wrong with the state; none while nothing is."""
    if observation.store_condition is None:
        return ()
    return (ReasonCode.STATE_TROUBLE.because(f"{observation.store_condition}; nothing new is created"),)


def _listing_messages(observation: Observation) -> tuple[str, ...]:
    """Return why there is no current listing, and what follows."""
    follows = "nothing is believed gone"
    if observation.listing_failed:
        return ("the provider does not answer", follows)
    if observation.listing_partial:
        return ("the provider lists only a part of its nodes", follows)
    asked_s = math.floor(observation.listing_asked_s / _ASKED_STEP_S) * _ASKED_STEP_S
    return (f"the provider is being asked what there is ({format_duration(asked_s)})",)


def launches_blocked(observation: Observation, now: datetime) -> str:
    """Return why no new node may be ordered now; empty when one may."""
    if observation.store_condition is not None:
        return str(observation.store_condition)  # what cannot be written down is not created
    for condition in observation.provider_conditions:
        if condition.fault is ProviderFault.CREDENTIALS:
            return condition.message
    if waits := prepare_shared(observation, now).reasons:
        return join_messages(waits)
    return "" if observation.offerings_known else "the provider has not said yet what it sells"
