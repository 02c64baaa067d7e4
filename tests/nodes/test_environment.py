"""The locked environment is the same on every node."""

from __future__ import annotations

import re
from pathlib import Path

from testinfra.backend.base import CommandResult
from testinfra.host import Host

from tests.nodes import cluster
from tests.stacks import ROOT

#: What the environment requests, by the names under which Python imports it.
OTHERWISE = {"pillow": "PIL", "scikit-learn": "sklearn", "nvidia-ml-py": "pynvml"}
WANTED = (ROOT / "roles/python_env/files/locks/environment.in").read_text(encoding="utf-8").splitlines()
REQUESTED = [line.partition("=")[0] for line in WANTED if line and not line.startswith("#")]
PACKAGES = [OTHERWISE.get(name, name.replace("-", "_")) for name in REQUESTED]
#: Torch's CUDA version comes first, so it is known even if another import fails.
IMPORTS = f"import torch; print(torch.version.cuda); import {', '.join(PACKAGES)}; print(torch.__version__)"


@cluster.question("cluster")
def content(name: str) -> CommandResult:
    """Digest of the environment's content, with each file read and compared with what was installed."""
    path = cluster.variables(name)["environment_path"]
    return cluster.node(name).run("/opt/trainbed/environment-content %s --verify", path)


@cluster.question("cluster")
def imported(name: str) -> CommandResult:
    """Torch's CUDA version and its own, and whether everything that training needs can be imported."""
    python = cluster.variables(name)["environment_path"] + "/bin/python"
    return cluster.node(name).run("%s -c %s", python, IMPORTS)


def digest(name: str) -> str:
    """The digest of the content of a node's environment."""
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


def test_has_the_masters_newest_libraries_as_they_were_installed(node: Host, name: str) -> None:
    """Only where the link is, since whoever provisions may ask for them beside the inventory."""
    path = f"{Path(cluster.variables(name)['environment_path']).parent}/newest"
    master = cluster.node(cluster.master())
    assert node.file(path).exists == master.file(path).exists
    if node.file(path).exists:
        assert node.check_output("cat %s/DIGEST", path) == master.check_output("cat %s/DIGEST", path)
        node.check_output("/opt/trainbed/environment-content %s --verify", path)


@cluster.asks(content)
def test_files_are_those_that_were_installed(name: str) -> None:
    assert content(name).rc == 0, content(name)


@cluster.asks(imported)
def test_imports_what_training_needs(name: str) -> None:
    said = imported(name)
    assert said.rc == 0, said
    assert len(said.stdout.split()) == 2


@cluster.asks(imported)
def test_holds_the_libraries_of_its_build_of_torch_alone(node: Host, name: str) -> None:
    """By what is installed: whoever provisions may choose a build that the inventory does not name."""
    cuda, version = imported(name).stdout.split()
    # nvidia_ml_py, which reads a driver's figures, is not part of CUDA.
    look = "find %s/lib -maxdepth 3 -name 'nvidia*' -not -name 'nvidia_ml_py-*'"
    libraries = node.check_output(look, cluster.variables(name)["environment_path"])
    build = version.partition("+")[2]
    assert build == ("cpu" if cuda == "None" else "cu" + cuda.replace(".", "")), version
    assert bool(libraries) == (build != "cpu"), libraries


@cluster.asks(imported)
def test_has_the_build_that_its_lock_names(node: Host, name: str) -> None:
    lock = node.file(cluster.variables(name)["environment_path"] + "/LOCK").content_string
    assert lock.partition("-")[0] == imported(name).stdout.split()[1].partition("+")[2], lock
