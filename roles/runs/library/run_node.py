#!/usr/bin/python3
"""Ansible module: end leftovers of runs on this node, and report what runs must know about it."""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: run_node
short_description: End leftovers of runs on this node, and report what runs must know about it
description:
  - Lifts a run's limit of the node's processor time; ends units, then containers, then processes.
  - If there are none, it does nothing.
  - Processes mostly end with what started them; those that do not do so in time are killed.
options:
  end: {description: Whether to end anything., type: bool, default: true}
  units:
    description: "Patterns of units to stop and reset, such as C(trainbed-run-x*.service)."
    type: list
    elements: str
    default: []
  containers: {description: Labels of containers to remove., type: list, elements: str, default: []}
  processes:
    description: Regular expressions for the command lines of processes.
    type: list
    elements: str
    default: []
  user: {description: The user whose processes are ended; nobody else's., type: str, required: true}
  patience_s: {description: Seconds that processes have to end by themselves., type: float, default: 20}
  timers_command:
    description: "Command that pauses the distribution's timers, if it is there; empty to leave them alone."
    type: str
    default: ""
  image_note: {description: File that names this node's image., type: path, required: true}
  stacks_note:
    description: File on the master that lists the cluster's stacks.
    type: path
    required: true
author: trainbed
"""

EXAMPLES = r"""
- name: End leftovers
  run_node:
    units: [trainbed-run-toy*.service]
    processes: ["toy --rank"]
    user: trainbed
    image_note: /etc/trainbed/image
    stacks_note: /etc/trainbed/stacks.json
"""

RETURN = r"""
ended: {description: What was ended., type: list, returned: always}
cores: {description: How many cores a process may use here., type: int, returned: always}
image: {description: "The node's image; empty for none.", type: str, returned: always}
stacks:
  description: "The cluster's stacks, as noted on the master; empty on other nodes."
  type: list
  returned: always
python: {description: "Version of the node's own Python, such as 3.11.", type: str, returned: always}
"""

POLL_S: Final = 0.2
KILLED_WITHIN_S: Final = 10.0
# The slice of units and containers; a run with a slow worker limits it (tasks/limit.yml).
LIMITED: Final = "system.slice"
LIMIT: Final = Path(f"/run/systemd/system.control/{LIMITED}.d/50-CPUQuota.conf")
# What systemctl and docker say of a unit or container that somebody else has removed meanwhile.
GONE: Final = re.compile(r"not loaded|No such container|removal of container \w+ is already in progress")


class StopError(Exception):
    """Something could not be ended; the text is a sentence that names it."""


def call(*command: str) -> str:
    """Output of a command, which may find that what it ends is gone.

    Raises:
        StopError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    errors = done.stderr.strip().splitlines()
    if done.returncode != 0 and not (errors and all(GONE.search(error) for error in errors)):
        raise StopError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def units_there(patterns: list[str]) -> list[str]:
    """Units that match, including failed ones."""
    if not patterns:
        return []
    # As JSON: the description of a transient unit is its command, which may have several lines.
    listed = json.loads(call("systemctl", "list-units", "--all", "--output=json", *patterns))
    return [unit["unit"] for unit in listed]


def containers_there(labels: list[str]) -> list[str]:
    """Ids of containers with one of the labels, including exited ones."""
    if not labels or shutil.which("docker") is None:
        return []
    listed = [call("docker", "ps", "--all", "--quiet", "--filter", f"label={label}") for label in labels]
    return sorted({number for each in listed for number in each.split()})


def processes_there(patterns: list[str], user: str) -> dict[int, str]:
    """Command lines of the user's processes that match, by process id."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:  # a node that was not set up
        return {}
    if not patterns:
        return {}
    wanted, found = re.compile("|".join(patterns)), {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid != uid:
                continue
            line = path.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended meanwhile
            continue
        if wanted.search(line):
            found[int(path.name)] = line
    return found


def end_units(patterns: list[str]) -> list[str]:
    """Stop the units and reset those that failed; returns their names."""
    units = units_there(patterns)
    if units:
        call("systemctl", "stop", *units)
        failed = [unit for unit in units_there(patterns) if unit in units]
        if failed:
            call("systemctl", "reset-failed", *failed)
    return units


def end_containers(labels: list[str]) -> list[str]:
    """Remove the containers; returns their ids."""
    containers = containers_there(labels)
    if containers:
        call("docker", "rm", "--force", *containers)
    return containers


def end_processes(patterns: list[str], user: str, patience_s: float) -> list[str]:
    """Wait until no process is left, and kill those that don't end in time; returns what was killed.

    Raises:
        StopError: one can't be ended.
    """
    since, killed = time.monotonic(), dict[int, str]()
    while left := processes_there(patterns, user):
        waited = time.monotonic() - since
        if waited > patience_s + KILLED_WITHIN_S:
            raise StopError(f"Process {min(left)} can't be ended: {left[min(left)][:200]}")
        if waited > patience_s:
            killed |= left
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:  # it has ended meanwhile
                    continue
        time.sleep(POLL_S)
    return [f"process {pid}: {line[:200]}" for pid, line in killed.items()]


def anything_there(asked: dict[str, Any]) -> list[str]:
    """What would be ended."""
    processes = processes_there(asked["processes"], asked["user"])
    there = [*units_there(asked["units"]), *containers_there(asked["containers"])]
    there += [f"CPUQuota of {LIMITED}"] if is_limited() else []
    return there + [f"process {pid}: {line[:200]}" for pid, line in processes.items()]


def end(asked: dict[str, Any]) -> list[str]:
    """End everything; returns what was ended."""
    # First, because what is slow ends slowly.
    ended = lift_limit() + end_units(asked["units"]) + end_containers(asked["containers"])
    return ended + end_processes(asked["processes"], asked["user"], asked["patience_s"])


def is_limited() -> bool:
    """Whether a run's limit of the node's processor time is still there; lifted, it leaves an empty value."""
    return bool(re.search(r"^CPUQuota=\S", noted(LIMIT), re.MULTILINE))


def lift_limit() -> list[str]:
    """Lift the limit; returns what was lifted."""
    if not is_limited():
        return []
    call("systemctl", "set-property", "--runtime", LIMITED, "CPUQuota=")
    return [f"CPUQuota of {LIMITED}"]


def noted(path: Path) -> str:
    """Content of a note; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def main() -> None:
    """Entry point of the module."""
    strings: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "end": {"type": "bool", "default": True},
            "units": strings,
            "containers": strings,
            "processes": strings,
            "user": {"type": "str", "required": True},
            "patience_s": {"type": "float", "default": 20.0},
            "timers_command": {"type": "str", "default": ""},
            "image_note": {"type": "path", "required": True},
            "stacks_note": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    asked, ended = module.params, []
    try:
        if asked["end"]:
            ended = anything_there(asked) if module.check_mode else end(asked)
        if asked["timers_command"] and Path(asked["timers_command"]).exists() and not module.check_mode:
            call(asked["timers_command"], "pause")
    except (StopError, OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(ended),
        ended=ended,
        cores=len(os.sched_getaffinity(0)),
        image=noted(Path(asked["image_note"])),
        stacks=json.loads(noted(Path(asked["stacks_note"])) or '{"stacks": []}')["stacks"],
        python=".".join(platform.python_version_tuple()[:2]),
    )


if __name__ == "__main__":
    main()
