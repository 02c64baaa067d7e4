"""What a stack puts on nodes: declared in its role's meta/stack.yml, verified on nodes by `make verify`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from experiments.cluster.role_files import read_role_file
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel

FILE: Final = Path("meta") / "stack.yml"
GROUPS: Final = ("master", "workers")  # of every inventory

Text = Annotated[str, StringConstraints(min_length=1)]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/\S+$")]


class Port(FrozenModel):
    """A TCP port that a service listens on."""

    port: Text  # the variable that sets it
    default: int | Text  # its number, or a template for it, where an inventory sets nothing
    moved_by: dict[Text, int] = Field(default_factory=dict)  # by variable: the number if it is true
    local: bool = False  # only the node itself can reach it
    # The service stays while this file is there: it holds data that taking the stack out may keep.
    kept_with: AbsolutePath | None = None


class OnNode(FrozenModel):
    """What a stack puts on a node, and what its runs may leave there until they are stopped."""

    # By distribution (Debian-12) where they differ:
    packages: list[Text] | dict[Text, list[Text]] = Field(default_factory=list)
    files: list[AbsolutePath | dict[Text, AbsolutePath]] = Field(default_factory=list)

    services: list[Text] = Field(default_factory=list)  # units that start at boot
    ports: list[Port] = Field(default_factory=list)
    units: list[Text] = Field(default_factory=list)  # patterns of units
    containers: list[Text] = Field(default_factory=list)  # labels
    processes: list[Text] = Field(default_factory=list)  # patterns of command lines
    # A run can't start without any of them: a test removes one.
    needed_to_launch: list[AbsolutePath] = Field(default_factory=list)

    def of_distribution(self, name: str) -> OnNode:
        """The same with the packages and files of one distribution.

        Raises:
            KeyError: packages or files are listed by distribution, but not for this one.
        """
        packages = self.packages[name] if isinstance(self.packages, dict) else self.packages
        files = [each[name] if isinstance(each, dict) else each for each in self.files]
        return self.model_copy(update={"packages": packages, "files": files})


class Declaration(FrozenModel):
    """meta/stack.yml of a stack's role."""

    master: OnNode = OnNode()
    workers: OnNode = OnNode()
    version_of: Text | None = None  # the package of the environment whose version is the stack's
    runs_as: Text | None = None  # another stack, whose role and launcher start its runs

    @property
    def groups(self) -> dict[str, OnNode]:
        """What the stack puts on a node of each group."""
        return {name: getattr(self, name) for name in GROUPS}


def read_declaration(role: Path) -> Declaration | None:
    """The declaration of the stack whose role is in `role`; None if it has none.

    Raises:
        UserError: the file is damaged.
    """
    return read_role_file(role / FILE, Declaration)


def declared_for(role: Path, distributions: Mapping[str, str]) -> Declaration | None:
    """A stack's declaration, with the packages and files for the distributions of its nodes.

    Args:
        role: the folder of its role.
        distributions: full names of the distributions, by group.

    Raises:
        UserError: the file is damaged, or does not know one of these distributions.
    """
    declaration = read_declaration(role)
    if declaration is None:
        return None
    found = {}
    for group, on_node in declaration.groups.items():
        name = short_name(distributions[group])
        try:
            found[group] = on_node.of_distribution(name)
        except KeyError as error:
            raise UserError(f"{role / FILE}: packages or files of {group} are missing for {name}.") from error
    return declaration.model_copy(update=found)


def short_name(distribution: str) -> str:
    """A distribution's name and major version: Debian-12 for Debian GNU/Linux 12 (bookworm)."""
    found = re.match(r"(\w+)\D*(\d+)", distribution)
    return f"{found[1]}-{found[2]}" if found else distribution
