"""The stack or the workload that is tested, and one bench for all of its tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from experiments.util.errors import UserError
from tests.conformance.bench import Bench

if TYPE_CHECKING:  # it needs torch, which stacks are tested without
    from tests.conformance.workbench import Workbench


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name what is tested."""
    parser.addoption("--stack", required=False, default="", help="the stack to test")
    parser.addoption("--workload", required=False, default="", help="the workload to test")
    parser.addoption("--matrix", required=False, default=None, help="the matrix with the workload's settings")


@pytest.fixture(scope="session")
def bench(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Runs of the stack on the cluster of the inventory."""
    stack = pytestconfig.getoption("--stack")
    if not stack:
        pytest.exit("Which stack? make conformance STACK=<name>", returncode=2)
    bench = Bench(stack, tmp_path_factory.mktemp("conformance"))
    if stack not in bench.installed:
        pytest.exit(
            f"{stack} is not on this cluster, which has {', '.join(bench.installed)}: name it in "
            "the inventory's `stacks`, and provision.",
            returncode=2,
        )
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def workbench(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """The workload with little data, on this machine."""
    from tests.conformance.workbench import Workbench, matrix_for

    workload = pytestconfig.getoption("--workload")
    if not workload:
        pytest.exit("Which workload? make conformance WORKLOAD=<name or folder>", returncode=2)
    try:
        matrix = matrix_for(workload, pytestconfig.getoption("--matrix"))
        return Workbench(matrix, tmp_path_factory.mktemp("workload"))
    except (UserError, ValueError) as error:
        pytest.exit(str(error), returncode=2)
