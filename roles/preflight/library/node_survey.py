#!/usr/bin/python
"""Ansible module: what else must be known of a node before anything is changed."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: node_survey
short_description: Read a node's file systems, listeners, users, clock and apt's proxy
description:
  - Changes nothing. How much paths hold already is read only where their file system has too little room.
options:
  room:
    description: Room in MB that will be needed below each path; the paths need not exist.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Directory., type: path, required: true}
      mb: {description: Room below it., type: int, required: true}
  marks: {description: Files to look for., type: list, elements: path, default: []}
  spare_mb: {description: Room that must be left on each file system., type: int, default: 0}
  user: {description: User to look for., type: str, required: true}
  uid: {description: Number that it is to have; its group's too., type: int, required: true}
"""

EXAMPLES = r"""
- name: Survey the node
  node_survey:
    room: [{path: /opt/example, mb: 100}]
    user: example
    uid: 6100
"""

RETURN = r"""
systems:
  description: File systems of the paths, each with its mount point, free_mb and the paths on it.
  type: list
  elements: dict
  returned: always
sizes: {description: "What paths hold already, in MB, where room is short.", type: dict, returned: always}
there: {description: Those of the marks that exist., type: list, elements: str, returned: always}
listeners:
  description: TCP listeners, each with port, address, program, pid and unit.
  type: list
  elements: dict
  returned: always
uid_of: {description: "Who has the uid, and uid of the user; null for nobody.", type: dict, returned: always}
gid_of: {description: "The same for groups.", type: dict, returned: always}
time: {description: Seconds since 1970 by the node's clock., type: float, returned: always}
engine:
  description: Docker's configuration, as far as it matters here, or what is wrong with its file.
  type: dict
  returned: always
moved: {description: Where the engine keeps what is usually elsewhere., type: dict, returned: always}
apt_proxy: {description: "apt's proxy for HTTP; empty for none.", type: str, returned: always}
"""

DAEMON = Path("/etc/docker/daemon.json")
ENGINE_ROOT = "/var/lib/docker"
UNIT = re.compile(r"/([^/\n]+)\.service(?:/|$)", re.MULTILINE)
USERS = re.compile(r'"(?P<program>[^"]+)",pid=(?P<pid>\d+)')


def existing(path: str) -> Path:
    """The path itself, or the nearest directory above it that exists."""
    found = Path(path)
    while not found.exists():
        found = found.parent
    return found


def mount_point(path: Path) -> str:
    """Where the file system of an existing path is mounted."""
    path = path.resolve()
    while not path.is_mount() and path != path.parent:
        path = path.parent
    return str(path)


def engine(file: Path) -> dict[str, Any]:
    """What a configuration of the Docker engine says that matters to us, and what is wrong with the file."""
    try:
        found = json.loads(file.read_text(encoding="utf-8") or "{}")
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        return {"trouble": str(error)}
    if not isinstance(found, dict):
        return {"trouble": "it is not an object"}
    # The rest may hold credentials.
    return {key: str(found[key]) for key in ("log-driver", "userns-remap", "data-root") if found.get(key)}


def systems(paths: list[str], moved: dict[str, str]) -> list[dict[str, Any]]:
    """The file systems of these paths, or of where they have moved to, with their free space."""
    found: dict[int, dict[str, Any]] = {}
    for path in paths:
        there = existing(moved.get(path, path))
        device = there.stat().st_dev
        if device not in found:
            room = os.statvfs(there)
            found[device] = {
                "mount": mount_point(there),
                "free_mb": room.f_bavail * room.f_frsize >> 20,
                "paths": [],
            }
        found[device]["paths"].append(path)
    return list(found.values())


def unit_of(pid: int) -> str:
    """The systemd service of a process, without `.service`; empty if there is none."""
    try:
        units = UNIT.findall(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"))
    except OSError:  # it has just ended
        return ""
    return units[-1] if units else ""


def listeners(listing: str) -> list[dict[str, Any]]:
    """TCP listeners in the output of `ss -H -l -t -n -p`."""
    found = []
    for line in listing.splitlines():
        fields = line.split()
        address, _, port = fields[3].rpartition(":")
        user = USERS.search(line)
        found.append(
            {
                "port": int(port),
                "address": address.strip("[]").partition("%")[0],
                "program": user["program"] if user else "",
                "pid": int(user["pid"]) if user else 0,
                "unit": unit_of(int(user["pid"])) if user else "",
            }
        )
    return found


def named(uid: int) -> str | None:
    """The user with this uid."""
    return next((entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == uid), None)


def group_named(gid: int) -> str | None:
    """The group with this gid."""
    return next((entry.gr_name for entry in grp.getgrall() if entry.gr_gid == gid), None)


def short(system: dict[str, Any], room: list[dict[str, Any]], spare: int) -> bool:
    """Whether a file system has less room than its paths need."""
    wanted = sum(each["mb"] for each in room if each["path"] in system["paths"])
    return bool(system["free_mb"] < wanted + spare)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "room": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "mb": {"type": "int", "required": True},
                },
            },
            "marks": {"type": "list", "elements": "path", "default": []},
            "spare_mb": {"type": "int", "default": 0},
            "user": {"type": "str", "required": True},
            "uid": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    asked: dict[str, Any] = module.params
    paths = sorted({each["path"] for each in asked["room"]})
    settings = engine(DAEMON)
    moved = {ENGINE_ROOT: settings["data-root"]} if settings.get("data-root") else {}
    mounted = systems(paths, moved)
    sizes = {}
    for system in mounted:
        if short(system, asked["room"], asked["spare_mb"]):
            for path in [path for path in system["paths"] if Path(moved.get(path, path)).exists()]:
                _, said, _ = module.run_command(
                    ["du", "--summarize", "--one-file-system", "--block-size=1M", moved.get(path, path)]
                )
                # Files that vanish while it counts make it fail, and its sum is still right enough.
                sizes[path] = int((said.split() or ["0"])[0])
    ss = module.get_bin_path("ss", required=True)
    _, listing, _ = module.run_command([ss, "-H", "-l", "-t", "-n", "-p"], check_rc=True)
    apt = module.get_bin_path("apt-config")
    proxy = module.run_command([apt, "shell", "proxy", "Acquire::http::Proxy"])[1] if apt else ""
    user, uid = asked["user"], asked["uid"]
    module.exit_json(
        changed=False,
        systems=mounted,
        sizes=sizes,
        there=[mark for mark in asked["marks"] if Path(mark).exists()],
        listeners=listeners(listing),
        uid_of={
            "holder": named(uid),
            "own": next((e.pw_uid for e in pwd.getpwall() if e.pw_name == user), None),
        },
        gid_of={
            "holder": group_named(uid),
            "own": next((e.gr_gid for e in grp.getgrall() if e.gr_name == user), None),
        },
        time=time.time(),
        engine=settings,
        moved=moved,
        apt_proxy=proxy.strip().removeprefix("proxy=").strip("'\"") if proxy else "",
    )


if __name__ == "__main__":
    main()
