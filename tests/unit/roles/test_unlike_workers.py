"""What stacks ask for on workers that are not alike, and what they give ranks; evaluated by Ansible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT

RANK_ENVIRONMENT = {"NCCL_SOCKET_IFNAME": "=eth1", "NCCL_IB_HCA": "mlx5_0:1", "GLOO_X": "a #b ${c}"}


def evaluated(
    folder: Path, expressions: dict[str, str], roles: list[str], cores: dict[str, int | None], **given: Any
) -> dict[str, Any]:
    """The values of expressions as the master sees them.

    Args:
        folder: for the playbook.
        expressions: by name.
        roles: whose defaults and variables there are.
        cores: of each worker; None if it is away.
        given: the run's work and conditions where they are not the usual ones, and other variables.
    """
    work: dict[str, Any] = {"workers": 2, "slots_per_worker": 1, "seed": 1}
    work |= {"keep_checkpoints": 2, "data_digest": "d"}
    conditions = {
        **{"threads": 1, "tokenizing": "before", "runtime": "stack", "launcher": "stack"},
        **{"python_workers": "fresh", "program": "training"},
        "rank_environment": {},
    }
    run_spec = {
        "work": work | {key: given.pop(key) for key in [*given] if key in work},
        "conditions": conditions | {key: given.pop(key) for key in [*given] if key in conditions},
    }
    workers = {
        name: {"cluster_address": "10.0.0.2"}
        | ({} if number is None else {"runs_node": {"cores": number, "python": "3.11", "image": "image"}})
        for name, number in cores.items()
    }
    files = [str(ROOT / f"roles/{role}/{part}/main.yml") for role in roles for part in ("defaults", "vars")]
    usual = {
        **{"run_id": "run", "run_dir": "/run", "run_code": "/code", "run_data": "/data", "run_place": 0},
        **{"run_attempt": "01", "run_waits_s": 0, "run_suffix": "", "run_nodes": [*cores][: work["workers"]]},
        **{"spark_master_address": "10.0.0.1", "determined_image": "image"},
    }
    facts = {
        **{"name": "Note facts", "hosts": "workers", "gather_facts": False, "connection": "local"},
        "tasks": [
            {
                "name": "Note the cores",
                "ansible.builtin.set_fact": {"processor_nproc": "{{ runs_node.cores }}", "cacheable": True},
                "when": "runs_node is defined",
            }
        ],
    }
    play = {
        **{"name": "Evaluate", "hosts": "anna", "gather_facts": False, "connection": "local"},
        **{"become": False, "vars_files": files, "vars": usual | {"run_spec": run_spec}},
        "tasks": [
            {
                "name": "Write",
                "ansible.builtin.copy": {
                    "content": "{{ found | to_json }}",
                    "dest": str(folder / "found.json"),
                    "mode": "0600",
                },
                "vars": {"found": expressions},
            }
        ],
    }
    (folder / "playbook.yml").write_text(json.dumps([facts, play]), encoding="utf-8")
    hosts = {"master": {"hosts": {"anna": {}}}, "workers": {"hosts": workers}}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"children": hosts}}), encoding="utf-8")
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-playbook",
            "-i",
            folder / "hosts.yml",
            folder / "playbook.yml",
            "--extra-vars",
            json.dumps(given),
        ],
        cwd=ROOT,
        env=os.environ
        | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return found


def properties(text: str) -> dict[str, str]:
    """A file of Java properties: a key ends at the first space, and one "=" may follow it."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, _, value = line.partition(" ")
            found[key] = value.strip().removeprefix("= ")
    return found


@pytest.mark.parametrize(
    ("cores", "slots", "set_cores", "offered", "executor"),
    [
        # As in the issue: the worker that is the master has two cores, the others one.
        ({"anna": 2, "worker2": 1, "worker3": 1, "worker4": 1}, 1, "", 1, 1),
        ({"worker1": 1, "worker2": 1}, 1, "", 1, 1),
        ({"worker1": 4, "worker2": 4}, 1, "", 4, 4),
        ({"worker1": 4, "worker2": 4}, 2, "", 4, 4),
        # Three cores are no place for two equal tasks: with an executor of three, three ranks might go there.
        ({"worker1": 3, "worker2": 5}, 2, "", 3, 2),
        ({"worker1": 8, "worker2": 6}, 2, "4", 4, 4),
        # A worker that is away tells nothing.
        ({"worker1": 2, "worker2": None}, 1, "", 2, 2),
    ],
)
def test_sparks_executors_fit_every_worker_and_take_it_whole(
    tmp_path: Path, cores: dict[str, int | None], slots: int, set_cores: str, offered: int, executor: int
) -> None:
    found = evaluated(
        tmp_path,
        {
            "offered": "{{ spark_cores_offered }}",
            "properties": f"{{{{ lookup('template', '{ROOT}/roles/spark/templates/run.properties.j2') }}}}",
        },
        ["spark"],
        cores,
        slots_per_worker=slots,
        spark_worker_cores=set_cores,
    )
    assert int(found["offered"]) == offered
    asked = properties(found["properties"])
    assert int(asked["spark.executor.cores"]) == executor
    assert int(asked["spark.task.cpus"]) * slots == executor
    assert int(asked["spark.cores.max"]) == 2 * executor
    # No worker has room for a second executor, so none gets two of a run's ranks.
    assert offered < 2 * executor


@pytest.mark.parametrize("loads_defaults", [True, False])
def test_spark_loads_the_daemons_defaults_beside_a_runs_properties(
    tmp_path: Path, loads_defaults: bool
) -> None:
    """A release before 4 loads them only if there is no file of properties."""
    found = evaluated(
        tmp_path,
        {"argv": "{{ spark_submit }}", "properties": "{{ spark_properties }}", "stack": "{{ spark_stack }}"},
        ["spark"],
        {"anna": 1, "worker2": 1},
        rank_environment=RANK_ENVIRONMENT,
        role_path=str(ROOT / "roles/spark"),
        run_launch_dir="/launch",
        spark_home="/spark",
        spark_loads_defaults=loads_defaults,
    )
    start, settings = found["argv"][:3], found["argv"][3 : found["argv"].index("--py-files")]
    assert start == ["/spark/bin/spark-submit", "--name", "run"] and found["stack"] == "spark"
    if loads_defaults:
        assert settings == ["--load-spark-defaults", "--properties-file", "/launch/spark.properties"]
        return
    assert settings[::2] == ["--conf"] * (len(settings) // 2)
    asked = dict(setting.split("=", 1) for setting in settings[1::2])
    assert asked == properties(found["properties"])
    assert asked["spark.executorEnv.NCCL_SOCKET_IFNAME"] == "=eth1"


@pytest.mark.parametrize(("workers", "reuse"), [("fresh", "false"), ("reused", "true")])
def test_spark_reuses_python_workers_if_asked_to(tmp_path: Path, workers: str, reuse: str) -> None:
    expressions = {"properties": "{{ spark_properties }}"}
    role = str(ROOT / "roles/spark")
    found = evaluated(
        tmp_path, expressions, ["spark"], {"anna": 1, "worker2": 1}, python_workers=workers, role_path=role
    )
    assert properties(found["properties"])["spark.python.worker.reuse"] == reuse


def test_variables_of_ranks_reach_every_stack_and_replace_none_of_its_own(tmp_path: Path) -> None:
    found = evaluated(
        tmp_path,
        {
            "docker": "{{ ddp_docker_run }}",
            "direct": "{{ ddp_rank_environment }}",
            "properties": f"{{{{ lookup('template', '{ROOT}/roles/spark/templates/run.properties.j2') }}}}",
            "experiment": "{{ determined_experiment.environment.environment_variables }}",
        },
        ["ddp", "spark", "determined"],
        {"anna": 1, "worker2": 1},
        rank_environment=RANK_ENVIRONMENT,
        launcher="none",
    )
    texts = {f"{name}={value}" for name, value in RANK_ENVIRONMENT.items()}
    assert {f"--env={text}" for text in texts} <= set(found["docker"])
    assert "--env=OMP_NUM_THREADS=1" in found["docker"]
    assert found["direct"].items() >= RANK_ENVIRONMENT.items()
    assert found["direct"]["MASTER_ADDR"] == "10.0.0.2"
    asked = properties(found["properties"])
    assert {name: asked[f"spark.executorEnv.{name}"] for name in RANK_ENVIRONMENT} == RANK_ENVIRONMENT
    assert asked["spark.executorEnv.OMP_NUM_THREADS"] == "1"
    assert found["experiment"] == [
        "DET_SKIP_PIP_INSTALL=1",
        "OMP_NUM_THREADS=1",
        *map("=".join, RANK_ENVIRONMENT.items()),
    ]


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ({"determined_slot_type": "cuda", "determined_slots": 2}, "0,1"),
        ({"determined_slot_type": "cuda", "determined_slots": 2, "determined_visible_gpus": "2,3"}, "2,3"),
        ({"determined_slot_type": "cpu", "determined_slots": 2}, ""),
    ],
)
def test_an_agent_offers_no_more_gpus_than_slots(tmp_path: Path, given: dict[str, Any], offered: str) -> None:
    found = evaluated(
        tmp_path,
        {"gpus": "{{ determined_agent_base.visible_gpus }}"},
        ["determined"],
        {"worker1": 1},
        workers=1,
        determined_address="10.0.0.1",
        **given,
    )
    assert found["gpus"] == offered
