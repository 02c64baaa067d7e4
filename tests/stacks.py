"""What the roles of stacks declare that they put on nodes (`meta/stack.yml`), for the tests that prove it."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

ROOT = Path(__file__).resolve().parents[1]


class Port(BaseModel):
    """A TCP port: the variable that may move it, and where it is else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: str
    default: int
    #: Variables that mean another default where they are true.
    moved_by: dict[str, int] = {}
    #: On the loopback address instead of the cluster's.
    local: bool = False


class OnNode(BaseModel):
    """What a stack puts on each node of a group, and what its runs may leave there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: By name; where distributions differ, for each of them ("Debian-12").
    packages: list[str] | dict[str, list[str]] = []
    services: list[str] = []
    files: list[str] = []
    ports: list[Port] = []
    units: list[str] = []
    containers: list[str] = []
    processes: list[str] = []


class Declared(BaseModel):
    """What a stack puts on nodes, by group."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Roles whose task files its own call.
    calls: list[str] = []
    master: OnNode = OnNode()
    workers: OnNode = OnNode()


@functools.cache
def declared() -> dict[str, Declared]:
    """What every stack declares whose role is here or where ANSIBLE_ROLES_PATH says, installed or not."""
    elsewhere = filter(None, os.environ.get("ANSIBLE_ROLES_PATH", "").split(":"))
    found = {
        path.parts[-3]: path
        for folder in (ROOT / "roles", *map(Path, elsewhere))
        for path in sorted(folder.glob("*/meta/stack.yml"))
    }
    return {
        stack: Declared.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        for stack, path in found.items()
    }


def port_variables() -> list[str]:
    """Variables that may move a stack's ports."""
    groups = [group for stack in declared().values() for group in (stack.master, stack.workers)]
    return sorted({name for group in groups for port in group.ports for name in (port.port, *port.moved_by)})
