#!/usr/bin/python3
"""Ansible module: create the directory of a run's attempt, with its specification."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: stage_run
short_description: Create the directory of a run's attempt, with its specification
description:
  - Fails if the directory already exists. What an older attempt left there would be taken for this one's.
options:
  run_dir: {description: Directory of the attempt., type: path, required: true}
  user: {description: User that training runs as and that owns the directories., type: str, required: true}
  specification: {description: Content of C(spec.json)., type: str, required: true}
  code: {description: Directory for the training code., type: path, required: true}
author: trainbed
"""

EXAMPLES = r"""
- name: Stage a run
  stage_run:
    run_dir: /srv/trainbed/shared/runs/some-run/01
    user: trainbed
    specification: "{{ run_spec | to_nice_json }}"
    code: /srv/trainbed/shared/code/123
"""

RETURN = r"""
code_there: {description: Whether the training code is there already., type: bool, returned: always}
"""


def own_directory(path: Path, user: str) -> None:
    """Create a directory that the user owns."""
    path.mkdir(parents=True, exist_ok=True)
    shutil.chown(path, user, user)
    path.chmod(0o755)


def stage(run_dir: Path, user: str, specification: str) -> None:
    """Create the directories and write the specification."""
    for path in (run_dir.parent, run_dir, run_dir / "logs"):
        own_directory(path, user)
    spec = run_dir / "spec.json"
    spec.write_text(specification, encoding="utf-8")
    spec.chmod(0o644)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "run_dir": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "specification": {"type": "str", "required": True},
            "code": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    run_dir = Path(module.params["run_dir"])
    if run_dir.exists():
        module.fail_json(
            msg=f"{run_dir} already exists: an attempt with this number was made before, and its folder was "
            "removed from the results or is in a copy of them. Nothing was started; the same command makes "
            "the run as the next attempt."
        )
    os.umask(0o022)
    if not module.check_mode:
        stage(run_dir, module.params["user"], module.params["specification"])
    module.exit_json(changed=True, code_there=Path(module.params["code"]).exists())


if __name__ == "__main__":
    main()
