"""A stack that can't be used is left out with its reason; a required one ends the command at its start."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT, load
from tests.unit.roles.test_preflight import playbook

WHY = "Nobody is let in."


def described(folder: Path, required: list[str], optional: list[str]) -> tuple[int, str]:
    """What playbooks/prepare.yml says of the stacks of a cluster on which `two` turned out to be broken."""
    common = folder / "site" / "group_vars" / "all"
    common.mkdir(parents=True)
    (common / "00-common").symlink_to(ROOT / "inventory" / "common")
    groups: dict[str, Any] = {
        "cluster": {"children": {"master": {"hosts": {"m": {}}}, "workers": {"hosts": {"w": {}}}}}
    }
    (folder / "site" / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    noted = {"stacks": ["one", "two"], "left_out": {"three": "It is not here."}}
    (folder / "stacks.json").write_text(json.dumps(noted))
    variables: dict[str, Any] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "stacks": required,
        "stacks_optional": optional,
        "cluster_facts_stacks_note": str(folder / "stacks.json"),
    }
    (folder / "variables.json").write_text(json.dumps(variables))
    broken = {"ansible.builtin.set_fact": {"two_broken": WHY}}
    first = {"hosts": "master", "gather_facts": False, "tasks": [broken]}
    (check,) = [
        play
        for play in yaml.safe_load((ROOT / "playbooks/prepare.yml").read_text(encoding="utf-8"))
        if play["name"] == "Check which stacks can be used"
    ]
    facts = {"ansible.builtin.include_vars": str(ROOT / "roles/cluster_facts/vars/main.yml")}
    read = {
        "ansible.builtin.slurp": {"src": "{{ cluster_facts_stacks_note }}"},
        "register": "cluster_facts_stacks",
    }
    said = "{{ {'has': cluster_facts_all.stacks, 'lacks': cluster_facts_all.stacks_missing} | to_json }}"
    names = ("stacks", "stacks_missing")
    whole = yaml.safe_load((ROOT / "roles/cluster_facts/vars/main.yml").read_text(encoding="utf-8"))
    part = {"cluster_facts_all": {name: whole["cluster_facts_all"][name] for name in names}}
    say = {"ansible.builtin.debug": {"msg": said}, "vars": part}
    last = {"hosts": "master", "gather_facts": False, "tasks": [facts, read, say]}
    (folder / "play.yml").write_text(yaml.safe_dump([first, check, last]))
    done = playbook(
        str(folder / "play.yml"), "-e", f"@{folder}/variables.json", inventory=str(folder / "site")
    )
    return done.returncode, done.stdout


def test_an_optional_stack_is_left_out_with_its_reason(tmp_path: Path) -> None:
    code, said = described(tmp_path, ["one"], ["two", "three"])

    assert code == 0, said
    told = " ".join(said.split())
    assert f'{{"has": ["one"], "lacks": {{"three": "It is not here.", "two": "{WHY}"}}}}' in told


def test_a_required_stack_ends_it_before_anything_runs(tmp_path: Path) -> None:
    code, said = described(tmp_path, ["one", "two"], [])

    assert code != 0
    told = " ".join(said.split())
    assert f"The inventory requires the stack two, which can't be used, so nothing was started: {WHY}" in told
    assert '"lacks"' not in said


@pytest.mark.parametrize("broken", [{}, {"two": WHY}])
def test_runs_of_others_note_it(tmp_path: Path, broken: dict[str, str]) -> None:
    load("roles/runs/action_plugins/note_launch.py").note_broken(tmp_path, broken)

    files = list(tmp_path.iterdir())
    assert [json.loads(path.read_text()) for path in files] == ([broken] if broken else [])
