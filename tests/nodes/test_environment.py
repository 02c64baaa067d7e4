"""The locked environment is the same on every node."""

from __future__ import annotations

import re

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from tests.nodes import cluster
from tests.stacks import ROOT

#: The packages that the environment is asked for, but for those with another name in Python.
WANTED = (ROOT / "roles/python_env/files/locks/environment.in").read_text(encoding="utf-8").splitlines()
PACKAGES = [
    line.partition("=")[0] for line in WANTED if line and not line.startswith("#") and "-" not in line
]
#: What torch was built with comes first: it is known also where something else can't be imported.
IMPORTS = f"import torch; print(torch.version.cuda); import {', '.join(PACKAGES)}; print(torch.__version__)"


@cluster.question("cluster")
def content(name: str) -> CommandResult:
    """What the environment holds: its digest, each file read and held against what was installed."""
    path = cluster.variables(name)["environment_path"]
    return cluster.node(name).run("/opt/trainbed/environment-content %s --verify", path)


@cluster.question("cluster")
def imported(name: str) -> CommandResult:
    """What torch says of itself, and whether what training needs can be imported with it."""
    python = cluster.variables(name)["environment_path"] + "/bin/python"
    return cluster.node(name).run("%s -c %s", python, IMPORTS)


def digest(name: str) -> str:
    """The digest of what a node's environment holds."""
    said = content(name)
    found: str = said.stdout.strip()
    assert re.fullmatch("[0-9a-f]{64}", found), said
    return found


def test_has_the_masters_environment_by_name(node: Host, name: str) -> None:
    path = cluster.variables(name)["environment_path"] + "/DIGEST"
    assert node.file(path).content_string == cluster.node(cluster.master()).file(path).content_string


@cluster.asks(content)
def test_has_the_masters_environment_by_content(name: str) -> None:
    assert digest(name) == digest(cluster.master())


@cluster.asks(content)
def test_files_are_those_that_were_installed(name: str) -> None:
    assert content(name).rc == 0, content(name)


@cluster.asks(imported)
def test_imports_what_training_needs(name: str) -> None:
    said = imported(name)
    assert said.rc == 0, said
    assert len(said.stdout.split()) == 2


@cluster.asks(imported)
def test_a_cpu_environment_holds_no_cuda(node: Host, name: str) -> None:
    facts = cluster.variables(name)
    if facts["environment_variant"] != "cpu":
        pytest.skip("the variant is not cpu")
    # The one that asks a driver for its figures is no part of CUDA.
    look = "find %s/lib -maxdepth 3 -name 'nvidia*' -not -name 'nvidia_ml_py-*'"
    assert node.check_output(look, facts["environment_path"]) == ""
    assert imported(name).stdout.split()[:1] == ["None"], imported(name)
