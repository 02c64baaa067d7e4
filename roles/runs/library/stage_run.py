#!/usr/bin/python3
"""Ansible module: create the directory of a run's attempt, with its specification."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.run_places import UnknownUser, as_user

DOCUMENTATION = r"""
---
module: stage_run
short_description: Create the directory of a run's attempt, with its specification
description:
  - Fails if the directory already exists. What an older attempt left there would be taken for this one's.
  - The user makes it, not root, because what is beside it belongs to the user, too.
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


#: Everyone may read what it makes, such as the engine, which is nobody on shared storage.
STAGE: Final = 'umask 022 && mkdir -p "$1" && mkdir "$2" "$2/logs" && cat > "$2/spec.json"'


def stage(run_dir: Path, user: str, specification: str) -> None:
    """Create the directories and write the specification, as the user.

    Raises:
        subprocess.CalledProcessError: something could not be written.
        UnknownUser: there is no such user.
    """
    subprocess.run(
        ["/bin/sh", "-c", STAGE, "sh", str(run_dir.parent), str(run_dir)],
        input=specification,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        **as_user(user),
    )


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
    if not module.check_mode:
        try:
            stage(run_dir, module.params["user"], module.params["specification"])
        except UnknownUser as error:
            module.fail_json(msg=str(error))
        except subprocess.CalledProcessError as error:
            module.fail_json(msg=f"{run_dir} can't be made: {error.stderr.strip()}")
    module.exit_json(changed=True, code_there=Path(module.params["code"]).exists())


if __name__ == "__main__":
    main()
