"""What each stack asks of a program with its own loop, counted in what a campaign has kept."""

from __future__ import annotations

import ast
import difflib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from experiments.analysis.figures import Figures
from experiments.campaign.campaign import Campaign
from experiments.campaign.script_files import digests_of, given_files
from experiments.util.code_lines import code_lines
from experiments.util.files import sha256

LAUNCHER: Final = "training/launchers/{stack}.py"
CALLS: Final = "trainbed"  # the module of the optional calls
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Between:
    """What a stack asks."""

    changed: int | None  # lines of the program that ran there and are not as given; None: not known
    files: int  # its launchers in the campaign's code
    lines: int  # of code in them


@dataclass(frozen=True)
class Asked:
    """What stacks and their comparison ask of a program."""

    by_stack: dict[str, Between] = field(default_factory=dict)  # none if runs have no program of their own
    calls: int | None = None  # lines that make the optional calls, for the comparison; None: not known


def asked(campaign: Campaign, figures: Figures) -> Asked:
    """What is asked of the campaign's program."""
    if not campaign.file.has_own_loop or not campaign.archive.is_file():
        return Asked()
    given = given_files(campaign.folder)
    stacks = list(dict.fromkeys(run.specification.stack for run in campaign.file.measured))
    with zipfile.ZipFile(campaign.archive) as archive:
        there = set(archive.namelist())
        files = {stack: [name] if (name := _launcher(figures, stack)) in there else [] for stack in stacks}
        by_stack = {
            stack: Between(
                _changed(figures, stack, given),
                len(names),
                sum(len(code_lines(archive.read(name).decode())) for name in names),
            )
            for stack, names in files.items()
        }
    first = next(iter(campaign.file.data_of_runs), "")
    return Asked(by_stack, _calls(given.get(first, {})))


def _launcher(figures: Figures, stack: str) -> str:
    """The stack's launcher in the campaign's code; a stack may run as another does."""
    kept = figures.setup.stacks.stacks if figures.setup.stacks is not None else {}
    known = kept[stack].launcher if stack in kept else None
    return LAUNCHER.format(stack=stack) if known is None else known.file


def _changed(figures: Figures, stack: str, given: Mapping[str, Files]) -> int | None:
    """Lines of the stack's program that differ; of several programs, those of the one with the most.

    A program that the first stack ran, too, is compared with itself as given, another with the first stack's.
    """
    ran = _data_of(figures, stack)
    usual = _data_of(figures, figures.campaign.baseline)
    bases = {digest: usual[0] if usual and digest not in usual else digest for digest in ran}
    changes = [_lines_changed(figures, base, digest, given) for digest, base in bases.items()]
    known = [each for each in changes if each is not None]
    return max(known) if known and len(known) == len(changes) else None


def _data_of(figures: Figures, stack: str) -> list[str]:
    """Digests of the data sets, which hold the programs, that the stack's runs took."""
    of_stack = (record.specification for record in figures.counting if record.specification.stack == stack)
    return list(dict.fromkeys(specification.work.data_digest for specification in of_stack))


def _lines_changed(figures: Figures, base: str, ran: str, given: Mapping[str, Files]) -> int | None:
    """Lines in which the program of the data set `ran`, as the ranks had it, differs from the given one."""
    campaign = figures.campaign
    names = {digest: data.name for digest, data in campaign.data_of_runs.items()}
    if base not in given or base not in names or ran not in names:
        return None
    kept = {sha256(content): content for files in given.values() for content in files.values()}
    before = {_role(name, names[base]): content for name, content in given[base].items()}
    digests = digests_of(campaign.every_dataset[ran], names[ran])
    after = {_role(name, names[ran]): kept.get(digest) for name, digest in digests.items()}
    if not after or None in after.values():
        return None
    return sum(_differing(before.get(name, b""), after.get(name) or b"") for name in {*before, *after})


def _role(name: str, program: str) -> str:
    """A file's name; that of the program itself is the same whatever it is called."""
    return "" if name == program else name


def _differing(before: bytes, after: bytes) -> int:
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def _calls(files: Files) -> int | None:
    """Lines that import the optional calls or make one; None if no file was kept or one is not Python."""
    try:
        return sum(lines_with_calls(content) for content in files.values()) if files else None
    except (SyntaxError, ValueError):
        return None


def lines_with_calls(source: bytes) -> int:
    """Lines of a Python file that import the optional calls or make one.

    Raises:
        SyntaxError: it is not Python.
        ValueError: likewise.
    """
    names, nodes = set(), list(ast.walk(ast.parse(source)))
    found: list[ast.stmt | ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            of_it = [alias for alias in node.names if alias.name == CALLS]
        elif isinstance(node, ast.ImportFrom) and node.module == CALLS:
            of_it = node.names
        else:
            continue
        if of_it:
            found.append(node)
            names |= {alias.asname or alias.name for alias in of_it}
    for node in nodes:
        if isinstance(node, ast.Call):
            called = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if isinstance(called, ast.Name) and called.id in names:
                found.append(node)
    return len(set().union(*(range(each.lineno, (each.end_lineno or each.lineno) + 1) for each in found)))
