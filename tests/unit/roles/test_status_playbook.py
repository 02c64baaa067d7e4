"""`make status` asks real nodes: this machine for one, and two that are down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from experiments.cluster.status import parse
from tests.unit.roles.loading import ROOT


def test_nodes_that_are_down_are_named_with_the_reason_and_the_others_answer(tmp_path: Path) -> None:
    # No sudo here: this machine's own user is enough to read.
    here = {"ansible_connection": "local", "ansible_become": False, "ansible_host": "127.0.0.1"}
    closed = {"ansible_host": "127.0.0.1", "ansible_port": 9}
    groups = {
        "master": {"hosts": {"master": here}},
        "workers": {"hosts": {"closed": closed, "odd": {**here, "ansible_python_interpreter": "/nowhere"}}},
    }
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": {"cluster": {"children": groups}}}}))
    found = tmp_path / "status.json"

    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "playbooks/status.yml", "-e", json.dumps({"status_dest": str(found)})],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_INVENTORY": str(inventory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.exists(), done.stdout + done.stderr
    status = parse(found.read_bytes())
    assert status.inventory == "hosts.yml" and status.addresses["closed"] == "127.0.0.1"
    master = status.master
    assert master is not None and master.described is not None and master.described.cores >= 1
    assert master.disks and status.nodes["master"].trouble is None
    assert master.gpus is not None and master.asked <= master.time <= status.answered
    assert status.nodes["closed"].state is None
    assert "Connection refused" in str(status.nodes["closed"].trouble)
    assert status.nodes["odd"].state is None and "/nowhere" in str(status.nodes["odd"].trouble)
