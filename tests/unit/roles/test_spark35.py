"""The role of Spark's earlier release: what it has other roles do, and the environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT
from tests.unit.roles.test_locks import indexes, words  # noqa: F401 - indexes is a fixture
from tests.unit.roles.test_preflight import BINARIES

HOSTS: dict[str, Any] = {
    "cluster": {"children": {"master": {"hosts": {"m": {}}}, "workers": {"hosts": {"w1": {}, "w2": {}}}}}
}
#: Of roles that are called: one line each, with the variables that are of interest.
STUBS = {
    "node": {"fresh": ("always", "")},
    "artifacts": {
        "wheels": ("install", "{{ artifacts_beside }}"),
        "named": ("install", "{{ artifacts_beside }}"),
    },
    "python_env": {
        "main": (
            "install",
            "{{ python_env_path }} {{ python_env_key }} {{ python_env_digest }} {{ python_env_lock }}",
        )
    },
    "spark": {
        "main": (
            "configure",
            "{{ spark_stack }} {{ spark_environment }} {{ spark_conf_dir }} {{ spark_master_port }}",
        ),
        "run": (
            "untagged",
            "{{ spark_stack }} {{ spark_environment }} {{ spark_loads_defaults }} {{ spark_driver_port }}",
        ),
        "forget": ("untagged", "{{ spark_conf_dir }}"),
    },
}


def play(folder: Path, tasks: list[dict[str, Any]], *options: str, **variables: Any) -> str:
    """Plays tasks on three nodes that are this machine; returns what was said, without line breaks."""
    usual = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "spark35_master_address": "10.0.0.1",
        "spark35_address": "10.0.0.2",
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": HOSTS}}), encoding="utf-8")
    plays = [{"hosts": "cluster", "become": False, "tasks": tasks}]
    (folder / "play.yml").write_text(yaml.safe_dump(plays), encoding="utf-8")
    settings = ["--extra-vars", json.dumps(usual | variables)]
    done = subprocess.run(
        [BINARIES / "ansible-playbook", "-i", folder / "hosts.yml", folder / "play.yml", *settings, *options],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return words(done)


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder of roles that say what they were called with, in the place of those that the role calls."""
    for role, files in STUBS.items():
        folder = tmp_path / "roles" / role / "tasks"
        folder.mkdir(parents=True)
        for name, (tag, shown) in files.items():
            said = f"{{{{ inventory_hostname }}}}: {role} {name} {shown}."
            tasks: list[dict[str, Any]] = [{"ansible.builtin.debug": {"msg": said}, "tags": [tag]}]
            if name == "named":
                told = {"key": "k1", "digest": "d1", "lock": "l1"}
                tasks.append({"ansible.builtin.set_fact": {"artifacts_named": told}, "tags": [tag]})
            (folder / f"{name}.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    return tmp_path


def install(tags: list[str]) -> dict[str, Any]:
    """How playbooks/provision.yml installs a stack."""
    return {
        "ansible.builtin.include_role": {"name": "spark35", "apply": {"tags": ["spark35"]}},
        "tags": tags,
    }


ENVIRONMENT = [
    "m: artifacts wheels spark35.",
    *(f"{name}: artifacts named spark35." for name in ("m", "w1", "w2")),
    *(f"{name}: python_env main /opt/trainbed/env/spark35 k1 d1 l1." for name in ("m", "w1", "w2")),
]
CLUSTER = [
    f"{name}: spark main spark35 /opt/trainbed/env/spark35 /etc/trainbed/spark35 7177."
    for name in ("m", "w1", "w2")
]


@pytest.mark.parametrize(
    ("options", "done"),
    [
        ([], ENVIRONMENT + CLUSTER),
        (["--tags", "spark35"], ENVIRONMENT + CLUSTER),
        (["--tags", "install"], ENVIRONMENT),
        (["--tags", "configure"], CLUSTER),
        (["--tags", "spark"], []),
        (["--limit", "w1"], [line for line in ENVIRONMENT + CLUSTER if line.startswith("w1:")]),
    ],
    ids=["all", "the stack", "install", "configure", "another stack", "one node"],
)
def test_it_has_an_environment_and_a_cluster_of_its_own(
    stubs: Path, options: list[str], done: list[str]
) -> None:
    said = play(stubs, [install(["always"])], *options)
    assert sorted(re.findall(r"msg: '?(\w+: [^.]*\.)", said)) == sorted(done), said


def test_its_runs_are_sparks_with_its_own_places(stubs: Path) -> None:
    tasks = [
        {"ansible.builtin.include_role": {"name": "spark35", "tasks_from": name}}
        for name in ("run", "forget")
    ]
    said = play(stubs, tasks, "--limit", "m")
    assert re.findall(r"msg: '?(m: [^.]*\.)", said) == [
        "m: spark run spark35 /opt/trainbed/env/spark35 False 7190.",
        "m: spark forget /etc/trainbed/spark35.",
    ]


RECORDER = """
import json
from ansible.module_utils.basic import AnsibleModule

names = "argv unit user group chdir environment files log note stack nodes".split()
module = AnsibleModule({name: {"type": "raw"} for name in names})
with open(module.params["log"], "w") as file:
    json.dump(module.params, file)
module.exit_json(changed=False)
"""


def launched(folder: Path, stack: str, threads: int | str = 2) -> dict[str, Any]:
    """What a stack's role gives to the module run_job, which only writes that down."""
    for name in ("spark", "spark35"):
        (folder / "roles").mkdir(parents=True, exist_ok=True)
        (folder / "roles" / name).symlink_to(ROOT / "roles" / name)
    (folder / "roles/node/tasks").mkdir(parents=True)
    (folder / "roles/runs/library").mkdir(parents=True)
    (folder / "roles/runs/library/run_job.py").write_text(RECORDER, encoding="utf-8")
    (folder / "launch/logs").mkdir(parents=True)
    conditions = {
        **{"threads": threads, "tokenizing": "before", "python_workers": "reused", "program": "training"},
        "rank_environment": {"NCCL_SOCKET_IFNAME": "=eth1"},
    }
    variables = {
        **{"run_id": "run", "run_dir": str(folder), "run_code": "/code", "run_data": "/data", "run_place": 1},
        **{"run_waits_s": 0, "run_suffix": "-1", "run_nodes": ["w1", "w2"]},
        **{"run_launch_dir": str(folder / "launch"), "runs_node": {"cores": 4, "python": "3.11"}},
        "run_spec": {"work": {"slots_per_worker": 2}, "conditions": conditions},
        # What an inventory sets for one of them is not for the other.
        **{"spark_master_address": "10.0.0.1", "spark_address": "10.0.0.2", "spark_executor_memory": "3g"},
    }
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text(yaml.safe_dump(variables), encoding="utf-8")
    play(folder, [{"ansible.builtin.include_role": {"name": stack, "tasks_from": "run"}}], "--limit", "m")
    given: dict[str, Any] = json.loads((folder / "launch/logs/m.log").read_text(encoding="utf-8"))
    return given


@pytest.mark.parametrize(
    ("stack", "environment", "ports"), [("spark", "current", "709"), ("spark35", "spark35", "719")]
)
def test_a_run_is_submitted_with_the_stacks_own_release_and_settings(
    tmp_path: Path, stack: str, environment: str, ports: str
) -> None:
    given = launched(tmp_path, stack)
    home = f"/opt/trainbed/env/{environment}/lib/python3.11/site-packages/pyspark"
    assert (given["unit"], given["stack"]) == (f"trainbed-run-{stack}-1", stack)
    assert given["environment"] == {
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": f"/etc/trainbed/{stack}",
        "HOME": f"/var/lib/trainbed/{stack}",
    }
    argv, files = given["argv"], given["files"]
    assert argv[:3] == [f"{home}/bin/spark-submit", "--name", "run"]
    assert f"http://10.0.0.1:{ports[:2]}80" in argv and "/code/training/launchers/spark.py" in argv
    if stack == "spark":
        (text,) = files.values()
        found = dict(re.findall(r"^(spark\S+)\s+(?:= )?(.*)$", text, re.MULTILINE))
    else:
        found = dict(argv[at + 1].split("=", 1) for at, word in enumerate(argv) if word == "--conf")
        assert files == {}
    assert found["spark.python.worker.reuse"] == "true"
    assert found["spark.driver.port"] == f"{ports}2" and found["spark.executor.cores"] == "4"
    assert found["spark.executor.memory"] == ("3g" if stack == "spark" else "1g")
    assert found["spark.executorEnv.TRAINBED_ENV_DIGEST"] == f"/opt/trainbed/env/{environment}/DIGEST"
    assert found["spark.pyspark.python"] == f"/opt/trainbed/env/{environment}/bin/python"
    assert found["spark.executorEnv.NCCL_SOCKET_IFNAME"] == "=eth1"


def test_spark_sets_threads_itself_where_they_are_the_stacks_own(tmp_path: Path) -> None:
    for threads, given in ((2, "2"), ("stack", None)):
        (text,) = launched(tmp_path / f"{threads}", "spark", threads)["files"].values()
        found = dict(re.findall(r"^spark\.(\S+)\s+(?:= )?(.*)$", text, re.MULTILINE))
        assert found.get("executorEnv.OMP_NUM_THREADS") == given
        assert found["executorEnv.PYTHONDONTWRITEBYTECODE"] == "1"
        # Spark takes the number from task.cpus. An executor has all of a worker's cores all the same.
        assert (found.get("task.cpus"), found["executor.cores"]) == (given, "4")
        assert (found.get("scheduler.minRegisteredResourcesRatio") == "1.0") == (given is None)


def test_no_variable_of_its_inventory_needs_one_that_it_gives_the_other_role() -> None:
    """Ansible would look for each in the other, without end."""
    given: set[str] = set()
    for file in ("main", "run", "forget"):
        tasks = yaml.safe_load((ROOT / f"roles/spark35/tasks/{file}.yml").read_text(encoding="utf-8"))
        given |= {name for task in tasks for name in task.get("vars", {})}
    said = (ROOT / "inventory/common/spark35.yml").read_text(encoding="utf-8")
    needed = {word for value in yaml.safe_load(said).values() for word in re.findall(r"\w+", str(value))}
    assert "spark_noted_cores" in given and "cores_left_out" in needed
    assert given.isdisjoint(needed)


@pytest.mark.parametrize("minor", [11, 12])
def test_it_is_left_out_where_there_is_no_lock_for_the_nodes_python(tmp_path: Path, minor: int) -> None:
    facts = {"ansible_facts": {"python": {"version": {"major": 3, "minor": minor}}}}
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.set_fact": facts},
        {"ansible.builtin.include_role": {"name": "spark35", "tasks_from": "available"}},
        {"ansible.builtin.debug": {"msg": "It is lacking: {{ spark35_lacking | default('nothing.') }}"}},
    ]
    said = play(tmp_path, tasks, "--limit", "m", artifacts_variant="cpu")
    reason = (
        "There is no lock spark35/cpu-py3.12.txt of its environment: Spark 3.5.1 is for Python 3.8 to 3.11"
    )
    assert ("It is lacking: nothing." in said) == (minor == 11)
    assert (f"It is lacking: {reason}" in said) == (minor == 12), said


def test_an_environment_beside_the_first_is_fetched_and_named_without_replacing_it(
    tmp_path: Path,
    indexes: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    settings = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"http://{indexes}/pypi",
        "no_proxy": "127.0.0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    locks, file = tmp_path / "locks", f"cu130-py3.{sys.version_info.minor}.txt"
    (locks / "other").mkdir(parents=True)
    for path, version in ((locks / file, "2.0"), (locks / "other" / file, "1.0")):
        wheels = [*(tmp_path / "indexes/pypi").glob(f"numpy-{version}-*")]
        wheels += [*(tmp_path / "indexes/pypi").glob("torch-*")]
        path.write_text("".join(entry(wheel) for wheel in wheels), encoding="utf-8")
    store, cache = tmp_path / "store", tmp_path / "cache"
    store.mkdir()
    (cache / "wheels").mkdir(parents=True)

    def call(name: str, beside: str, **more: Any) -> dict[str, Any]:
        return {
            "ansible.builtin.include_role": {"name": "artifacts", "tasks_from": name},
            "vars": {"artifacts_beside": beside},
        } | more

    on_master = {"when": "inventory_hostname == 'm'"}
    shown = "{{ hostvars.m.artifacts_environment.digest }} {{ artifacts_named.digest }}"
    shown += " {{ artifacts_named.lock }}."
    tasks = [
        call("wheels", "", **on_master),
        call("wheels", "other", **on_master),
        call("named", "other"),
        {"ansible.builtin.debug": {"msg": f"{{{{ inventory_hostname }}}} {shown}"}},
    ]
    variables = {
        "artifacts_variant": "cu130",
        "artifacts_locks": str(locks),
        "artifacts_root": str(store),
        "artifacts_cache": str(cache),
        "artifacts_torch_index": "http://127.0.0.1:9/whl",
        "artifacts_extra": [],
    }
    told = play(tmp_path, tasks, **variables)
    found = re.findall(r"(\w+) ([0-9a-f]{64}) ([0-9a-f]{64}) (cu130-py3\.\d+ of other)\.", told)
    # Nodes answer in an order of their own.
    assert sorted(each[0] for each in found) == ["m", "w1", "w2"], told
    assert len({each[1:] for each in found}) == 1, told
    stored = {path.read_text().strip(): path.parent for path in cache.glob("wheels/*/DIGEST")}
    assert set(stored) == set(found[0][1:3])
    assert "numpy==2.0 " in (stored[found[0][1]] / "requirements.txt").read_text()
    assert "numpy==1.0 " in (stored[found[0][2]] / "requirements.txt").read_text()
    # Again, nothing is fetched; a node asks the master for the name even if that has no part in the play.
    assert words_changed(play(tmp_path, tasks, **variables)) == 0
    assert words_changed(play(tmp_path, [call("named", "other")], "--limit", "w1", **variables)) == 0


def entry(wheel: Path) -> str:
    """A lock's entry of a wheel."""
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def words_changed(said: str) -> int:
    """How many tasks changed something, on all nodes."""
    return sum(int(number) for number in re.findall(r"changed=(\d+)", said))
