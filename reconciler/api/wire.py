"""What every message on our wire shares: how fields are spelled, how large they may be. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

# Beyond these nothing is meant, and it would fill a screen with digits.
Time = Annotated[float, Field(ge=0, le=1e11)]
Whole = Annotated[int, Field(gt=-(1 << 63), lt=1 << 63)]
Rate = Annotated[float, Field(ge=0, le=1e9)]  # a second
Bytes = Annotated[int, Field(ge=0, lt=1 << 63)]


class WireModel(BaseModel):
    """Base of every part: camelCase on the wire, frozen."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )
