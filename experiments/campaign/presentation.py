"""How the report reads a campaign: its matrix's description and ladders, which decide nothing about a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from experiments.matrix.ladders import Ladder
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from experiments.util.files import write_whole
from training.spec import explain

FILE: Final = "reading.json"  # of a campaign: what holds, where the matrix has changed since its beginning


class Reading(BaseModel):
    """What a matrix says to the report alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    description: str  # on one line
    ladders: list[Ladder]


def reading_of(matrix: Matrix) -> Reading:
    """What `matrix` says to the report."""
    return Reading(description=" ".join(matrix.description.split()), ladders=matrix.ladders)


def kept_reading(folder: Path) -> Reading | None:
    """What holds for the campaign in `folder`; None where it is what the campaign began with.

    Raises:
        UserError: its file is damaged.
    """
    path = folder / FILE
    try:
        return Reading.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise UserError(
            f"{explain(error, str(path))} Delete it: the next `run` that goes on with this campaign writes "
            "it anew from the matrix."
        ) from error


def keep_reading(folder: Path, reading: Reading) -> None:
    """Keeps beside a campaign what the matrix says now: campaign.json is written once."""
    write_whole(folder / FILE, reading.model_dump_json(indent=2) + "\n")
