"""The stack that is tested, and one bench for all of its tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.bench import Bench


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the stack."""
    parser.addoption("--stack", required=False, default="", help="the stack to test")


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
