"""Callback plugin: what a person sees of a playbook. Faults are sentences, once each, at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: screen
type: stdout
short_description: Ansible's default output, with faults as sentences at the end
description:
  - A fault that a task words itself (C(fail), C(assert)) is that sentence. Any other names node, task and
    what was said; its details are in the log, or here where playbooks write none.
  - With C(-v), Ansible's own account of every fault is shown, too.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout in ansible.cfg
"""

#: The playbook whose details go to a log (provisioning_log).
LOGGED = Path(__file__).resolve().parents[1] / "provision.yml"
#: Modules whose message is a sentence of ours.
WORDED = ("fail", "assert")
#: Longest account of another fault in characters; the log has all of it.
LIMIT = 600
#: What Ansible puts before a message.
PREFIX = re.compile(r"^((Task|Action|Module) failed( with exception)?: )+")
SAYS_NOTHING = ("non-zero return code", "MODULE FAILURE", "One or more items failed")


@dataclass
class Fault:
    """A sentence, or what a task said, and the nodes that it came from."""

    said: str
    task: str = ""  # empty if `said` is a sentence by itself
    lost: bool = False  # the node did not answer
    hosts: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """The fault in one sentence."""
        if not self.task:
            return self.said
        where = " and ".join([", ".join(self.hosts[:-1]), self.hosts[-1]] if self.hosts[1:] else self.hosts)
        said = self.said if len(self.said) <= LIMIT else self.said[:LIMIT].rstrip() + " …"
        reached = "were not reached by" if self.hosts[1:] else "was not reached by"
        verb = reached if self.lost else "failed at"
        return f"{where} {verb} '{self.task}': {said}"


def one_line(text: Any) -> str:
    """`text` on one line, without what Ansible puts before it."""
    return PREFIX.sub("", " ".join(str(text).split()))


def said(result: dict[str, Any]) -> str:
    """What a failed task, or an item of its loop, said."""
    if "censored" in result:
        return "what it said is hidden, because it may hold secrets"
    message = one_line(result.get("msg") or "")
    if message and not message.startswith(SAYS_NOTHING):
        return message
    for key in ("stderr", "module_stderr", "stdout", "module_stdout"):
        lines = str(result.get(key) or "").strip().splitlines()
        if lines:
            return one_line(lines[-1])
    return message or "it said nothing"


class CallbackModule(Default):  # type: ignore[misc] # Ansible has no types
    """Collects faults and shows them last."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "screen"

    def __init__(self) -> None:
        super().__init__()
        self._faults: list[Fault] = []
        self._logged = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Find out whether there is a log."""
        self._logged = Path(playbook._file_name).resolve() == LOGGED
        super().v2_playbook_on_start(playbook)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Collect what failed; Ansible's account of it is shown only where it is nowhere else."""
        worded = short_action(result) in WORDED
        if not ignore_errors:
            for each in failures(result.result):
                self._add(result, said(each), worded=worded)
        if ignore_errors or self._in_full(worded):
            super().v2_runner_on_failed(result, ignore_errors)
        else:
            self._mark(result, "failed", C.COLOR_ERROR)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        """As of a task: the faults of its items are collected when all are done."""
        if self._in_full(short_action(result) in WORDED):
            super().v2_runner_item_on_failed(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Collect which nodes did not answer, unless the task expects it."""
        if self._display.verbosity:
            super().v2_runner_on_unreachable(result)
        else:
            self._mark(result, "unreachable", C.COLOR_UNREACHABLE)
        if not result.task.ignore_unreachable:
            self._add(result, said(result.result), lost=True)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        """What follows says why."""

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Show the faults after everything else."""
        super().v2_playbook_on_stats(stats)
        if not (stats.failures or stats.dark) or not self._faults:
            return
        count = len(self._faults)
        self._display.display(f"{count} problem{'s' if count > 1 else ''}:\n", color=C.COLOR_ERROR)
        for fault in self._faults:
            self._display.display(f"  - {fault.sentence()}", color=C.COLOR_ERROR)
        self._display.display("")

    def _in_full(self, worded: bool) -> bool:
        """Whether Ansible's own account of a fault is shown."""
        return self._display.verbosity > 0 or not (worded or self._logged)

    def _mark(self, result: Any, word: str, colour: str) -> None:
        """One line at its place in the output, below the task's name."""
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._display.display(f"{word}: [{self.host_label(result)}]", color=colour)

    def _add(self, result: Any, text: str, *, worded: bool = False, lost: bool = False) -> None:
        new = Fault(text, "" if worded else result.task.get_name().strip(), lost)
        for fault in self._faults:
            if (fault.said, fault.task, fault.lost) == (new.said, new.task, new.lost):
                new = fault
                break
        else:
            self._faults.append(new)
        # Of a task for another node, that node.
        host = str(result.task.delegate_to or result.host.get_name())
        if host not in new.hosts:
            new.hosts.append(host)


def short_action(result: Any) -> str:
    """The name of the task's module, without its collection."""
    return str(result.task.action).rpartition(".")[2]


def failures(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The results of the items that failed; or the whole, if it is of no loop."""
    failed = [each for each in result.get("results") or [] if isinstance(each, dict) and each.get("failed")]
    yield from failed or [result]
