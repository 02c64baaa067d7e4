"""How the report presents a campaign: its matrix's description, ladders and target, which affect no run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from experiments.matrix.ladders import Ladder
from experiments.matrix.model import Matrix
from experiments.matrix.target import Target
from experiments.util.errors import UserError
from experiments.util.files import write_whole
from training.spec import explain

FILE: Final = "reading.json"  # exists if these have changed since the campaign began


class Presentation(BaseModel):
    """The parts of a matrix that only the report reads."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    description: str  # on one line
    ladders: list[Ladder]
    target: Target | None = None


def presentation_of(matrix: Matrix) -> Presentation:
    """The parts of `matrix` that only the report reads."""
    return Presentation(
        description=" ".join(matrix.description.split()), ladders=matrix.ladders, target=matrix.target
    )


def read_presentation(folder: Path) -> Presentation | None:
    """The newest presentation of the campaign in `folder`; None if it has not changed.

    Raises:
        UserError: its file is damaged.
    """
    path = folder / FILE
    try:
        return Presentation.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise UserError(
            f"{explain(error, str(path))} Delete it: the next `run` that resumes this campaign writes it "
            "again from the matrix."
        ) from error


def write_presentation(folder: Path, presentation: Presentation) -> None:
    """Writes it beside campaign.json, which is written only once."""
    write_whole(folder / FILE, presentation.model_dump_json(indent=2) + "\n")
