"""References: the figures that an inventory expects of cells, with tolerances, and where they are kept.

(The dissertation's measurements are in experiments/analysis/dissertation.yml.)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from experiments.matrix.model import FIELDS, OF_DATA
from experiments.util.errors import UserError
from experiments.util.files import json_text, write_whole
from training.spec import explain

FILE: Final = "references.json"  # in a campaign, if they have changed since it began
OVERHEADS: Final = ("overhead_train", "overhead_total")  # fractions that may be below 0
QUANTITIES: Final = ("train_s", "total_s", "accuracy", "speed_up", "efficiency", *OVERHEADS)
AXES: Final = (FIELDS | {"stack"}) - {"seed"}

Tolerance = Annotated[float, Field(ge=0)]


class Reference(BaseModel):
    """One entry of the inventory's `references`: which cells, which of their figures, and its band.

    Anything that is not a field of this class is an axis with the value that a cell must have; other axes may
    have any value. Figures are named and measured as in experiments/analysis/figures.py.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    matrix: Annotated[str, Field(min_length=1)] | None = None  # None = any matrix
    train_s: float | None = None
    total_s: float | None = None
    accuracy: float | None = None
    speed_up: float | None = None
    efficiency: float | None = None
    overhead_train: float | None = None
    overhead_total: float | None = None
    below: Tolerance | None = None  # as a fraction of the reference: 0.1 = 10 %; None = open on this side
    above: Tolerance | None = None

    @property
    def axes(self) -> dict[str, Any]:
        """The axis values of the cells that it applies to."""
        return dict(self.model_extra or {})

    @property
    def quantity(self) -> str:
        """The figure of a cell that it applies to."""
        return next(name for name in QUANTITIES if getattr(self, name) is not None)

    @property
    def value(self) -> float:
        """The expected value."""
        return float(getattr(self, self.quantity))

    @property
    def low(self) -> float | None:
        """The band's lower end; None where it is open."""
        return None if self.below is None else self.value - abs(self.value) * self.below

    @property
    def high(self) -> float | None:
        """The band's upper end; None where it is open."""
        return None if self.above is None else self.value + abs(self.value) * self.above

    @model_validator(mode="after")
    def _says_which_figure(self) -> Reference:
        if "seed" in self.axes:
            raise ValueError("a cell is the mean over its seeds; remove seed")
        unknown = [name for name in self.axes if name not in AXES and not name.startswith(OF_DATA)]
        if unknown:
            raise ValueError(
                f"{unknown[0]} is neither an axis (stack, workers, epochs or another field of a matrix) nor "
                f"a quantity ({', '.join(QUANTITIES)})"
            )
        given = [name for name in QUANTITIES if name in self.model_fields_set]
        if len(given) != 1:
            found = f"{' and '.join(given)} are in one entry" if given else "it names no quantity"
            raise ValueError(f"{found}; give each entry one of {', '.join(QUANTITIES)}")
        if getattr(self, given[0]) is None:
            raise ValueError(f"{given[0]} has no value")
        return self

    @model_validator(mode="after")
    def _has_a_band(self) -> Reference:
        if self.below is None and self.above is None:
            raise ValueError(
                "its band is open; give below, above or both as fractions, such as above: 0.1 for 10 %"
            )
        if self.value == 0 or (self.value < 0 and self.quantity not in OVERHEADS):
            raise ValueError(f"{self.quantity} is {self.value:g}; a fraction of that is not a tolerance")
        if self.below is not None and self.below >= 1 and self.quantity not in OVERHEADS:
            raise ValueError(f"below: {self.below:g} excludes nothing; it is a fraction, and 0.1 means 10 %")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves out what was not set; null is a valid value of an axis, though."""
        content: dict[str, Any] = serialise(self)
        return {name: value for name, value in content.items() if value is not None or name in self.axes}


class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    references: list[Reference]


def read_references(content: Any) -> list[Reference]:
    """The inventory's references, validated.

    Raises:
        UserError: they are not valid.
    """
    try:
        return _Listed.model_validate({"references": content}).references
    except ValidationError as error:
        raise UserError(explain(error, "The inventory's setting")) from error


def references_in(folder: Path, initial: list[Reference]) -> list[Reference]:
    """The references for the campaign in `folder`: `initial`, or those it was last resumed with.

    Raises:
        UserError: their file is damaged.
    """
    path = folder / FILE
    try:
        return _Listed.model_validate_json(path.read_bytes()).references
    except FileNotFoundError:
        return initial
    except ValidationError as error:
        raise UserError(
            f"{explain(error, str(path))} Delete it: the next `run` that resumes this campaign writes it "
            "again from the inventory."
        ) from error


def store_references(folder: Path, initial: Sequence[Reference], newest: Sequence[Reference]) -> None:
    """Writes the inventory's current references into a campaign's folder, if they differ from those it has.

    campaign.json is written once, and references do not affect runs: a changed one must neither start a new
    campaign nor wait for one.
    """
    path = folder / FILE
    if path.exists() or _text(initial) != _text(newest):
        write_whole(path, _text(newest))


def _text(references: Sequence[Reference]) -> str:
    return json_text({"references": [each.model_dump(mode="json") for each in references]})
