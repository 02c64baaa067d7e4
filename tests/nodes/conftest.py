"""How tests of nodes run: on each node of a group in turn (`on`), if their stack or role is installed.

Slow checks are questions (`cluster.question`), which tests name with `cluster.asks`: they are put to all
nodes before the first test, and the nodes work on them while tests run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from testinfra.host import Host

from tests.nodes import cluster

#: Sentences for the person who verifies.
TOLD = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; testinfra reads ansible.cfg from the working directory."""
    config.addinivalue_line("markers", "on(group): run on every node of this group")
    config.addinivalue_line("markers", "asks(question, ...): put these questions to all nodes beforehand")
    config.addinivalue_line("markers", "declares(kind): run on every node for which a stack declares some")
    config.addinivalue_line("markers", "stack(name): only where this stack is installed")
    config.addinivalue_line("markers", "role(name): only where an installed stack needs this role")
    os.chdir(Path(__file__).resolve().parents[2])


def pytest_sessionfinish() -> None:
    """Drop questions that no test waits for any more."""
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
    """Skip tests of what only a testbed promises."""
    if not cluster.is_testbed():
        pytest.skip("the inventory is a lab's: only testbeds promise this")


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Show a sentence below the results."""
    sentences = request.config.stash.setdefault(TOLD, [])
    return sentences.append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Show what tests told."""
    del exitstatus
    for sentence in config.stash.get(TOLD, []):
        terminalreporter.write_line(sentence)


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Before the first test, log in to every node and put the slow questions."""
    cluster.connect()
    for item in request.session.items:
        if lacking(item) is None:
            for mark in item.iter_markers("asks"):
                for question in mark.args:
                    question.begin()


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    """Skip tests of what is not installed, with the reason."""
    if reason := lacking(request.node):
        pytest.skip(reason)


def lacking(item: pytest.Item) -> str | None:
    """Why a test can't run on this cluster; None if it can."""
    for mark in item.iter_markers("stack"):
        if mark.args[0] not in cluster.stacks():
            return f"{mark.args[0]} is not among the inventory's stacks"
    for mark in item.iter_markers("role"):
        if not any(mark.args[0] in stands_on(stack) for stack in cluster.stacks()):
            return f"none of the inventory's stacks needs the role {mark.args[0]}"
    return None


def stands_on(stack: str) -> list[str]:
    """The roles that a stack declares it needs before its own."""
    facts = yaml.safe_load(
        (cluster.ROOT / "roles" / stack / "meta" / "facts.yml").read_text(encoding="utf-8")
    )
    return list(facts["stands_on"])
