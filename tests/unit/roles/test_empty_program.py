"""What each stack's role starts where a run asks for an empty program in the place of training."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.roles.loading import value_of

CODE = "/shared/code"
RUN = {"run_dir": "/shared/run", "run_data": "/data/d", "run_code": CODE, "run_id": "r", "run_attempt": "a"}


def asked(program: str, **conditions: Any) -> dict[str, Any]:
    """The variables of a run on two workers with two slots each."""
    given: dict[str, Any] = {"program": program, "threads": 1, "rank_environment": {}}
    given |= {"runtime": "stack", "launcher": "stack"}
    work = {"workers": 2, "slots_per_worker": 2, "seed": 1, "keep_checkpoints": 2}
    spec = {"work": work, "conditions": given | conditions}
    return RUN | {"run_spec": spec, "run_nodes": ["w1", "w2"], "inventory_hostname": "w2"}


@pytest.mark.parametrize(
    ("conditions", "first"),
    [
        ({}, "torchrun"),
        ({"runtime": "native"}, "/env/bin/torchrun"),
        ({"launcher": "none"}, "python"),
    ],
)
def test_torchrun_gets_the_empty_program_by_its_path(conditions: dict[str, str], first: str) -> None:
    given: dict[str, Any] = {"hostvars": {"w1": {"cluster_address": "10.0.0.1"}}}
    given |= {"ddp_environment": "/env"}
    given |= {"ddp_master_port": 12355, "run_place": 0}
    empty, training = (
        value_of("ddp_ranks", "roles/ddp/vars/main.yml", **given, **asked(program, **conditions))
        for program in ("empty", "training")
    )
    assert empty[0] == training[0] == first
    assert empty[-1] == "training/launchers/empty.py" and "-m" not in empty
    assert empty[:-1] == training[: len(empty) - 1] and "training.launchers.ddp" in training


def test_spark_submit_gets_the_empty_function_alone() -> None:
    file = "roles/spark/vars/main.yml"
    given = {"spark_master_address": "10.0.0.1", "spark_master_webui_port": 7080}
    empty = value_of("spark_submit_program", file, **given, **asked("empty"))
    assert list(map(str, empty)) == [f"{CODE}/training/launchers/spark_empty.py", "--processes", "4"]
    training = value_of("spark_submit_program", file, **given, **asked("training"))
    assert training[:3] == ["--py-files", f"{CODE}/training.zip", f"{CODE}/training/launchers/spark.py"]


def test_an_experiment_of_determined_has_the_empty_program_alone() -> None:
    file = "roles/determined/vars/main.yml"
    given: dict[str, Any] = {"determined_images": {"w1": "image"}, "determined_checkpoints": "/c"}
    given |= {"determined_max_restarts": 0, "determined_task_environment": []}
    experiments = {}
    for program, code in (("empty", "/training/launchers/empty.py"), ("training", "/training")):
        variables = given | asked(program)
        assert value_of("determined_code", file, **variables) == code
        experiments[program] = value_of("determined_experiment", file, **variables)
    launcher = "python3 -m determined.launch.torch_distributed -- python3 "
    assert experiments["empty"].pop("entrypoint").strip() == f"{launcher}empty.py"
    arguments = "--spec /shared/run/spec.json --data /data/d --out /shared/run"
    assert experiments["training"].pop("entrypoint").strip() == (
        f"{launcher}-m training.launchers.determined {arguments}"
    )
    assert experiments["empty"] == experiments["training"]
