"""What the stacks' roles declare to put on nodes (`meta/stack.yml`), for the tests that prove it."""

from __future__ import annotations

import functools

from experiments.cluster.declarations import FILE, Declaration, read_declaration
from experiments.cluster.stack_folders import stack_folders
from experiments.util.paths import REPOSITORY as ROOT

__all__ = ["ROOT", "declared", "port_variables"]


@functools.cache
def declared() -> dict[str, Declaration]:
    """The declaration of every stack here or in the folder of outside stacks, installed or not."""
    roles = {
        path.parents[1].name: path.parents[1]
        for folder in reversed(stack_folders())
        for path in sorted((folder / "roles").glob(f"*/{FILE}"))
    }
    return {stack: found for stack, role in sorted(roles.items()) if (found := read_declaration(role))}


def port_variables() -> list[str]:
    """Variables that may move a stack's ports."""
    ports = [port for stack in declared().values() for group in stack.groups.values() for port in group.ports]
    return sorted({port.port for port in ports} | {moving for port in ports for moving in port.moved_by})
