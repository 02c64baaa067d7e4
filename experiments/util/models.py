"""The base of models that are read from files."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A model that cannot be changed, and that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FiniteModel(FrozenModel):
    """The same for records: it also refuses numbers that are not finite."""

    model_config = ConfigDict(allow_inf_nan=False)
