"""Callback plugin: records what provisioning did, role by role, beside the results of experiments."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__ as ansible_version

DOCUMENTATION = """
name: provisioning_record
type: aggregate
short_description: Writes what playbooks/provision.yml did to results/provisioning/
description:
  - Counts by role and host the seconds, the tasks that ran, and those that changed something or failed.
  - Shows the seconds by role if nothing failed.
  - Records only playbooks/provision.yml, not in check mode, and only if it has reported what it sets up.
requirements:
  - enabled in ansible.cfg
"""

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = ROOT / "playbooks" / "provision.yml"
RECORDS = ROOT / "results" / "provisioning"
#: Keys that the playbook fills with set_stats: what is set up, and later the environment that was installed.
TOLD, ENVIRONMENT = "provisioning_told", "provisioning_environment"
#: Options that leave out a part of the playbook, with the values that leave out nothing.
PARTIAL = {"tags": ["all"], "skip_tags": [], "subset": None, "start_at_task": None}

CALLS = ("include_role", "include_tasks")


@dataclass
class Done:
    """What one role did, in all calls through the same chain of roles."""

    seconds: float = 0.0
    tasks: int = 0
    changed: Counter[str] = field(default_factory=Counter)
    failed: set[str] = field(default_factory=set)
    tasks_by_host: Counter[str] = field(default_factory=Counter)
    seconds_by_host: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass
class Running:
    """The task that runs: its role's figures, when it began (on each host), and whether a host has run it."""

    done: Done
    since: float
    since_by_host: dict[str, float] = field(default_factory=dict)
    counted: bool = False


def role_path(task: Any) -> tuple[str, ...]:
    """The roles that a task belongs to, outermost first; empty for a play's own task."""
    names, role = [], getattr(task, "_role", None)
    while role is not None:
        names.append(role.get_name())
        parents = getattr(role, "_parents", None) or [None]
        role = parents[0]
    return tuple(reversed(names))


class CallbackModule(CallbackBase):  # type: ignore[misc] # Ansible has no types
    """Collects what happens and writes the record at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "provisioning_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._started: datetime | None = None  # None: this playbook is not recorded
        self._roles: dict[tuple[str, ...], Done] = {}
        self._running: Running | None = None

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Record only this playbook, and not in check mode."""
        if Path(playbook._file_name).resolve() == PLAYBOOK and not context.CLIARGS.get("check"):
            self._started = datetime.now(UTC)

    def v2_playbook_on_play_start(self, play: Any) -> None:  # noqa: ARG002
        """The time until the first task belongs to no role."""
        self._end_task()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        """Time counts for this task from here on."""
        self._end_task()
        path = role_path(task)
        if self._started is not None and path:
            self._running = Running(self._roles.setdefault(path, Done()), time.monotonic())

    def v2_playbook_on_cleanup_task_start(self, task: Any) -> None:
        """As of a task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """As of a task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_start(self, host: Any, _task: Any) -> None:
        """A host begins the task."""
        if self._running is not None:
            self._running.since_by_host[host.get_name()] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        """A host has done the task."""
        if result.task.action.rpartition(".")[2] in CALLS:
            return  # no work of its own: what it calls is counted
        done = self._count(result)
        if done is not None and result.is_changed():
            done.changed[result.host.get_name()] += 1

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A host has failed at the task."""
        done = self._count(result)
        if done is not None and not ignore_errors:
            done.failed.add(result.host.get_name())

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A host was lost."""
        self.v2_runner_on_failed(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Write the record, unless nothing was begun."""
        self._end_task()
        told = stats.custom.get("_run", {})
        if self._started is None or TOLD not in told:
            return
        content = {
            "schema_version": 2,
            **told[TOLD],
            "environment_digest": told.get(ENVIRONMENT) or None,
            "started": self._started.isoformat(timespec="milliseconds"),
            "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "status": "failed" if stats.failures or stats.dark else "ok",
            "partial": partial(),
            "roles": [
                {
                    "role": path[-1],
                    "within": list(path[:-1]),
                    "seconds": round(done.seconds, 3),
                    "tasks": done.tasks,
                    "changed": dict(sorted(done.changed.items())),
                    "failed": sorted(done.failed),
                    "tasks_by_host": dict(sorted(done.tasks_by_host.items())),
                    "seconds_by_host": {
                        host: round(seconds, 3) for host, seconds in sorted(done.seconds_by_host.items())
                    },
                }
                for path, done in self._roles.items()
            ],
            "ansible": ansible_version,
        }
        write(content, self._started)
        if content["status"] == "ok":
            self._show_seconds((datetime.now(UTC) - self._started).total_seconds())

    def _show_seconds(self, total: float) -> None:
        """Show the seconds by role; those of a role that another one called count for that one."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for path, done in self._roles.items():
            seconds[path[0]] += done.seconds
        rows = [*sorted(seconds.items(), key=lambda row: -row[1]), ("in all", total)]
        width = max(len(name) for name, _ in rows)
        self._display.display("Seconds by role:\n")
        for name, spent in rows:
            self._display.display(f"  {name:{width}}  {spent:7.1f}")
        self._display.display("")

    def _count(self, result: Any) -> Done | None:
        """Count the running task for a host, and once for all of them; None if it is not recorded."""
        running, host = self._running, result.host.get_name()
        if running is None:
            return None
        if not running.counted:
            running.counted = True
            running.done.tasks += 1
        running.done.tasks_by_host[host] += 1
        since = running.since_by_host.get(host, running.since)
        running.done.seconds_by_host[host] += time.monotonic() - since
        return running.done

    def _end_task(self) -> None:
        if self._running is not None:
            self._running.done.seconds += time.monotonic() - self._running.since
            self._running = None


def partial() -> list[str]:
    """The options that left out a part of the playbook, as given: `tags=install`."""
    given = []
    for name, whole in PARTIAL.items():
        value = context.CLIARGS.get(name)
        plain = list(value) if isinstance(value, list | tuple) else value
        if plain != whole and plain:
            given.append(f"{name}={','.join(plain) if isinstance(plain, list) else plain}")
    return given


def write(content: dict[str, Any], moment: datetime) -> Path:
    """Add the state of the checkout and write the record, named after its start; returns its path."""
    # Imported only when there is a record: every playbook loads this plugin.
    sys.path.append(str(ROOT))
    from experiments.util.files import campaign_name, json_text, write_whole
    from experiments.util.git import MADE_OF, revision_and_changes

    revision, changed = revision_and_changes(ROOT, MADE_OF)
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{campaign_name(moment)}.json"
    number = 2
    while path.exists():  # another cluster's, begun in the same second
        path = RECORDS / f"{campaign_name(moment)}-{number}.json"
        number += 1
    git = {
        "revision": revision,
        "dirty": None if changed is None else bool(changed),
        "changed": changed or [],
    }
    write_whole(path, json_text({**content, "git": git}))
    return path
