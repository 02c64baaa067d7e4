"""How tests of nodes run: on each node of a group in turn (`on`), where a stack or a role is installed.

What takes a node long is a question (`cluster.question`), which a test names with `cluster.asks`: it is put
to all nodes before the first test, and they work on it while tests go on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from testinfra.host import Host

from tests.nodes import cluster


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; testinfra reads ansible.cfg from the working directory."""
    config.addinivalue_line("markers", "on(group): run on every node of this group")
    config.addinivalue_line("markers", "asks(question, ...): what of it is asked of all nodes beforehand")
    config.addinivalue_line("markers", "declares(kind): run on every node for which a stack declares such")
    config.addinivalue_line("markers", "stack(name): only where this stack is installed")
    config.addinivalue_line("markers", "role(name): only where an installed stack stands on this role")
    os.chdir(Path(__file__).resolve().parents[2])


def pytest_sessionfinish() -> None:
    """Answers that nobody waits for any more need not come."""
    cluster.no_more_questions()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `name` on every node of its group."""
    if "name" in metafunc.fixturenames and not metafunc.definition.get_closest_marker("declares"):
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


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Log in to every node, and ask what takes long, before the first test."""
    cluster.connect()
    for item in request.session.items:
        if lacking(item) is None:
            for mark in item.iter_markers("asks"):
                for question in mark.args:
                    question.begin()


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    """Skip, with its reason, what is not installed."""
    if reason := lacking(request.node):
        pytest.skip(reason)


def lacking(item: pytest.Item) -> str | None:
    """Why a test can't run on this cluster, if so."""
    for mark in item.iter_markers("stack"):
        if mark.args[0] not in cluster.stacks():
            return f"{mark.args[0]} is not among the inventory's stacks"
    for mark in item.iter_markers("role"):
        if not any(mark.args[0] in stands_on(stack) for stack in cluster.stacks()):
            return f"none of the inventory's stacks stands on the role {mark.args[0]}"
    return None


def stands_on(stack: str) -> list[str]:
    """The roles that a stack says it stands on."""
    facts = yaml.safe_load(
        (cluster.ROOT / "roles" / stack / "meta" / "facts.yml").read_text(encoding="utf-8")
    )
    return list(facts["stands_on"])
