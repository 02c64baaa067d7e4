"""What stacks' roles declare that their runs may leave on nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader

from tests.unit.roles.loading import ROOT, load

plugin = load("roles/runs/lookup_plugins/stack_leftovers.py")
STACKS = sorted(path.parents[1].name for path in ROOT.glob("roles/*/tasks/run.yml"))


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
    text = (ROOT / "roles" / stack / "tasks" / "run.yml").read_text()
    units = {
        unit.removesuffix("{{ run_suffix }}") for unit in re.findall(r"unit: (\S+{{ run_suffix }})", text)
    }
    content = declared(stack)
    patterns = {unit for name in ("master", "workers") for unit in content[name].get("units", [])}
    assert units and all(any(unit.startswith(each.partition("*")[0]) for each in patterns) for unit in units)
