"""playbooks/run_matrix.yml passes its inventory on to the command behind it, wherever the repository is."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from tests.unit.roles.loading import ROOT, load

as_variable = load("playbooks/action_plugins/experiments.py").as_variable


def test_inventories_of_the_repository_are_named_from_there() -> None:
    # Relative, because Ansible would split the variable at a comma in the repository's path.
    assert as_variable([str(ROOT / "inventory/testbed"), "one,two,"]) == "inventory/testbed,one,two,"
    assert as_variable([]) == ""


def test_a_comma_elsewhere_is_refused(tmp_path: Path) -> None:
    lab = tmp_path / "a, b"
    lab.mkdir()
    assert as_variable([str(tmp_path)]) == str(tmp_path)
    with pytest.raises(AnsibleActionFail, match="has a comma in its path"):
        as_variable([str(lab)])
