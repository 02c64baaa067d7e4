"""What the roles of stacks declare to put on nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.cluster.declarations import FILE, Declaration, declared_for, read_declaration, short_name
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY

ROLES = REPOSITORY / "roles"
STACKS = sorted(path.parts[-3] for path in ROLES.glob("*/tasks/run.yml"))
BOOKWORM = "Debian GNU/Linux 12 (bookworm)"
EVERYWHERE = dict.fromkeys(("master", "workers"), BOOKWORM)
DECLARED = """
master:
  packages: {Debian-12: [old], Debian-13: [new]}
  services: [made-master]
  files: [/etc/same, {Debian-12: /etc/old, Debian-13: /etc/new}]
workers: {packages: [made], files: [/etc/made], processes: [made]}
"""


def role(folder: Path, text: str) -> Path:
    (folder / "meta").mkdir()
    (folder / FILE).write_text(text)
    return folder


def defaults(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROLES / name / "defaults" / "main.yml").read_text())
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_every_shipped_stack_declares_what_it_puts_on_nodes(stack: str) -> None:
    declaration = read_declaration(ROLES / stack)
    assert declaration is not None
    assert any(each.files or each.services for each in declaration.groups.values())
    for each in declaration.groups.values():
        for pattern in each.processes:
            re.compile(pattern)


@pytest.mark.parametrize("stack", STACKS)
def test_its_ports_are_those_of_its_role_s_defaults(stack: str) -> None:
    declaration = read_declaration(ROLES / stack)
    assert declaration is not None
    variables: dict[str, Any] = {}
    # Including roles it may call; its own come last, so they win.
    for folder in (*sorted(ROLES.glob("*/defaults")), ROLES / stack / "defaults"):
        variables |= defaults(folder.parent.name)
    for port in (port for each in declaration.groups.values() for port in each.ports):
        assert {port.port, *port.moved_by} <= set(variables)
        numbers = set(re.findall(r"\d+", str(variables[port.port])))
        assert numbers == {
            *re.findall(r"\d+", str(port.default)),
            *map(str, port.moved_by.values()),
        }, port.port


@pytest.mark.parametrize("stack", STACKS)
def test_packages_and_files_are_declared_for_every_distribution_that_nodes_may_have(stack: str) -> None:
    for distribution in (BOOKWORM, "Debian GNU/Linux 13 (trixie)", "Ubuntu 24.04.1 LTS"):
        declaration = declared_for(ROLES / stack, {"master": distribution, "workers": distribution})
        assert declaration is not None
        for each in declaration.groups.values():
            assert isinstance(each.packages, list)
            assert all(isinstance(path, str) for path in each.files)


def test_packages_and_files_are_those_of_the_nodes_distribution(tmp_path: Path) -> None:
    made = role(tmp_path, DECLARED)
    declaration = declared_for(made, EVERYWHERE)
    assert declaration is not None
    assert (declaration.master.packages, declaration.workers.packages) == (["old"], ["made"])
    assert declaration.master.services == ["made-master"] and declaration.workers.files == ["/etc/made"]
    assert declaration.master.files == ["/etc/same", "/etc/old"]
    trixie = declared_for(made, {**EVERYWHERE, "master": "Debian GNU/Linux 13 (trixie)"})
    assert trixie is not None and trixie.master.packages == ["new"]
    assert trixie.master.files == ["/etc/same", "/etc/new"]
    # It survives the round trip through a campaign's file.
    assert Declaration.model_validate_json(declaration.model_dump_json()) == declaration
    with pytest.raises(UserError, match=r"stack.yml: packages or files of master are missing for Ubuntu-24"):
        declared_for(made, {**EVERYWHERE, "master": "Ubuntu 24.04.1 LTS"})


def test_a_role_may_declare_nothing(tmp_path: Path) -> None:
    assert read_declaration(tmp_path) is None and declared_for(tmp_path, EVERYWHERE) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nodes: {}",
        "master: {packages: made}",
        "master: {files: [etc/made]}",
        "master: {ports: [8080]}",
        "workers: {daemons: [made]}",
    ],
)
def test_what_cannot_be_declared_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"stack.yml is not valid"):
        read_declaration(role(tmp_path, content))


def test_a_file_that_is_not_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"stack.yml is not YAML"):
        read_declaration(role(tmp_path, "master: ["))


def test_distributions_have_short_names() -> None:
    assert [short_name(each) for each in (BOOKWORM, "Ubuntu 24.04.1 LTS", "unheard of")] == [
        "Debian-12",
        "Ubuntu-24",
        "unheard of",
    ]
