"""How a tier stood when one of its requests was refused, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.units import format_fraction

if TYPE_CHECKING:
    from fleetctl.core.dispatch.request import ActiveRequest


def standing_of(ended: ActiveRequest) -> str:
    """Return "tier free had 62% of the lane's tokens (its floor 5%, its due 12%); premium goes first"; "": it has no tier."""
    tier, standing = ended.tier, ended.standing
    if tier is None or standing is None:
        return ""
    had, floor, due = (format_fraction(round(each, 3)) for each in (standing.had, standing.floor, standing.due))
    text = (
        f"tier {tier.spec.name} had {had} of the lane's tokens in the last seconds (its floor {floor}, its due {due})"
    )
    if standing.client_share:
        text += f", its client {format_fraction(round(standing.client_share, 3))} of the tier's"
    return f"{text}; {standing.waiting_first} goes first" if standing.waiting_first else text
