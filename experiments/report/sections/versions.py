"""The versions of every library, by stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.versions import Versions
from experiments.report.formats import NOTHING
from experiments.report.tables import Table, columns
from experiments.util.words import listed

TITLE: Final = "Versions by stack"
NOT_ALL: Final = (
    " Not every rank noted all its packages, as earlier versions did not: of those there are only the "
    "libraries that training itself uses."
)


def versions_table(found: Versions) -> Table:
    """A row for each library, those first that are not the same on all stacks, and marked."""
    order = sorted(found.libraries, key=lambda library: not found.differing(library))
    return Table(
        title=TITLE,
        before="Python, and every package that the ranks could import; those first that are not the same on "
        "all stacks. What nodes themselves have, such as Java, is in the table of nodes."
        + ("" if found.of_all else NOT_ALL),
        columns=columns("library", *found.stacks, words=("library", *found.stacks)),
        rows=[
            [library, *(_text(found.libraries[library].get(stack, [])) for stack in found.stacks)]
            for library in order
        ],
        marked=[at for at, library in enumerate(order) if found.differing(library)],
    )


def version_texts(found: Versions, libraries: Sequence[str]) -> dict[str, str]:
    """`2.13.0` by library, or `4.3.0 (plain) and 3.5.1 (slow)` where stacks differ."""
    return {
        library: _by_stack(found.libraries[library]) for library in libraries if library in found.libraries
    }


def _by_stack(had: dict[str, list[str]]) -> str:
    stacks: dict[str, list[str]] = {}
    for stack, versions in had.items():
        stacks.setdefault(_text(versions), []).append(stack)
    if len(stacks) == 1:
        return next(iter(stacks))
    return listed([f"{text} ({', '.join(names)})" for text, names in stacks.items()])


def _text(versions: Sequence[str]) -> str:
    return listed(versions, "or") if versions else NOTHING
