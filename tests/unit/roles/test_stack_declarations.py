"""What stacks' roles declare that their runs may leave on nodes."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader

from tests.unit.roles.loading import ROOT, load

plugin = load("roles/runs/lookup_plugins/stack_leftovers.py")
STACKS = sorted(path.parents[1].name for path in ROOT.glob("roles/*/tasks/run.yml"))
#: Of each stack's processes on a worker; the last two are of a real Determined agent, by its SDK's source.
COMMAND_LINES = {
    "ddp": [
        "/usr/bin/python3 /opt/env/bin/torchrun --nnodes=2 -m training.launchers.ddp --spec s",
        "/opt/env/bin/python -u -m training.launchers.ddp --spec /srv/runs/spec.json",
    ],
    **{
        stack: [
            line
            for environment in environments
            for line in (
                f"java -cp /etc/trainbed/{stack}/:{environment}/lib/python3.11/site-packages/pyspark/jars/* "
                "-Xmx1024M org.apache.spark.executor.CoarseGrainedExecutorBackend --driver-url spark://x",
                f"{environment}/bin/python -m pyspark.ml.torch.torch_run_process_wrapper --nnodes=2 "
                "/tmp/tmpab/train.py",
                f"{environment}/bin/python -m torch.distributed.run --nnodes=2 /tmp/tmpab/train.py",
                f"{environment}/bin/python -u /tmp/tmpab/train.py",
            )
        ]
        for stack, environments in (
            ("spark", ("/opt/trainbed/env/current", "/opt/trainbed/env/newest")),
            ("spark35", ("/opt/trainbed/env/spark35",)),
        )
    },
    "determined": [
        "/opt/env/bin/python /opt/env/bin/torchrun --nnodes=2 -m training.launchers.determined --spec s",
        "/opt/env/bin/python -u -m training.launchers.determined --spec /srv/runs/spec.json",
        "python3 -m determined.launch.torch_distributed -- -m training.launchers.determined --spec s",
        "python3 -m torch.distributed.run --nnodes 2 --module determined.exec.pid_client s -- "
        "python3 -m determined.launch.wrap_rank RANK -- python3 -m training.launchers.determined --spec s",
    ],
}


def declared(stack: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "roles" / stack / "meta" / "stack.yml").read_text())
    return content


def ask(groups: list[str], *stacks: str, playbooks: Path = ROOT / "playbooks") -> list[dict[str, Any]]:
    variables = {"playbook_dir": str(playbooks), "group_names": groups}
    answer: list[dict[str, Any]] = plugin.LookupModule(loader=DataLoader()).run(list(stacks), variables)
    return answer


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of roles outside the checkout with one stack."""
    (tmp_path / "toy" / "tasks").mkdir(parents=True)
    (tmp_path / "toy" / "meta").mkdir()
    content = {"master": {"units": ["b*"]}, "workers": {"units": ["a*"], "processes": ["toy"]}}
    (tmp_path / "toy" / "meta" / "stack.yml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(plugin.C, "DEFAULT_ROLES_PATH", [str(ROOT / "roles"), str(tmp_path)])
    return tmp_path


def test_a_node_is_told_what_its_groups_may_hold(outside: Path) -> None:
    worker = {"stack": "toy", "stops": False, "units": ["a*"], "containers": [], "processes": ["toy"]}
    assert ask(["cluster", "workers"], "toy", "toy") == [worker]
    assert ask(["cluster", "master", "workers"], "toy") == [worker | {"units": ["a*", "b*"]}]
    (outside / "toy" / "tasks" / "stop.yml").touch()
    (outside / "toy" / "meta" / "stack.yml").unlink()
    assert ask(["workers"], "toy") == [worker | {"stops": True, "units": [], "processes": []}]


@pytest.mark.usefixtures("outside")
def test_a_stack_without_a_role_is_named() -> None:
    with pytest.raises(AnsibleLookupError, match=r"There is no role for the stack elsewhere in .*roles"):
        ask(["workers"], "elsewhere")


@pytest.mark.parametrize("stack", STACKS)
def test_units_that_a_stack_starts_are_among_those_that_it_declares(stack: str) -> None:
    role = declared(stack).get("runs_as", stack)
    text = re.sub(r"{{ \w+_stack }}", stack, (ROOT / "roles" / role / "tasks" / "run.yml").read_text())
    found = re.findall(r"unit: (\S+){{ run_suffix }}", text)
    units = {f"{unit}{suffix}.service" for unit in found for suffix in ("", "-1")}
    claimed = {
        other: {unit for unit in units if any(fnmatch(unit, each) for each in patterns(other))}
        for other in STACKS
    }
    assert units and claimed == {other: units if other == stack else set() for other in STACKS}


def patterns(stack: str) -> set[str]:
    content = declared(stack)
    return {unit for name in ("master", "workers") for unit in content.get(name, {}).get("units", [])}


@pytest.mark.parametrize("stack", STACKS)
def test_processes_of_a_run_are_claimed_by_their_own_stack_only(stack: str) -> None:
    # Determined's master ends its tasks; killed by another stack's cleaning up, they would end in error.
    claimed = {
        other: [
            line
            for line in COMMAND_LINES[stack]
            for each in declared(other)["workers"].get("processes", [])
            if re.search(each, line)
        ]
        for other in STACKS
    }
    assert claimed == {
        other: COMMAND_LINES[stack] if other == stack != "determined" else [] for other in STACKS
    }
