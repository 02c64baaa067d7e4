#!/usr/bin/python
"""Ansible module: stop and disable services that a node should no longer run."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: node_retire
short_description: Stop and disable those of these units that the node has
options:
  units:
    description: Names of units; a name without a suffix is a service's.
    type: list
    elements: str
    required: true
  machine_id:
    description: Of the node; another machine at its address is left alone. Empty for whichever it is.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Stop what is no longer wanted
  node_retire:
    units: [example, example-dump.timer]
"""

RETURN = r"""
done:
  description: Units that ran or would have started with the node.
  type: list
  elements: str
  returned: success
"""

#: Facts take the first that is there; on copies of one machine they may differ.
MACHINE_IDS = (Path("/var/lib/dbus/machine-id"), Path("/etc/machine-id"))
FIELDS = ("LoadState", "ActiveState", "UnitFileState")


def due(shown: str) -> bool:
    """Whether a unit, by what `systemctl show` prints of it, runs or will start by itself."""
    state = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if state["LoadState"] == "not-found":
        return False
    # `activating` is also what a service is between two attempts to start it.
    return state["ActiveState"] not in ("inactive", "failed") or state["UnitFileState"] == "enabled"


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "units": {"type": "list", "elements": "str", "required": True},
            "machine_id": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = module.params["machine_id"]
    found = [path.read_text(encoding="utf-8").strip() for path in MACHINE_IDS if path.exists()]
    if wanted not in ("", *found):
        module.fail_json(msg="another machine has its address now")
    systemctl = module.get_bin_path("systemctl", required=True)
    done = []
    for unit in module.params["units"]:
        _, shown, _ = module.run_command(
            [systemctl, "show", unit, f"--property={','.join(FIELDS)}"], check_rc=True
        )
        if due(shown):
            done.append(unit)
            if not module.check_mode:
                module.run_command([systemctl, "disable", "--now", unit], check_rc=True)
                # A service that ends with an error when it is stopped would leave the node degraded.
                module.run_command([systemctl, "reset-failed", unit])
    module.exit_json(changed=bool(done), done=done)


if __name__ == "__main__":
    main()
