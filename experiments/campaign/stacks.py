"""What a campaign keeps about its stacks as they were when it began, besides the records of its runs.

A report is made only from the campaign's folder. Roles and launchers change, so what roles declare and claim
is copied when the campaign begins, with the record of how its cluster was provisioned; lines of launchers are
counted then. None of it is part of the campaign's identity.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError, model_validator

from experiments.cluster import provisioning
from experiments.cluster.declarations import GROUPS, Declaration, declared_for, read_declaration
from experiments.cluster.description import Cluster
from experiments.cluster.provisioning import Provisioning, newest_fitting, read_provisioning
from experiments.cluster.stack_facts import Facts, read_facts
from experiments.cluster.stack_folders import LAUNCHERS, role_of
from experiments.util.code_lines import code_lines
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel
from experiments.util.paths import REPOSITORY
from training.spec import explain

FILE: Final = "stacks.json"


class Launcher(FrozenModel):
    """The one code file that a stack needs."""

    file: str
    lines: int  # of code, without comments, docstrings and blank lines
    changed: int  # those of them that the baseline's launcher doesn't have


class Stack(FrozenModel):
    """What was known about one stack; a part is None if the checkout does not have it."""

    declares: Declaration | None
    facts: Facts | None
    launcher: Launcher | None


class Stacks(FrozenModel):
    """stacks.json of a campaign."""

    schema_version: Literal[2] = 2
    declared_by_roles: bool = True  # False: read from their tasks, as in schema 1
    stacks: dict[str, Stack]

    @model_validator(mode="before")
    @classmethod
    def _from_schema_1(cls, content: Any) -> Any:
        if not isinstance(content, dict) or content.get("schema_version") != 1:
            return content
        try:
            stacks = {name: _stack_of_schema_1(stack) for name, stack in content["stacks"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("does not follow schema 1") from error
        return {"declared_by_roles": False, "stacks": stacks}


def _stack_of_schema_1(stack: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a stack from schema 1, for which packages, services, files and ports were read from tasks."""
    declares = None
    if stack["installing"] is not None:
        own = stack["installing"]["own"]
        declares = {
            group: {
                "packages": node["packages"],
                "services": node["services"],
                "files": node["configuration"],
            }
            for group, node in own["nodes"].items()
        }
        # Schema 1 did not say on which nodes, and the report does not show that for ports.
        declares["master"]["ports"] = [
            {"port": ", ".join(port["variables"]), "default": port["number"]} for port in own["ports"]
        ]
    return {"declares": declares, "facts": stack["facts"], "launcher": stack["launcher"]}


class Setup(FrozenModel):
    """What a campaign keeps besides its runs; a part is None if it did not exist when the campaign began."""

    stacks: Stacks | None = None
    provisioning: Provisioning | None = None


def describe_stacks(root: Path, names: Sequence[str], distributions: Mapping[str, str]) -> Stacks:
    """What the checkout at `root` says about these stacks; the first is the baseline.

    Args:
        root: the checkout.
        names: the stacks' names.
        distributions: the nodes' distributions, by group.

    Raises:
        UserError: a file of a role is damaged, or declares nothing for a distribution of the cluster.
    """
    baseline = code_lines_in(_launcher(root, names[0])) or []
    return Stacks(stacks={name: _stack(root, name, baseline, distributions) for name in names})


def _stack(root: Path, name: str, baseline: Sequence[str], distributions: Mapping[str, str]) -> Stack:
    role, path = role_of(name, root), _launcher(root, name)
    lines = code_lines_in(path)
    launcher = None
    if lines is not None:
        file = (LAUNCHERS / path.name).as_posix()
        launcher = Launcher(file=file, lines=len(lines), changed=added(baseline, lines))
    return Stack(declares=declared_for(role, distributions), facts=read_facts(role), launcher=launcher)


def _launcher(root: Path, name: str) -> Path:
    """The launcher of a stack, or of the one that it runs as; there may be none."""
    declared = read_declaration(role_of(name, root))
    runs_as = name if declared is None or declared.runs_as is None else declared.runs_as
    return role_of(runs_as, root).parents[1] / LAUNCHERS / f"{runs_as}.py"


def code_lines_in(path: Path) -> list[str] | None:
    """The lines of a Python file that are code, without their indentation; None if there is no such file.

    Raises:
        UserError: it is not valid Python.
    """
    if not path.is_file():
        return None
    try:
        return code_lines(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: not Python: {error.msg}.") from error


def added(before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines a diff from `before` to `after` adds."""
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return len(after) - sum(block.size for block in blocks)


def setup_files(results: Path, names: Sequence[str], cluster: Cluster) -> dict[str, bytes]:
    """What a new campaign of these stacks on `cluster` keeps: contents by file name.

    Raises:
        UserError: a role or a record of provisioning is damaged.
    """
    distributions = {
        group: next((node.distribution for node in cluster.nodes.values() if group in node.groups), "")
        for group in GROUPS
    }
    stacks = describe_stacks(REPOSITORY, names, distributions)
    provisioned = newest_fitting(results, cluster)
    return {FILE: f"{stacks.model_dump_json(indent=2)}\n".encode()} | (
        {} if provisioned is None else {provisioning.FILE: provisioned}
    )


def read_setup(folder: Path) -> Setup:
    """What the campaign in `folder` keeps; parts that older campaigns did not keep are None.

    Raises:
        UserError: a file is damaged.
    """
    path = folder / FILE
    try:
        stacks = Stacks.model_validate_json(path.read_bytes()) if path.exists() else None
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        raise UserError(
            explain(error, str(path))
            + " Restore it from a backup, or remove it: the report works without it."
        ) from error
    return Setup(stacks=stacks, provisioning=read_provisioning(folder))
