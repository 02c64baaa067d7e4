"""What stands between a stack and a program with its own loop: the code that a campaign shipped for it."""

from __future__ import annotations

import io
import tokenize
import zipfile
from dataclasses import dataclass
from typing import Final

from experiments.campaign.campaign import Campaign

LAUNCHERS: Final = "training/launchers/"
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
    works = [run.specification.work for run in campaign.file.measured]
    if not any(work.data.has_own_loop for work in works) or not campaign.archive.is_file():
        return {}
    stacks = list(dict.fromkeys(run.specification.stack for run in campaign.file.measured))
    with zipfile.ZipFile(campaign.archive) as archive:
        sources = {
            name.removeprefix(LAUNCHERS): archive.read(name)
            for name in archive.namelist()
            if name.startswith(LAUNCHERS)
        }
    return {
        stack: Between(len(own), sum(map(lines_of_code, own)))
        for stack in stacks
        for own in [[text for name, text in sources.items() if name == f"{stack}.py"]]
    }


def lines_of_code(source: bytes) -> int:
    """Lines of a Python file that hold more than comments."""
    tokens = tokenize.tokenize(io.BytesIO(source).readline)
    return len({line for token in tokens if token.type not in NO_CODE for line in _lines(token)})


def _lines(token: tokenize.TokenInfo) -> range:
    return range(token.start[0], token.end[0] + 1)
