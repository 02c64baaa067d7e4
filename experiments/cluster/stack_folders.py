"""Where stacks are: in this checkout, and in the folder that TRAINBED_STACKS names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY

VARIABLE: Final = "TRAINBED_STACKS"
LAUNCHERS: Final = Path("training") / "launchers"


def stack_folders(root: Path = REPOSITORY) -> list[Path]:
    """The checkout, and the folder that TRAINBED_STACKS names, if it is set.

    Raises:
        UserError: that folder does not exist.
    """
    outside = outside_stacks()
    return [root] if outside is None else [root, outside]


def outside_stacks() -> Path | None:
    """The folder that TRAINBED_STACKS names; None if it is not set.

    Raises:
        UserError: that folder does not exist.
    """
    outside = os.environ.get(VARIABLE)
    if not outside:
        return None
    folder = Path(outside).absolute()
    if not folder.is_dir():
        raise UserError(f"{VARIABLE} names {outside}, and there is no such folder. Correct it, or unset it.")
    return folder


def role_of(stack: str, root: Path = REPOSITORY) -> Path:
    """The folder of a stack's role; its place in the checkout if there is none.

    Raises:
        UserError: the folder of stacks outside the checkout does not exist.
    """
    places = [folder / "roles" / stack for folder in stack_folders(root)]
    return next((place for place in places if place.is_dir()), places[0])


def stacks_with(tasks: str, root: Path = REPOSITORY) -> list[str]:
    """The stacks whose role has tasks/<tasks>.yml beside tasks/run.yml, by name.

    Of roles with the same name only the first counts, as for Ansible.

    Raises:
        UserError: the folder of stacks outside the checkout does not exist.
    """
    found = {path.name for folder in stack_folders(root) for path in folder.glob("roles/*")}
    needed = [Path("tasks") / f"{name}.yml" for name in ("run", tasks)]
    return sorted(name for name in found if all((role_of(name, root) / each).is_file() for each in needed))


def outside_launchers(root: Path = REPOSITORY) -> list[Path]:
    """The launchers outside the checkout.

    Raises:
        UserError: one has the name of a launcher in the checkout, or the folder does not exist.
    """
    found = [path for folder in stack_folders(root)[1:] for path in sorted((folder / LAUNCHERS).glob("*.py"))]
    for path in found:
        if (root / LAUNCHERS / path.name).exists():
            raise UserError(f"{path} has the name of a launcher in the checkout. Give it another name.")
    return [path for path in found if path.name != "__init__.py"]
