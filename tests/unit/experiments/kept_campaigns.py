"""Where records of this project's own runs are kept: see the README beside each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from experiments.util.paths import REPOSITORY

THREE_STACKS: Final = REPOSITORY / "docs" / "three-stacks" / "20261123T112508Z"
DET_ONE: Final = REPOSITORY / "tests" / "data" / "campaigns" / "det-one"


def kept_campaigns() -> list[Path]:
    """The folders of all kept campaigns."""
    return [THREE_STACKS, *sorted(path.parent for path in DET_ONE.glob("*/campaign.json"))]


def name_of(path: Path) -> str:
    """A kept file or folder, in the name of a test."""
    return str(path.relative_to(REPOSITORY))
