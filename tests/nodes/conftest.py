"""Fixtures of the tests of nodes: `node` is each node of a group in turn (`@pytest.mark.on`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from testinfra.host import Host

from tests.nodes import cluster


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark; testinfra reads ansible.cfg from the working directory."""
    config.addinivalue_line("markers", "on(group): run on every node of this group")
    os.chdir(Path(__file__).resolve().parents[2])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `name` on every node of its group."""
    if "name" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("on")
        metafunc.parametrize(
            "name", list(cluster.groups()[mark.args[0] if mark else "cluster"]), scope="session"
        )


@pytest.fixture(scope="session")
def node(name: str) -> Host:
    """The node under test."""
    return cluster.node(name)


@pytest.fixture(scope="session")
def testbed() -> None:
    """Skip, with its reason, what only a testbed promises."""
    if not cluster.is_testbed():
        pytest.skip("the inventory is a lab's: only testbeds promise this")


@pytest.fixture(scope="session")
def ddp() -> None:
    """Skip where DDP is not installed."""
    _needs("ddp")


@pytest.fixture(scope="session")
def spark() -> None:
    """Skip where Spark is not installed."""
    _needs("spark")


@pytest.fixture(scope="session")
def determined() -> None:
    """Skip where Determined is not installed."""
    _needs("determined")


def _needs(stack: str) -> None:
    if stack not in cluster.stacks():
        pytest.skip(f"{stack} is not among the inventory's stacks")
