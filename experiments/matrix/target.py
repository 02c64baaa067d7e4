"""The target of a matrix: how good a model must be for the report to say how long that took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from training.settings import DataSettings

LOSS: Final = "loss"  # which every workload wants small
OF_TEST: Final = "test_"  # how metrics of the test split begin


class Target(BaseModel):
    """A metric of the validation split, and the value that it must reach."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"oneOf": [{"required": ["at_least"]}, {"required": ["at_most"]}]},
    )

    metric: Annotated[str, Field(min_length=1, max_length=60)]
    at_least: float | None = None  # exactly one of the two
    at_most: float | None = None

    @field_validator("metric")
    @classmethod
    def _of_validation(cls, metric: str) -> str:
        if metric.startswith(OF_TEST):
            raise ValueError(
                f"{metric} is of the test split, which is looked at only once, at the end; name a metric of "
                "the validation split"
            )
        return metric

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(
                "it has either at_least or at_most (where less is better, as of a loss); give exactly one"
            )
        return self

    def is_met_by(self, value: float) -> bool:
        """Whether a value of the metric reaches the target."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


def target_fault(target: Target, data: Iterable[DataSettings]) -> str | None:
    """Why a target points the wrong way, as a sentence; None if it doesn't, as far as the data tell.

    Args:
        target: the matrix's.
        data: settings of the data of its runs, which know by which metric their models are judged.
    """
    judging = [each for each in data if each.metric == target.metric]
    less = target.metric == LOSS or any(not each.higher_is_better for each in judging)
    if less and target.at_least is not None:
        return f"less {target.metric} is better; give the target at_most, not at_least."
    # Nobody has told which way the metrics of a program with its own loop go.
    more = any(each.higher_is_better and not each.has_own_loop for each in judging)
    if more and target.at_most is not None:
        return f"more {target.metric} is better; give the target at_least, not at_most."
    return None
