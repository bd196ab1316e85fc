"""What every section of a profile's YAML shares."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


def key_of(field: str) -> str:
    """Return the YAML key of a noun's field: the same without its unit, which the value carries there."""
    return re.sub(r"_(s|bytes|usd)(?=_|$)", "", field)


class ProfileSection(BaseModel):
    """Base of every section: unknown keys are faults, and 5 is not "5".

    A field is called as in the noun that `build` makes of the section: `max_wait_s` is written `max_wait: 10ms`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False, alias_generator=key_of)
