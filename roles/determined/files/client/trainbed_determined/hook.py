"""The startup hook: a script that Determined runs in every container of an experiment, before its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Final

WHEELS: Final = Path("/usr/share/python-wheels")
"""Where the distribution keeps pip for virtual environments (python3-venv): the image has none."""


class HookError(Exception):
    """The hook can't be submitted; the message is one sentence."""


def hook_files(hook: Path) -> list[Path]:
    """What goes into the root of an experiment's context: the script `hook`, and the pip that it calls.

    Raises:
        HookError: one of them is not there.
    """
    if not hook.is_file():
        raise HookError(f"There is no {hook}: `make provision` writes it.")
    found = sorted(WHEELS.glob("pip-*.whl"))
    if len(found) != 1:
        there = " and ".join(wheel.name for wheel in found) or "none"
        raise HookError(
            f"The startup hook needs one wheel of pip in {WHEELS}, and there is {there}: the distribution's "
            "package python3-venv brings it."
        )
    return [hook, *found]
