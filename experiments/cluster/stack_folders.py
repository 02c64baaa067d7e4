"""Where stacks lie: in this checkout, and in the folder that TRAINBED_STACKS names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY

VARIABLE: Final = "TRAINBED_STACKS"
LAUNCHERS: Final = Path("training") / "launchers"


def stack_folders(root: Path = REPOSITORY) -> list[Path]:
    """The checkout, and the folder beside it where there is one.

    Raises:
        UserError: there is no such folder.
    """
    outside = os.environ.get(VARIABLE)
    if not outside:
        return [root]
    folder = Path(outside).absolute()
    if not folder.is_dir():
        raise UserError(f"{VARIABLE} names {outside}, and there is no such folder. Correct it, or unset it.")
    return [root, folder]


def role_of(stack: str, root: Path = REPOSITORY) -> Path:
    """The folder of a stack's role; the checkout's own where there is none.

    Raises:
        UserError: the folder of stacks outside of the checkout is not there.
    """
    places = [folder / "roles" / stack for folder in stack_folders(root)]
    return next((place for place in places if place.is_dir()), places[0])


def outside_launchers(root: Path = REPOSITORY) -> list[Path]:
    """The launchers that do not lie in the checkout.

    Raises:
        UserError: one has the name of one that does, or the folder is not there.
    """
    found = [path for folder in stack_folders(root)[1:] for path in sorted((folder / LAUNCHERS).glob("*.py"))]
    for path in found:
        if (root / LAUNCHERS / path.name).exists():
            raise UserError(f"{path} has the name of a launcher of the checkout. Give it another one.")
    return [path for path in found if path.name != "__init__.py"]
