"""What every section of a profile's YAML shares."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Section(BaseModel):
    """Base of every section: unknown keys are faults, and 5 is not "5"."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)
