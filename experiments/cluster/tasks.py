"""The tasks that a role runs on one kind of node, found by reading its files, and those of roles it calls.

What Ansible would do is not run, only read: a task counts unless its condition certainly does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from experiments.cluster.rendering import Unknown, holds, load_yaml, render, text
from experiments.util.errors import UserError

NODES: Final = ("master", "workers")  # kinds of nodes: the groups of every inventory
PARTS: Final = ("block", "rescue", "always")
FILES: Final = ("include_tasks", "import_tasks")
MAIN: Final = "main.yml"
ROLES: Final = ("include_role", "import_role")


@dataclass(frozen=True)
class Task:
    """One task, with the variables that it sees."""

    role: str
    module: str  # without its collection: `apt`, `postgresql_db`
    arguments: Any  # of the module, as they are written
    content: dict[str, Any]  # all of the task
    variables: dict[str, Any]

    def items(self) -> Iterator[dict[str, Any]]:
        """The variables of each of its turns: one without a loop, one for a loop that only a node knows."""
        loop = self.content.get("loop")
        try:
            found = render(loop, self.variables)
        except Unknown:
            found = None
        if not isinstance(found, list):
            yield self.variables
            return
        name = self.content.get("loop_control", {}).get("loop_var", "item")
        for item in found:
            yield self.variables | {name: item}

    def values(self, *names: str) -> list[str]:
        """The argument of the first of these names that there is, turn by turn; lists are laid out flat."""
        arguments = self.arguments if isinstance(self.arguments, dict) else {}
        name = next((name for name in names if name in arguments), None)
        return (
            [] if name is None else [each for turn in self.items() for each in _flat(arguments[name], turn)]
        )

    def argument(self, name: str) -> Any:
        """One argument, as far as it is known; None where it is not given."""
        given = self.arguments.get(name) if isinstance(self.arguments, dict) else None
        try:
            return render(given, self.variables)
        except Unknown:
            return given


@dataclass
class Reading:
    """What was read besides the tasks."""

    roles: list[str] = field(default_factory=list)  # in the order of their calls
    whole: list[str] = field(default_factory=list)  # those of them that were entered by main.yml
    not_followed: list[str] = field(default_factory=list)  # files whose names only a node knows


@dataclass(frozen=True)
class _Place:
    role: str
    variables: dict[str, Any]


class Reader:
    """Reads the roles of a checkout as a node of one kind sees them."""

    def __init__(self, roles: Path, node: str, facts: Mapping[str, Any]) -> None:
        """Read `roles` (a folder) as a node of the group `node` with these `ansible_facts`."""
        self._roles = roles
        self._known = {
            "inventory_hostname": node,
            "groups": {"all": list(NODES), "cluster": list(NODES), **{name: [name] for name in NODES}},
            "ansible_facts": dict(facts),
        }
        self.reading = Reading()

    def tasks_of(self, role: str, entry: str = MAIN) -> Iterator[Task]:
        """The tasks that `role` would run, with those of the roles that it calls.

        Raises:
            UserError: a file of it is missing or damaged, or roles call one another in a circle.
        """
        yield from self._role(role, entry, {}, ())

    def _role(
        self, role: str, entry: str, given: Mapping[str, Any], callers: tuple[str, ...]
    ) -> Iterator[Task]:
        if f"{role}/{entry}" in callers:
            raise UserError(
                f"Roles call one another in a circle: {' > '.join([*callers, f'{role}/{entry}'])}."
            )
        if role not in self.reading.roles:
            self.reading.roles.append(role)
        if entry == MAIN and role not in self.reading.whole:
            self.reading.whole.append(role)
        path = (*callers, f"{role}/{entry}")
        for dependency in (load_yaml(self._roles / role / "meta" / "main.yml") or {}).get("dependencies", []):
            name = (
                dependency if isinstance(dependency, str) else dependency.get("role", dependency.get("name"))
            )
            yield from self._role(name, MAIN, {}, path)
        place = _Place(role, {**role_variables(self._roles / role), **self._known, **given})
        yield from self._file(place, entry, path)

    def _file(self, place: _Place, name: str, callers: tuple[str, ...]) -> Iterator[Task]:
        path = self._roles / place.role / "tasks" / name
        content = load_yaml(path)
        if not isinstance(content, list):
            raise UserError(
                f"{path} is missing or holds no list of tasks, and it is named as if it were there."
            )
        yield from self._list(place, content, callers)

    def _list(self, place: _Place, content: list[dict[str, Any]], callers: tuple[str, ...]) -> Iterator[Task]:
        for each in content:
            inner = replace(place, variables=place.variables | (each.get("vars") or {}))
            if not holds(each.get("when", True), inner.variables):
                continue
            for part in PARTS:
                yield from self._list(inner, each.get(part) or [], callers)
            if "block" not in each:
                yield from self._task(inner, each, callers)

    def _task(self, place: _Place, content: dict[str, Any], callers: tuple[str, ...]) -> Iterator[Task]:
        task = task_of(place.role, content, place.variables)
        if task.module not in FILES + ROLES:
            yield task
            return
        if task.module in FILES:
            given = task.arguments if isinstance(task.arguments, str) else task.arguments.get("file")
        else:
            given = task.arguments["name"]
        for variables in task.items():
            name = text(given, variables)
            if "<" in name:
                self.reading.not_followed.append(f"{task.module} {name} in roles/{place.role}")
            elif task.module in FILES:
                yield from self._file(replace(place, variables=variables), name, callers)
            else:
                entry = text(task.arguments.get("tasks_from", MAIN), variables)
                own = content.get("vars") or {}
                yield from self._role(name, entry, own, callers)


def task_of(role: str, content: dict[str, Any], variables: dict[str, Any]) -> Task:
    """The task that stands in a file as `content`: its module is the key that has a dot in it.

    Raises:
        UserError: it names no module by its full name.
    """
    module = next((key for key in content if "." in key), None)
    if module is None:
        raise UserError(
            f"A task of roles/{role} names no module by its full name, such as ansible.builtin.copy: "
            f"{content.get('name', content)}."
        )
    return Task(role, module.rpartition(".")[2], content[module], content, variables)


def role_variables(role: Path) -> dict[str, Any]:
    """What a role sets by itself: its defaults and its variables."""
    return {
        **(load_yaml(role / "defaults" / "main.yml") or {}),
        **(load_yaml(role / "vars" / "main.yml") or {}),
    }


def _flat(value: Any, variables: Mapping[str, Any]) -> list[str]:
    try:
        found = render(value, variables)
    except Unknown:
        found = None
    if isinstance(found, list):
        return [str(each) for each in found]
    if isinstance(value, list):
        return [text(each, variables) for each in value]
    return [text(value, variables)]
