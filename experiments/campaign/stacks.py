"""What a campaign keeps of its stacks as they were when it began, besides the records of its runs.

A report is made from what lies in the campaign's folder. Roles and launchers change, so what the report says
of them is counted once, when the campaign begins; the record of how its cluster was provisioned is copied.
Neither is part of what makes runs belong together.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from experiments.cluster import provisioning
from experiments.cluster.description import Cluster
from experiments.cluster.installing import PLAYBOOK, Installing, facts_of, installing, played_roles
from experiments.cluster.provisioning import Provisioning, newest_fitting, read_provisioning
from experiments.cluster.stack_facts import Facts, read_facts
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY
from training.spec import explain

FILE: Final = "stacks.json"
LAUNCHERS: Final = Path("training") / "launchers"
NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    | {tokenize.ENCODING, tokenize.ENDMARKER}
)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Launcher(_Part):
    """The one file of code that a stack asks for."""

    file: str
    lines: int  # of code: no comments, no docstrings, no empty ones
    changed: int  # of them, those that the baseline's launcher has not


class Stack(_Part):
    """What was known of one stack; a part is None where the checkout has nothing of it."""

    installing: Installing | None
    facts: Facts | None
    launcher: Launcher | None


class Stacks(_Part):
    """stacks.json of a campaign."""

    schema_version: Literal[1] = 1
    common: list[str]  # roles that every stack stands on
    stacks: dict[str, Stack]


class About(_Part):
    """What a campaign keeps besides its runs; a part is None where it was not there when it began."""

    stacks: Stacks | None = None
    provisioning: Provisioning | None = None


def count_stacks(root: Path, names: Sequence[str], distribution: str) -> Stacks:
    """What the checkout at `root` has of these stacks; the first is the baseline.

    Raises:
        UserError: a file of a role is damaged.
    """
    baseline = code_lines(root / LAUNCHERS / f"{names[0]}.py")
    stacks = {name: _stack(root, name, baseline or [], distribution) for name in names}
    owned = {role for stack in stacks.values() if stack.facts for role in stack.facts.stands_on}
    return Stacks(common=[role for role in played_roles(root / PLAYBOOK) if role not in owned], stacks=stacks)


def _stack(root: Path, name: str, baseline: Sequence[str], distribution: str) -> Stack:
    role = root / "roles" / name
    facts = read_facts(role)
    counted = None
    if (role / "tasks" / "main.yml").is_file():
        stands_on = facts.stands_on if facts else []
        counted = installing(root, name, stands_on, facts_of(distribution))
    file = LAUNCHERS / f"{name}.py"
    lines = code_lines(root / file)
    launcher = None
    if lines is not None:
        launcher = Launcher(file=file.as_posix(), lines=len(lines), changed=added(baseline, lines))
    return Stack(installing=counted, facts=facts, launcher=launcher)


def code_lines(path: Path) -> list[str] | None:
    """The lines of a Python file that are code, without their indentation; None where there is no such file.

    Raises:
        UserError: it is not Python.
    """
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: not Python: {error.msg}.") from error
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    numbers = {
        line
        for token in tokens
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            numbers -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return [line.strip() for number, line in enumerate(text.splitlines(), start=1) if number in numbers]


def added(before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines of `after` are not in `before`, in their order."""
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return len(after) - sum(block.size for block in blocks)


def files_to_keep(results: Path, names: Sequence[str], cluster: Cluster) -> dict[str, bytes]:
    """What a new campaign of these stacks on `cluster` keeps: content by the name of its file.

    Raises:
        UserError: a role or a record of provisioning is damaged.
    """
    distribution = next(iter(cluster.nodes.values())).distribution if cluster.nodes else ""
    stacks = count_stacks(REPOSITORY, names, distribution)
    provisioned = newest_fitting(results, cluster)
    return {FILE: f"{stacks.model_dump_json(indent=2)}\n".encode()} | (
        {} if provisioned is None else {provisioning.FILE: provisioned}
    )


def read_about(folder: Path) -> About:
    """What the campaign in `folder` keeps; parts that campaigns did not keep before are None.

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
            explain(error, str(path)) + " Take it from a backup, or remove it: the report does without."
        ) from error
    return About(stacks=stacks, provisioning=read_provisioning(folder))
