"""The locked environment is the same on every node and in the image."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from tests.nodes import cluster


def content(node: Host, path: str) -> str:
    return str(node.check_output("/opt/trainbed/environment-content %s", path))


def test_has_the_masters_environment_by_name(node: Host, name: str) -> None:
    path = cluster.variables(name)["environment_path"] + "/DIGEST"
    assert node.file(path).content_string == cluster.node(cluster.master()).file(path).content_string


def test_has_the_masters_environment_by_content(node: Host, name: str) -> None:
    path = cluster.variables(name)["environment_path"]
    assert content(node, path) == content(cluster.node(cluster.master()), path)


def test_files_are_those_that_were_installed(name: str, node: Host) -> None:
    path = cluster.variables(name)["environment_path"]
    assert node.run("/opt/trainbed/environment-content %s --verify", path).rc == 0


def test_imports_what_training_needs(node: Host, name: str) -> None:
    python = cluster.variables(name)["environment_path"] + "/bin/python"
    program = "import torch, transformers, datasets, pyspark, determined; print(torch.__version__)"
    assert node.check_output(f"{python} -c '{program}'")


def test_a_cpu_environment_holds_no_cuda(node: Host, name: str) -> None:
    facts = cluster.variables(name)
    if facts["environment_variant"] != "cpu":
        pytest.skip("the variant is not cpu")
    # The one that asks a driver for its figures is no part of CUDA.
    look = "find %s/lib -maxdepth 3 -name 'nvidia*' -not -name 'nvidia_ml_py-*'"
    assert node.check_output(look, facts["environment_path"]) == ""
    python = facts["environment_path"] + "/bin/python"
    assert node.check_output(f"{python} -c 'import torch; print(torch.version.cuda)'") == "None"
