"""What a stack needs to be installed, counted from its role and from those that it calls or stands on."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from experiments.cluster.rendering import Unknown, load_yaml, render
from experiments.cluster.tasks import NODES, Reader, Task, role_variables

PLAYBOOK: Final = Path("playbooks") / "provision.yml"
CONFIGURATION: Final = "/etc/"
KINDS: Final = {
    "packages": {"apt", "package", "dnf", "pip", "deb822_repository", "apt_repository"},
    "files": {"copy", "template", "get_url", "lineinfile", "blockinfile", "unarchive", "assemble"},
    "directories": {"file"},
    "services": {"service", "systemd", "systemd_service"},
    "commands": {"command", "shell", "script", "raw"},
}
OTHER: Final = "other"
# They look, wait or say, and change nothing on a node.
LOOKING: Final = frozenset(
    {"stat", "slurp", "find", "uri", "wait_for", "wait_for_connection", "postgresql_ping", "setup", "getent"}
    | {"service_facts", "debug", "fail", "assert", "meta", "set_fact", "set_stats", "include_vars", "pause"}
)
ENABLED: Final = (True, "true", "yes")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeNeeds(_Part):
    """What is done to one node of a kind."""

    steps: dict[str, int]  # tasks that may change something, by kind
    packages: list[str]  # of the distribution, and those brought as files
    services: list[str]  # that start with the node
    configuration: list[str]  # files below /etc


class Port(_Part):
    """A port, and the variables that say so."""

    number: int
    variables: list[str]


class Needs(_Part):
    """What some roles need."""

    roles: list[str]
    nodes: dict[str, NodeNeeds]  # by kind of node
    ports: list[Port]
    not_followed: list[str]  # what reading could not follow, so that it is not counted

    def all_of(self, part: str) -> list[str]:
        """Packages, services or configuration of all kinds of nodes, each once."""
        return sorted({each for needs in self.nodes.values() for each in getattr(needs, part)})


class Installing(_Part):
    """What a stack needs: of its own role with those that it calls, and of those that it stands on."""

    own: Needs
    before: Needs


def installing(root: Path, stack: str, stands_on: Sequence[str], facts: Mapping[str, Any]) -> Installing:
    """What `stack` needs to be installed, by the roles of the checkout at `root`.

    Args:
        root: the checkout.
        stack: its role's name.
        stands_on: roles that must have been played before; on which nodes, playbooks/provision.yml says.
        facts: `ansible_facts` of the nodes.

    Raises:
        UserError: a role's file is damaged, or names another that is not there.
    """
    played = played_roles(root / PLAYBOOK)
    return Installing(
        own=needs(root / "roles", {stack: list(NODES)}, facts),
        before=needs(root / "roles", {role: played.get(role, []) for role in stands_on}, facts),
    )


def needs(roles: Path, where: Mapping[str, Sequence[str]], facts: Mapping[str, Any]) -> Needs:
    """What the roles of `where` need, each played on the kinds of nodes that are named."""
    nodes: dict[str, NodeNeeds] = {}
    called: list[str] = []
    whole: list[str] = []
    not_followed: list[str] = []
    for node in NODES:
        reader = Reader(roles, node, facts)
        tasks = [task for role, kinds in where.items() if node in kinds for task in reader.tasks_of(role)]
        nodes[node] = _of(tasks)
        called += reader.reading.roles
        whole += reader.reading.whole
        not_followed += reader.reading.not_followed
    return Needs(
        roles=list(dict.fromkeys(called)),
        nodes=nodes,
        ports=ports(roles, list(dict.fromkeys(whole))),
        not_followed=list(dict.fromkeys(not_followed)),
    )


def kind_of(task: Task) -> str | None:
    """What kind of step a task is; None where it changes nothing."""
    if task.module in LOOKING or task.content.get("changed_when") is False:
        return None
    return next((kind for kind, modules in KINDS.items() if task.module in modules), OTHER)


def _of(tasks: Sequence[Task]) -> NodeNeeds:
    steps = Counter(kind for task in tasks if (kind := kind_of(task)) is not None)
    return NodeNeeds(
        steps={kind: steps[kind] for kind in [*KINDS, OTHER] if steps[kind]},
        packages=sorted({name for task in tasks for name in _packages(task)}),
        services=sorted({name for task in tasks for name in _services(task)}),
        configuration=sorted({path for task in tasks for path in _configuration(task)}),
    )


def _packages(task: Task) -> list[str]:
    if task.module not in ("apt", "package", "dnf") or task.argument("state") == "absent":
        return []
    # A file's name begins with its package's.
    brought = [posixpath.basename(path).partition("_")[0] for path in task.values("deb")]
    return brought or task.values("name", "pkg")


def _services(task: Task) -> list[str]:
    enabled = task.module in KINDS["services"] and task.argument("enabled") in ENABLED
    return task.values("name") if enabled else []


def _configuration(task: Task) -> list[str]:
    if task.module not in KINDS["files"]:
        return []
    paths = [
        posixpath.join(path, posixpath.basename((task.values("src") or [""])[0]))
        if path.endswith("/")
        else path
        for path in task.values("dest", "path")
    ]
    return [path for path in paths if path.startswith(CONFIGURATION)]


def ports(roles: Path, names: Sequence[str]) -> list[Port]:
    """The ports that the variables of these roles name (`..._port`), in order."""
    found: dict[int, list[str]] = {}
    for role in names:
        variables = role_variables(roles / role)
        for name in variables:
            if not name.endswith("_port"):
                continue
            try:
                number = int(render(variables[name], variables))
            except (Unknown, ValueError, TypeError):
                continue  # another variable's, which only an inventory sets
            found.setdefault(number, []).append(name)
    return [Port(number=number, variables=found[number]) for number in sorted(found)]


def played_roles(playbook: Path) -> dict[str, list[str]]:
    """The roles that a playbook plays whole, and on which kinds of nodes."""
    found: dict[str, list[str]] = {}
    for play in load_yaml(playbook) or []:
        names = [each if isinstance(each, str) else each.get("role") for each in play.get("roles") or []]
        for name in names:
            kinds = found.setdefault(name, [])
            kinds += [node for node in NODES if node not in kinds and _plays_on(play["hosts"], node)]
    return found


def _plays_on(hosts: str, node: str) -> bool:
    """Whether a pattern of hosts names a kind of node: `cluster`, `workers:!master`."""
    parts = hosts.split(":")
    return f"!{node}" not in parts and bool({node, "cluster", "all"} & set(parts))


def facts_of(distribution: str) -> dict[str, str]:
    """What Ansible calls a distribution, by its full name: Debian GNU/Linux 12 (bookworm) is Debian, 12."""
    found = re.match(r"(\w+)\D*(\d+)", distribution)
    return {"distribution": found[1], "distribution_major_version": found[2]} if found else {}
