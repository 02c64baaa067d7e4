"""One testbed for all end-to-end tests, made from a copy of the repository at a long path with spaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.testbeds import Testbed, copy_repository
from tests.standins.determined import packages


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """The shared testbed; taken down at the end, and at the start if an earlier test run was killed."""
    root: Path = (
        tmp_path_factory.mktemp("e2e") / ("a path with spaces that is " + "rather long, " * 5) / "trainbed"
    )
    root.mkdir(parents=True)
    assert len(str(root)) > 100
    shared = Testbed("trainbed-test", "198.18.77", copy_repository(root))
    shared.down()
    yield shared
    shared.down()


@pytest.fixture(scope="session")
def provisioned(testbed: Testbed) -> Testbed:
    """The shared testbed with every stack, as test_loop.py leaves it; made so here where that was not run."""
    if not (testbed.root / "results" / "provisioning").exists():
        testbed.make("testbed")
        testbed.make("provision", f"determined_packages={packages.build(testbed.root / 'packages')}")
    return testbed
