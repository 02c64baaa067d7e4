"""One testbed for most end-to-end tests, made from a copy of the repository at a long path with spaces.

A single pytest process takes it down before and after; if several share it, tests/run.py does. A kept testbed
is first brought up to date and rid of what earlier tests left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.testbeds import (
    ALONE,
    CROWD_FOLDER,
    PLACE,
    SHARED_FOLDER,
    TOY,
    Testbed,
    copy_repository,
    crowd_testbed,
    shared_testbed,
)
from tests.standins import given

STAMP = "/root/provisioned-with"
#: What provisioning depends on, besides Determined's packages or their stand-ins.
PROVISIONED = (
    "inventory",
    "playbooks",
    "requirements",
    "roles",
    "tests/conformance/toy",
    "tests/e2e/inventories",
)


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """The shared testbed, in whatever state it is."""
    given = os.environ.get(PLACE)
    root = (Path(given) if given else tmp_path_factory.mktemp("e2e")).joinpath(SHARED_FOLDER, "trainbed")
    assert len(str(root)) > 100
    if kept() or not root.exists():
        copy_repository(root)
    shared = shared_testbed(root)
    if given:
        yield shared
        return
    shared.down()
    yield shared
    shared.down()


@pytest.fixture(scope="session")
def nodes(testbed: Testbed) -> Testbed:
    """The shared testbed with its nodes running, whatever is on them."""
    if not testbed.state.exists():
        testbed.make("testbed")
    return testbed


@pytest.fixture(scope="session")
def provisioned(testbed: Testbed) -> Testbed:
    """The shared testbed with every stack, as test_loop.py leaves it; provisioned here if necessary."""
    if kept():
        bring_up_to_date(testbed)
        testbed.node("master", "rm -rf /srv/trainbed/shared/runs/*")
        for path in (testbed.root / "results").glob("*"):
            if not path.is_dir():
                path.unlink()  # what a killed command noted
            elif path.name not in ("provisioning", "quick"):
                shutil.rmtree(path)
    elif not list((testbed.root / "results" / "provisioning").glob("*.json")):
        testbed.make("testbed")
        provision(testbed)
    return testbed


@pytest.fixture(scope="session")
def measured(provisioned: Testbed) -> Testbed:
    """The shared testbed after the quick matrix and its report, as test_loop.py leaves it."""
    quick = provisioned.root / "results" / "quick"
    if kept() or not quick.exists():
        provisioned.make("matrix")  # Resumes a campaign of the same code, or begins a new one.
        *others, _newest = sorted(quick.glob("[0-9]*"))
        for campaign in others:
            shutil.rmtree(campaign)
        provisioned.make("report")
    return provisioned


def kept() -> bool:
    """Whether the testbed is kept between calls; anything may have changed since the last one."""
    return ALONE in os.environ


def bring_up_to_date(testbed: Testbed) -> None:
    """Have nodes with every stack, as the roles are now."""
    testbed.make("testbed")
    wanted = provisioned_with(testbed)
    found = testbed.node("master", f"cat {STAMP}", check=False)
    noted = found.output.split() if found.code == 0 else []
    if noted and noted[0] != wanted[0]:
        # Nothing of a stand-in is left for the packages that it stands for, nor the other way round.
        testbed.down()
        shutil.rmtree(testbed.root / "results", ignore_errors=True)
        testbed.make("testbed")
    if noted != wanted:
        provision(testbed)


def provision(testbed: Testbed) -> None:
    """Provision every stack, and note with what."""
    testbed.make("provision", f"determined_packages={given.prepared(testbed.root / 'packages')}")
    testbed.node("master", f"echo {' '.join(provisioned_with(testbed))} > {STAMP}")


def provisioned_with(testbed: Testbed) -> list[str]:
    """The digests of the stand-ins or the packages in their place, and of all that provisioning goes by."""
    return [given.digest() or digest(testbed.root, "tests/standins"), digest(testbed.root, *PROVISIONED)]


def digest(root: Path, *folders: str) -> str:
    """The digest of all files in these folders of the repository's copy."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            found.update(f"{path.relative_to(root)}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy's folder outside the checkout."""
    return Path(shutil.copytree(TOY, tmp_path_factory.mktemp("outside") / "stacks"))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Iterator[Testbed]:
    """A testbed of four workers with two slots each and every stack, including the toy."""
    given = os.environ.get(PLACE)
    root = Path(given, CROWD_FOLDER) if given else tmp_path_factory.mktemp("crowd")
    bed = crowd_testbed(copy_repository(root / "trainbed"), outside)
    if not given:
        bed.down()
    bring_up_to_date(bed)
    yield bed
    if not given:
        bed.down()
