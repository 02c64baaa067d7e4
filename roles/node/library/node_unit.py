#!/usr/bin/python
"""Ansible module: run a systemd unit with its files as they are now."""

from __future__ import annotations

import datetime
import os
import socket
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: node_unit
short_description: Run a systemd unit that has read its files as they are now
description:
  - Enables and starts the unit, restarts it if one of its files was written after it started, and waits
    until it listens.
  - Only the unit and its files decide on the restart. A handler, or the result of an earlier task, is lost
    if a play ends in between, and no later play would know that a restart is due.
options:
  name: {description: Name of the unit., type: str, required: true}
  files:
    description: Files that it reads when it starts. Missing ones are ignored.
    type: list
    elements: path
    default: []
  enabled:
    description: Whether it starts with the node; false for a unit that another one starts.
    type: bool
    default: true
  address: {description: Address that it listens on., type: str, default: 127.0.0.1}
  ports: {description: Ports that it listens on., type: list, elements: int, default: []}
  patience_s: {description: Seconds that it may take until it listens., type: int, default: 60}
"""

EXAMPLES = r"""
- name: Run the service
  node_unit:
    name: example.service
    files: [/etc/example/main.conf]
    ports: [8080]
"""

RETURN = r"""
done: {description: What was done to it., type: list, elements: str, returned: always}
"""

FIELDS = (
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "NeedDaemonReload",
    "ExecMainStartTimestamp",
    "ActiveEnterTimestamp",
)


def moment(text: str) -> float | None:
    """A time that systemd wrote with --timestamp=us+utc, in seconds since 1970; None if there is none."""
    try:
        found = datetime.datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S.%f UTC")
    except ValueError:
        return None
    return found.replace(tzinfo=datetime.timezone.utc).timestamp()  # noqa: UP017 - Python 3.10 nodes


def parse(shown: str) -> dict[str, str]:
    """Properties in the output of `systemctl show`, by name."""
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def newer(paths: list[str], started: float) -> list[str]:
    """The files that were written after this moment. Of a link, its own time counts, not its target's."""
    return [path for path in paths if os.path.lexists(path) and os.lstat(path).st_mtime > started]


def steps(state: dict[str, str], files: list[str], enabled: bool) -> list[str]:
    """Which of daemon-reload, enable, start and restart a unit in this state needs."""
    wanted = []
    reload = state["NeedDaemonReload"] == "yes" or state["LoadState"] == "not-found"
    if reload:
        wanted.append("daemon-reload")
    if enabled and state["UnitFileState"] in ("", "disabled"):
        wanted.append("enable")
    if state["ActiveState"] not in ("active", "reloading", "activating"):
        return [*wanted, "start"]
    # Only a service has a main process.
    started = moment(state.get("ExecMainStartTimestamp", "")) or moment(state["ActiveEnterTimestamp"])
    if reload or (started is not None and newer(files, started)):
        wanted.append("restart")
    return wanted


def silent(address: str, ports: list[int], until: float) -> list[int]:
    """The first port that nobody listens on by this moment; empty if there is none."""
    for port in ports:
        while True:
            try:
                socket.create_connection((address, port), timeout=2).close()
                break
            except OSError:
                if time.monotonic() > until:
                    return [port]
                time.sleep(0.2)
    return []


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "enabled": {"type": "bool", "default": True},
            "address": {"type": "str", "default": "127.0.0.1"},
            "ports": {"type": "list", "elements": "int", "default": []},
            "patience_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    asked: dict[str, Any] = module.params
    systemctl = module.get_bin_path("systemctl", required=True)
    _, shown, _ = module.run_command(
        [systemctl, "show", asked["name"], "--timestamp=us+utc", f"--property={','.join(FIELDS)}"],
        check_rc=True,
    )
    wanted = steps(parse(shown), asked["files"], asked["enabled"])
    if not module.check_mode:
        for step in wanted:
            module.run_command(
                [systemctl, step, *([] if step == "daemon-reload" else [asked["name"]])], check_rc=True
            )
        if silent(asked["address"], asked["ports"], time.monotonic() + asked["patience_s"]):
            module.fail_json(
                msg=f"{asked['name']} did not listen on {asked['address']}, port "
                f"{' and '.join(map(str, asked['ports']))}, within {asked['patience_s']} s: see journalctl "
                f"--unit {asked['name']} on {Path('/etc/hostname').read_text(encoding='utf-8').strip()}."
            )
    # Reloading unit files changes nothing by itself.
    changed = [step for step in wanted if step != "daemon-reload"]
    module.exit_json(changed=bool(changed), done=wanted)


if __name__ == "__main__":
    main()
