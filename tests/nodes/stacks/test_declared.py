"""Everything that a stack declares (`meta/stack.yml` of its role) is on the nodes."""

from __future__ import annotations

import functools
import shlex

import pytest
from testinfra.host import Host

from tests.nodes import cluster
from tests.nodes.facts import listening, on_node, ports, unit
from tests.stacks import declared

EVERYWHERE = {"*", "0.0.0.0", "::"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of a kind of declaration on every node for which a stack declares some."""
    for mark in metafunc.definition.iter_markers("declares"):
        where = [
            pytest.param(name, stack, marks=pytest.mark.stack(stack))
            for name in cluster.groups()["cluster"]
            for stack in declared()
            if any(getattr(found, mark.args[0]) for found in on_node(name, stack))
        ]
        metafunc.parametrize(("name", "stack"), where, scope="session")


@functools.cache
def distribution(name: str) -> str:
    """The distribution of a node, as declarations call it (`Debian-12`)."""
    said = cluster.node(name).check_output('. /etc/os-release && echo "$ID ${VERSION_ID%%.*}"')
    identifier, version = said.split()
    return f"{identifier.capitalize()}-{version}"


@pytest.mark.on("master")
def test_every_installed_stack_declares_what_it_puts_on_nodes(name: str) -> None:
    assert name == cluster.master()
    assert set(cluster.stacks()) <= set(declared())


@pytest.mark.declares("packages")
def test_declared_packages_are_installed(node: Host, name: str, stack: str) -> None:
    wanted = [
        package
        for found in on_node(name, stack)
        for package in found.of_distribution(distribution(name)).packages
    ]
    shown = node.run(
        "dpkg-query --show --showformat='${Package} ${db:Status-Status}\\n' " + shlex.join(wanted)
    )
    assert set(shown.stdout.splitlines()) == {f"{package} installed" for package in wanted}


@pytest.mark.declares("services")
def test_declared_services_run_and_come_back(name: str, stack: str) -> None:
    found = {service: unit(name, service) for each in on_node(name, stack) for service in each.services}
    assert [service for service, state in found.items() if not state.is_running] == []
    assert [service for service, state in found.items() if not state.is_enabled] == []


@pytest.mark.declares("files")
def test_declared_files_are_there(node: Host, name: str, stack: str) -> None:
    wanted = [
        str(path)
        for found in on_node(name, stack)
        for path in found.of_distribution(distribution(name)).files
    ]
    missing = f'for path in {shlex.join(wanted)}; do [ -s "$path" ] || echo "$path"; done'
    assert node.check_output(missing) == ""


@pytest.mark.declares("ports")
def test_listens_on_declared_ports(name: str, stack: str) -> None:
    address = cluster.variables(name)["cluster_address"]
    for number, port in ports(name, stack).items():
        found = set(listening(name, number))
        assert found == {"127.0.0.1"} if port.local else found & {address, *EVERYWHERE}, port
