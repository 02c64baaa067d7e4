"""Which packages of Determined end-to-end tests install: those that somebody gives, or the stand-in's."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

import pytest

from tests.standins.determined import packages

#: Names the folder that both packages are in; `make test determined_packages=DIR` sets it.
VARIABLE: Final = "TRAINBED_DETERMINED_PACKAGES"
OF_MAKE: Final = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "determined_packages")
"""How the make that was given a folder passes it on to every make that is called below it."""
NAMES: Final = tuple(f"determined-{kind}_{packages.VERSION}_linux_amd64.deb" for kind in ("master", "agent"))


def folder() -> Path | None:
    """Where the given packages are; None: none are given, so the stand-in is taken."""
    named = os.environ.get(VARIABLE)
    return Path(named).absolute() if named else None


def is_standin() -> bool:
    """Whether tests run on the stand-in."""
    return folder() is None


def fault() -> str | None:
    """What is wrong with the folder that was given, in one sentence; None: nothing."""
    given = folder()
    missing = [name for name in NAMES if given is not None and not (given / name).is_file()]
    if not missing:
        return None
    return f"determined_packages names {given}, which has no {' and no '.join(missing)}: it must hold both."


def said() -> str:
    """What tests of Determined run on, for the first line on screen."""
    given = folder()
    if given is not None:
        return f"Determined: the packages in {given}"
    return "Determined: its stand-in (determined_packages=DIR takes real packages from there)"


def prepared(place: Path) -> Path:
    """The folder with the packages to install; those of the stand-in are built in `place`."""
    return folder() or packages.build(place)


def digest() -> str | None:
    """What tells the given packages from any others; None: none are given."""
    given = folder()
    if given is None:
        return None
    found = hashlib.sha256()
    for name in NAMES:
        found.update(hashlib.sha256((given / name).read_bytes()).digest())
    return found.hexdigest()


def real_only(what: str) -> pytest.MarkDecorator:
    """Skip a test of `what` the stand-in can't do, which the reason names."""
    return pytest.mark.skipif(
        is_standin(), reason=f"Determined's stand-in {what}: make … determined_packages=DIR"
    )


def standin_only(why: str) -> pytest.MarkDecorator:
    """Skip a test where real packages are given, because of `why`."""
    return pytest.mark.skipif(not is_standin(), reason=f"on real packages of Determined {why}")
