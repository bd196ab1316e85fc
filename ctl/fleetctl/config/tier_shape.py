"""A tier's YAML, key by key."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.fields import SHARE_SCHEMA, Share, share_of
from fleetctl.config.generation_shape import AnswerBoundsShape
from fleetctl.config.lane_shape import LaneSloShape
from fleetctl.config.section import ProfileSection
from fleetctl.model.tiers import TierSpec
from fleetctl.units import format_fraction

_TIER = TierSpec(name="")
# Each costs a figure of every kind a lane, and a look at its queue whenever a slot becomes free.
TIERS_MAX = 8
_WEIGHT_MAX = 1000.0


def _above_zero(value: object) -> float:
    found = share_of(value)
    if found <= 0.0:
        raise ValueError("must be above 0%, or its requests would never be served")
    return found


PositiveShare = Annotated[float, BeforeValidator(_above_zero), WithJsonSchema(SHARE_SCHEMA)]


class TierShape(ProfileSection):
    """One class of service: what it gets where not all can be served."""

    weight: Annotated[float, Field(gt=0, le=_WEIGHT_MAX, allow_inf_nan=False)] = Field(
        default=_TIER.weight,
        description="Its part of a lane's tokens beyond all floors, among the tiers that want more: 6 gets twice what 3 gets.",
    )
    floor: Share = Field(
        default=_TIER.floor,
        description="The share of a lane's served tokens that it gets if it wants it, whatever the others want.",
    )
    max_share: PositiveShare = Field(
        default=_TIER.max_share, description="The most of a lane's slots, and of its queue, that it may hold."
    )
    slo: LaneSloShape | None = Field(
        default=None,
        description="What is promised to it: these metrics in place of the lane's, in lanes that promise them. Unset: the lane's.",
    )
    generation: AnswerBoundsShape | None = Field(
        default=None, description="The bounds of its answers. Of these and the lane's the stricter one holds."
    )
    retry_budget: Share | None = Field(
        default=_TIER.retry_budget,
        description="The share of a client's requests that may be retries of refused ones while others wait. Unset: any.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> TierShape:
        if self.floor > self.max_share:
            raise ValueError(
                f"floor ({format_fraction(self.floor)}) is above max_share ({format_fraction(self.max_share)})"
            )
        return self
