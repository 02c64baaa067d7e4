"""What records and the status say of the cluster: settings, the installed build of torch, lost nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import load

ROOT = Path(__file__).parents[3]
facts = load("roles/cluster_facts/filter_plugins/cluster_facts.py")
node = load("roles/cluster_facts/files/describe-node")
STACKS = ["ddp", "spark"]


def test_a_node_compiles_with_a_compiler_and_pythons_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(node.sysconfig, "get_path", lambda name: str(tmp_path / name))
    compiler, headers = tmp_path / "g++", tmp_path / "include" / "Python.h"
    compiler.write_text("#!/bin/sh\necho g++ 12\n")
    compiler.chmod(0o755)
    assert not node.compiles()
    headers.parent.mkdir()
    headers.touch()
    assert node.compiles()
    compiler.unlink()
    assert not node.compiles()


def digests(**variables: Any) -> dict[str, str]:
    """The digests of a cluster of two nodes; the second has these variables."""
    said = {"ddp_shm_size": "1g", "spark_executor_memory": "2g", "run_place": 0}
    hostvars = {"master": said, "worker1": said | variables, "elsewhere": {"ddp_shm_size": "9g"}}
    listed = json.dumps({"_meta": {"hostvars": hostvars}})
    found: dict[str, str] = facts.cluster_facts_settings(listed, ["master", "worker1"], STACKS)
    return found


def test_every_node_says_what_it_has() -> None:
    def node(groups: list[str], cores: int) -> dict[str, Any]:
        described = {"cores": cores, "memory_mb": 1000 * cores}
        return {
            "cluster_facts_node": {"stdout": json.dumps(described)},
            "nvidia_listing": {"stdout": json.dumps({"gpus": []})},
            "group_names": groups,
        }

    hostvars = {"master": node(["master", "cluster"], 2), "worker1": node(["workers", "cluster"], 1)}
    seen = facts.cluster_facts_nodes(["master", "worker1"], hostvars, ["10.0.0.1", "10.0.0.2"], 3)

    assert {name: (each["cores"], each["slots"], each["address"]) for name, each in seen.items()} == {
        "master": (2, 0, "10.0.0.1"),
        "worker1": (1, 3, "10.0.0.2"),
    }


def test_a_setting_of_one_node_changes_its_stack_and_no_other() -> None:
    assert digests(spark_executor_memory="4g")["spark"] != digests()["spark"]
    assert digests(spark_executor_memory="4g")["ddp"] == digests()["ddp"]


def test_settings_of_runs_are_of_every_stack() -> None:
    changed = digests(run_nodes=["worker1"])
    assert all(changed[stack] != digests()[stack] for stack in STACKS)


def test_what_launches_nothing_changes_nothing() -> None:
    assert digests(base_address="198.18.0.11", spark_password="one", other=1) == digests()


def test_environments_of_stacks_are_those_that_links_lead_to(tmp_path: Path) -> None:
    for name, link in (("0a", "current"), ("0b", "mine"), ("0c", "broken")):
        (tmp_path / name).mkdir()
        (tmp_path / link).symlink_to(tmp_path / name)
        (tmp_path / name / "DIGEST").write_text(f"{name}\n")
    (tmp_path / "0c" / "DIGEST").unlink()  # not installed to its end
    assert node.environments_beside(str(tmp_path / "current")) == {"mine": "0b"}
    assert node.environments_beside(str(tmp_path / "nowhere" / "current")) == {}


def test_an_environment_that_some_node_lacks_or_has_otherwise_is_none_of_the_cluster() -> None:
    nodes: dict[str, dict[str, Any]] = {
        "master": {"environments": {"mine": "0a", "newest": "0b", "part": "0c"}},
        "worker1": {"environments": {"mine": "0a", "newest": "0d"}},
    }
    assert facts.cluster_facts_environments(nodes) == {"mine": "0a"}


def test_torchs_build_is_its_own_word(tmp_path: Path) -> None:
    """PyPI's package has the version 2.13.0, whatever it was built for."""
    packages = tmp_path / "lib/python3.11/site-packages"
    (packages / "torch-2.13.0.dist-info").mkdir(parents=True)
    assert node.torch_version(str(tmp_path)) is None
    (packages / "torch").mkdir()
    said = "from typing import Optional\n__version__ = '2.13.0+cu130'\ndebug = False\n"
    (packages / "torch/version.py").write_text(said, encoding="utf-8")
    assert node.torch_version(str(tmp_path)) == "2.13.0+cu130"


ARM_CORE = (
    "processor\t: {}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
    "CPU variant\t: {}\nCPU part\t: {}\nCPU revision\t: 1\n\n"
)
N1 = ARM_CORE.format(0, "0x3", "0xd0c") + ARM_CORE.format(1, "0x3", "0xd0c")
SMALL_AND_BIG = ARM_CORE.format(0, "0x2", "0xd05") + ARM_CORE.format(1, "0x4", "0xd0b")


@pytest.mark.parametrize(
    ("cpuinfo", "listed", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: Xeon\n\nprocessor\t: 1\nmodel name\t: Xeon\n",
            "Model name: X",
            "Xeon",
        ),
        (
            N1,
            "Vendor ID:        ARM\n  BIOS Model name:  CPU\n  Model name:       Neoverse-N1\n    Model:  1",
            "Neoverse-N1 (implementer 0x41, part 0xd0c, variant 0x3)",
        ),
        (
            SMALL_AND_BIG,
            "Model name:  Cortex-A55\nModel name:  Cortex-A76",
            "Cortex-A55 and Cortex-A76 (implementer 0x41, part 0xd05, variant 0x2; "
            "implementer 0x41, part 0xd0b, variant 0x4)",
        ),
        (N1, "Model name:  -", "aarch64 (implementer 0x41, part 0xd0c, variant 0x3)"),
        (N1, None, "aarch64 (implementer 0x41, part 0xd0c, variant 0x3)"),
        ("processor\t: 0\nhart\t: 0\n", None, "aarch64"),
    ],
)
def test_processors_of_different_kinds_have_different_names(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str, listed: str | None, name: str
) -> None:
    monkeypatch.setattr(node, "output", lambda *_: listed)
    monkeypatch.setattr(node.platform, "machine", lambda: "aarch64")
    assert node.processor(cpuinfo) == name


SSH = (
    'Task failed: Data could not be sent to remote host "192.0.2.9". Make sure this host can be reached over '
    "ssh: ssh: connect to host 192.0.2.9 port 22: Connection refused\r\n"
)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"msg": SSH}, "ssh: connect to host 192.0.2.9 port 22: Connection refused"),
        ({"msg": "non-zero return code", "stderr": "Traceback\nValueError: odd\n"}, "ValueError: odd"),
        ({"msg": "Missing sudo password", "stderr": ""}, "Missing sudo password"),
        ({}, "unknown"),
    ],
)
def test_why_a_node_could_not_be_asked_is_one_line(result: dict[str, Any], reason: str) -> None:
    assert facts.cluster_facts_reason(result) == reason


def test_every_node_has_its_state_or_the_reason_why_it_is_unknown() -> None:
    hostvars: dict[str, dict[str, Any]] = {
        "well": {"cluster_facts_status": {"rc": 0, "stdout": '{"host": "node"}'}},
        "down": {"cluster_facts_status": {"unreachable": True, "msg": SSH}},
        "odd": {"cluster_facts_status": {"rc": 1, "stdout": ""}, "status_trouble": "ValueError: odd"},
    }
    found = facts.cluster_facts_states(
        list(hostvars),
        {name: {**known, "group_names": ["workers", "cluster"]} for name, known in hostvars.items()},
        [f"192.0.2.{number}" for number in range(3)],
    )
    assert found["well"] == {
        "address": "192.0.2.0",
        "groups": ["cluster", "workers"],
        "trouble": None,
        "state": {"host": "node"},
    }
    assert found["down"]["state"] is None and "Connection refused" in found["down"]["trouble"]
    assert found["odd"]["state"] is None and found["odd"]["trouble"] == "ValueError: odd"


def test_a_machine_is_known_by_a_digest_of_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    ids = iter([one, one, two, "uninitialized", None])
    monkeypatch.setattr(node, "first_line", lambda path: {"/etc/machine-id": next(ids)}[path])
    first, again, other, *without = (node.machine() for _ in range(5))
    assert first == again != other and without == [None, None]
    assert len(first) == 32 and one not in first
    # Where the id does not last, something else stands for it.
    assert node.machine("testbed") == node.machine("testbed") not in (first, other, None)


@pytest.mark.parametrize("kind", ["testbed", "vm"])
def test_nodes_of_a_testbed_that_are_made_anew_are_the_same_machines(kind: str) -> None:
    def machines(**environment: str) -> dict[str, str]:
        ansible = Path(sys.executable).parent / "ansible"
        module = ["-m", "ansible.builtin.debug", "-a", "var=cluster_facts_machine"]
        done = subprocess.run(
            [str(ansible), "-i", str(ROOT / "inventory" / kind), "all", *module],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.findall(r"^(\w+) \| SUCCESS.*\n +cluster_facts_machine: (\S+)$", done.stdout, re.MULTILINE)
        return dict(found)

    usual = machines()
    assert len(usual) == len(set(usual.values())) == 3
    assert machines(HOME="/elsewhere") == usual  # of another user of this machine, too
    for choice in ({"TESTBED": "other"}, {"TESTBED_PREFIX": "198.18.77"}):
        assert not set(machines(**choice).values()) & set(usual.values())
