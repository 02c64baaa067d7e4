"""What a testbed of virtual machines consists of: what the role asks for, and what was made of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

from trainbed_machines.errors import MachinesError

Kind = Literal["kvm", "uml", "tcg"]
KINDS: tuple[Kind, ...] = ("kvm", "uml", "tcg")

#: Below the testbed's state.
REQUEST = "machines.json"
MADE_FOR = "made.json"  # the request that the machines were made for
PLAN = "plan.json"
PASSWORDS = "passwords.json"


@dataclasses.dataclass(frozen=True)
class Rough:
    """What a node has that a clean machine would not have, as real machines do."""

    cloud_init: bool = False  # with manage_etc_hosts, which writes /etc/hosts anew at each boot
    apt_lock_s: int = 0  # how long apt's lock is held after each boot
    sudo_password: bool = False
    ssh_port: int = 22
    jump: str | None = None  # the node through which alone it can be reached
    var_mb: int = 0  # size of a file system of its own for /var
    ufw: bool = False  # active, and only SSH may come in
    engine: Literal["daemon.json", "docker-ce"] | None = None  # somebody else's, already there
    clock_s: int = 0  # how far its clock is off when it boots for the first time


@dataclasses.dataclass(frozen=True)
class Request:
    """What the inventory asks for.

    Sizes are in MB, the link's rate is as tc writes it ("1gbit"; empty for no limit).
    """

    name: str
    prefix: str
    outside_prefix: str
    release: str
    login: str
    kind: Kind | Literal["auto"]
    cores: int
    memory_mb: int
    disk_mb: int
    var_mb: int
    link_rate: str
    rough: bool
    seed: int
    base_image: str  # a cloud image (qcow2 or raw) on this machine; empty: mmdebstrap
    addresses: dict[str, str]  # of each node, the master first
    masters: list[str]  # nodes that reach the outside
    directories: list[str]  # of this machine, which those see at the same paths


@dataclasses.dataclass(frozen=True)
class Plan:
    """A testbed that was made: what it runs on, and what is rough about each node."""

    kind: Kind
    seed: int
    base: str  # the base system's folder in the cache
    nodes: dict[str, Rough]


def read_request(state: Path) -> Request:
    """What the inventory asks for.

    Raises:
        MachinesError: the file is missing or damaged.
    """
    return Request(**_read(state / REQUEST))


def made_for(state: Path) -> Request:
    """What the inventory asked for when the machines were made; what it asks for now, before that.

    Raises:
        MachinesError: the file is missing or damaged.
    """
    return Request(**_read(state / MADE_FOR)) if (state / MADE_FOR).exists() else read_request(state)


def read_plan(state: Path) -> Plan | None:
    """The plan of a testbed that was made; None before that.

    Raises:
        MachinesError: the file is damaged.
    """
    if not (state / PLAN).exists():
        return None
    found = _read(state / PLAN)
    nodes = {name: Rough(**each) for name, each in found.pop("nodes").items()}
    return Plan(**found, nodes=nodes)


def write_plan(state: Path, plan: Plan, request: Request) -> None:
    """Keep the plan, and what it was made for."""
    write_whole(state / MADE_FOR, json.dumps(dataclasses.asdict(request), indent=1) + "\n")
    write_whole(state / PLAN, json.dumps(dataclasses.asdict(plan), indent=1) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file that only its owner may read, so that it is there whole or not at all."""
    draft = path.with_name(f".{path.name}")
    draft.touch(mode=0o600)
    draft.write_text(text, encoding="utf-8")
    draft.rename(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MachinesError(f"{path} is missing: run make testbed.") from error
    except json.JSONDecodeError as error:
        raise MachinesError(
            f"{path} is damaged ({error}): run make testbed-down, then make testbed."
        ) from error
    if not isinstance(found, dict):
        raise MachinesError(f"{path} is damaged: run make testbed-down, then make testbed.")
    return found
