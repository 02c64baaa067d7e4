"""Which script, with which files and arguments; needs only pydantic."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from training.settings import DataSettings, ModelSettings, NotNegative

PLACES: Final = ("files", "out")
PLACEHOLDERS: Final = (
    "epochs",
    "seed",
    "workers",
    "slots_per_worker",
    "world_size",
    "batch_per_worker",
    "global_batch",
    "gradient_accumulation",
    "learning_rate",
    "warmup_steps",
    "weight_decay",
    *PLACES,
)
"""What arguments may name in braces: fields of the work, the folder of the files, and that for results."""

PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")

Name = Annotated[str, StringConstraints(min_length=1)]


class Data(DataSettings):
    """The script, and the files that it needs beside it."""

    script: Name  # relative to the matrix, as all files
    include: list[Name] = Field(default_factory=list)  # more files and folders
    validation: NotNegative = 0
    test: NotNegative = 0
    seed: NotNegative = 0  # nothing is split here
    judged_by: str = Field(default="loss", min_length=1)  # a metric that the script reports

    @property
    def has_own_loop(self) -> bool:
        """It does."""
        return True

    @property
    def metric(self) -> str:
        """As the matrix says."""
        return self.judged_by

    @property
    def name(self) -> str:
        """The script's."""
        return self.script

    @property
    def files(self) -> tuple[str, ...]:
        """The script, unless it lies in one of the folders, and the others."""
        inside = any(PurePosixPath(self.script).is_relative_to(name) for name in self.include)
        return tuple(self.include) if inside else (self.script, *self.include)

    @model_validator(mode="after")
    def _lie_beside_the_matrix(self) -> Self:
        for name in (self.script, *self.include):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{name} must lie beside the matrix, or in a folder there")
        return self


class Model(ModelSettings):
    """What the script is given on its command line."""

    arguments: list[str] = Field(default_factory=list)

    @field_validator("arguments")
    @classmethod
    def _known(cls, arguments: list[str]) -> list[str]:
        unknown = [
            name for text in arguments for name in PLACEHOLDER.findall(text) if name not in PLACEHOLDERS
        ]
        if unknown:
            raise ValueError(
                f"there is no {{{unknown[0]}}} to put in; there are "
                + ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            )
        return arguments

    @property
    def told(self) -> tuple[str, ...]:
        """Those in its arguments."""
        named = [name for text in self.arguments for name in PLACEHOLDER.findall(text)]
        return tuple(name for name in dict.fromkeys(named) if name not in PLACES)

    def text(self, data: DataSettings) -> str:
        """`train.py --epochs {epochs}`."""
        assert isinstance(data, Data)
        return " ".join([data.script, *self.arguments])
