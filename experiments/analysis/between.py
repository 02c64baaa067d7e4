"""What stands between a stack and a program with its own loop: the code that a campaign shipped for it."""

from __future__ import annotations

import io
import tokenize
import zipfile
from dataclasses import dataclass
from typing import Final

from experiments.campaign.campaign import Campaign

LAUNCHER: Final = "training/launchers/{stack}.py"
NO_CODE: Final = frozenset(
    {
        tokenize.ENCODING,
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True)
class Between:
    """A stack's launchers in the campaign's code."""

    files: int
    lines: int  # of code, docstrings included


def between(campaign: Campaign) -> dict[str, Between]:
    """The launchers of each of the campaign's stacks; none if its runs have no program of their own."""
    if not campaign.file.has_own_loop or not campaign.archive.is_file():
        return {}
    stacks = list(dict.fromkeys(run.specification.stack for run in campaign.file.measured))
    with zipfile.ZipFile(campaign.archive) as archive:
        there = set(archive.namelist())
        files = {stack: [name] if (name := LAUNCHER.format(stack=stack)) in there else [] for stack in stacks}
        return {
            stack: Between(len(names), sum(lines_of_code(archive.read(name)) for name in names))
            for stack, names in files.items()
        }


def lines_of_code(source: bytes) -> int:
    """Lines of a Python file that hold more than comments."""
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    spans = (range(each.start[0], each.end[0] + 1) for each in tokens if each.type not in NO_CODE)
    return len(set().union(*spans))
