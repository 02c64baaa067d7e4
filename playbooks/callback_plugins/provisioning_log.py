"""Callback plugin: the log of a provisioning, with everything that the screen leaves out."""

from __future__ import annotations

import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: provisioning_log
type: aggregate
short_description: Writes the log of playbooks/provision.yml to results/provisioning/
description:
  - A line for each task and node, with the time; below it the whole result of what changed,
    failed or was said.
  - What C(no_log) hides is hidden here, too. Also written in check mode.
extends_documentation_fragment:
  - result_format_callback
requirements:
  - enabled in ansible.cfg
"""

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = ROOT / "playbooks" / "provision.yml"
LOGS = ROOT / "results" / "provisioning"
#: Modules whose results are worth keeping even if nothing changed.
SAYING = ("command", "debug", "shell")


class CallbackModule(CallbackBase):  # type: ignore[misc] # Ansible has no types
    """Writes each event as it comes, so that an interrupted provisioning leaves a log, too."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "provisioning_log"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._log: TextIO | None = None  # None: this playbook has no log

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Open the log, if it is this playbook."""
        if Path(playbook._file_name).resolve() != PLAYBOOK:
            return
        self._log = create(datetime.now(UTC))
        given = {name: context.CLIARGS.get(name) for name in ("tags", "skip_tags", "subset", "check")}
        inventory = " ".join(map(str, context.CLIARGS.get("inventory") or []))
        options = " ".join(f"{name}={value}" for name, value in given.items() if value)
        self._line(f"playbooks/provision.yml, inventory {inventory or 'of ansible.cfg'}, {options}")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Name the play."""
        self._line(f"PLAY {play.get_name().strip()}")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        """Name the task."""
        self._line(f"TASK {task.get_name().strip()}")

    def v2_playbook_on_cleanup_task_start(self, task: Any) -> None:
        """As of a task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        """As of a task."""
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        """What a node did."""
        told = result.is_changed() or str(result.task.action).rpartition(".")[2] in SAYING
        self._result("changed" if result.is_changed() else "ok", result, told)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A node did nothing."""
        self._result("skipped", result, False)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A node failed."""
        self._result("failed, ignored" if ignore_errors else "failed", result, True)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A node did not answer."""
        self._result("unreachable", result, True)

    def v2_runner_retry(self, result: Any) -> None:
        """A node tries again."""
        self._result("tries again", result, True)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Count what was done, and say where the log is."""
        if self._log is None:
            return
        for host in sorted(stats.processed):
            counts = stats.summarize(host)
            self._line(f"{host}: " + " ".join(f"{key}={value}" for key, value in counts.items()))
        path = Path(self._log.name)
        self._log.close()
        self._log = None
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        self._display.display(f"All details are in {shown}.")

    def _line(self, text: str) -> None:
        if self._log is not None:
            self._log.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")
            self._log.flush()

    def _result(self, word: str, result: Any, told: bool) -> None:
        if self._log is None:
            return
        self._line(f"{word}: [{self.host_label(result)}]")
        if not told:
            return
        self._log.write(f"{self._dump_results(result.result, indent=4).lstrip(chr(10)).rstrip()}\n")
        # What Ansible knows beyond the result: where it went wrong, and the traceback of a module.
        if result.exception and "censored" not in result.result:
            event = result.exception.event
            for text in (event.formatted_source_context, event.formatted_traceback):
                self._log.write(textwrap.indent(text or "", "    ").rstrip() + "\n")
        self._log.flush()


def create(moment: datetime) -> TextIO:
    """A new log, named after its start."""
    # Imported only when there is a log: every playbook loads this plugin.
    sys.path.append(str(ROOT))
    from experiments.util.files import campaign_name

    LOGS.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        suffix = f"-{number}" if number > 1 else ""
        try:
            return (LOGS / f"{campaign_name(moment)}{suffix}.log").open("x", encoding="utf-8")
        except FileExistsError:  # another cluster's, begun in the same second
            number += 1
