"""Running playbooks: each in its own process group, logged to a file, and ended as a whole on a signal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from experiments.util.errors import UserError
from experiments.util.files import json_text, write_whole
from experiments.util.interrupts import Interrupted, Interrupts
from experiments.util.processes import end_group
from experiments.util.screen import Screen

PROGRAM_VARIABLE: Final = (
    "TRAINBED_ANSIBLE_PLAYBOOK"  # the ansible-playbook to use instead of this environment's
)
TICK_S: Final = 1.0
CLEAN_UP_ABANDONED: Final = 3  # signals


class PlaybookError(UserError):
    """A playbook failed; the text names its log, which must stay."""


@dataclass(frozen=True)
class Outcome:
    """How a playbook ended."""

    exit_code: int
    seconds: float  # by the monotonic clock

    @property
    def good(self) -> bool:
        """Whether every task succeeded."""
        return self.exit_code == 0


class Playbooks:
    """Runs the playbooks of the repository at `root`."""

    def __init__(self, root: Path, interrupts: Interrupts, screen: Screen) -> None:
        self.root = root
        self.interrupts = interrupts
        self.screen = screen
        self._program = find_program()

    def play(
        self,
        name: str,
        log: Path,
        variables: Mapping[str, Any] | None = None,
        *,
        variables_file: Path | None = None,
        tick: Callable[[], None] | None = None,
        deferred: bool = False,
    ) -> Outcome:
        """Runs playbooks/<name>.yml and waits for its end.

        Args:
            name: of the playbook, without folder and extension.
            log: file for its output; its folder must exist.
            variables: passed to it in `variables_file`.
            variables_file: where the variables are written (default: beside the log).
            tick: called about once a second while it runs.
            deferred: only the third signal ends it, because cleaning up and locking must not be left half
                done.

        Raises:
            Interrupted: a signal came, and the playbook was ended.
        """
        path = variables_file or log.with_name(f"{log.stem}-vars.json")
        write_whole(path, json_text(dict(variables or {})))
        mark = process_mark(path)
        command = [self._program, f"playbooks/{name}.yml", "-e", mark]
        with log.open("ab") as output:
            begin = time.monotonic()
            # Its own group: Ctrl-C on the terminal must reach only this program, which ends the playbook.
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        ended: list[float] = []
        waiter = threading.Thread(target=self._await, args=(process, ended), daemon=True)
        waiter.start()
        try:
            self._watch(waiter, name, tick, deferred)
        finally:
            # Also after a failed tick: no playbook may outlive this program.
            if waiter.is_alive():
                end_group(process.pid, mark)
            waiter.join()
        return Outcome(exit_code=process.returncode, seconds=ended[0] - begin)

    def _await(self, process: subprocess.Popen[bytes], ended: list[float]) -> None:
        process.wait()
        ended.append(time.monotonic())
        self.interrupts.wake.put(None)

    def _watch(
        self, waiter: threading.Thread, name: str, tick: Callable[[], None] | None, deferred: bool
    ) -> None:
        said = len(self.interrupts.received)
        while waiter.is_alive():
            received = len(self.interrupts.received)
            if received and not deferred:
                raise Interrupted
            if received >= CLEAN_UP_ABANDONED:
                raise Interrupted
            if received > said:
                said = received
                rest = CLEAN_UP_ABANDONED - received
                self.screen.line(
                    f"playbooks/{name}.yml is still running and must finish first; "
                    f"press Ctrl-C {'once' if rest == 1 else 'twice'} more to give it up."
                )
            if tick is not None:
                tick()
            self.interrupts.wait(TICK_S)

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        environment["ANSIBLE_CONFIG"] = str(self.root / "ansible.cfg")
        environment["ANSIBLE_NOCOLOR"] = "1"
        environment["ANSIBLE_STDOUT_CALLBACK"] = "default"  # failure_message() reads its account of failures
        environment.pop("ANSIBLE_FORCE_COLOR", None)
        environment["PYTHONUNBUFFERED"] = "1"  # the log shows what happens now
        environment["LC_ALL"] = "C.UTF-8"  # Ansible refuses to start in a locale that is not UTF-8
        return environment


def process_mark(variables_file: Path) -> str:
    """The argument that identifies the processes of a playbook: its own variables file."""
    return f"@{variables_file.absolute()}"


def find_program() -> str:
    """The ansible-playbook of the environment that this Python belongs to.

    Raises:
        UserError: there is none.
    """
    given = os.environ.get(PROGRAM_VARIABLE)
    # Not resolved: in a virtual environment python is a link, and the programs are beside the link.
    program = Path(given) if given else Path(sys.executable).parent / "ansible-playbook"
    if not os.access(program, os.X_OK):
        where = f"as {PROGRAM_VARIABLE} says" if given else f"beside {sys.executable}"
        raise UserError(
            f"There is no ansible-playbook {where}; use the project's own environment (see make help)."
        )
    return str(program)


def last_lines(log: Path, count: int = 12) -> list[str]:
    """The last lines of a playbook's output, without empty ones and the recap."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    recap = next((at for at, line in enumerate(lines) if line.startswith("PLAY RECAP")), len(lines))
    return [line.rstrip() for line in lines[:recap] if line.strip()][-count:]


def step_under_way(log: Path) -> str | None:
    """The task that a playbook has begun last, in its own words; None before the first."""
    begun = [line for line in last_lines(log, count=1000) if line.startswith("TASK [")]
    return begun[-1].removeprefix("TASK [").rpartition("]")[0].rpartition(" : ")[2] if begun else None


def failure_message(log: Path) -> str | None:
    """The cause of failure, from the playbook's output; None if it says nothing useful."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    messages = []
    for at, line in enumerate(lines):
        # Ansible 2.19: "fatal: [node]: FAILED! =>", then the result as indented YAML.
        started = re.match(r"(fatal|failed): \[(?P<node>[^\]]+)\].*?(FAILED|UNREACHABLE)!", line)
        if started:
            message = _entry("msg", lines[at + 1 :])
            if message == "non-zero return code":  # of a command, whose stderr says more
                message = _entry("stderr", lines[at + 1 :], last_line=True)
            if message:
                messages.append(f"{started['node'].split(' ')[0]}: {message}")
    return messages[-1] if messages else None


def _entry(key: str, lines: list[str], *, last_line: bool = False) -> str | None:
    """The entry `key` of the result that starts `lines`, on one line; or only its last line."""
    for at, line in enumerate(lines):
        if line and not line[0].isspace():
            return None
        found = re.match(rf"(\s+){key}: ", line)
        if found is None:
            continue
        indent = len(found[1])
        entry = [line[indent:]]
        for more in lines[at + 1 :]:
            if more.strip() and not more.startswith(" " * (indent + 1)):
                break
            entry.append(more[indent:])
        try:
            text = str(yaml.safe_load("\n".join(entry))[key])
        except (yaml.YAMLError, TypeError, KeyError):
            text = " ".join(entry).removeprefix(f"{key}: ")
        if last_line:
            text = (text.strip().splitlines() or [""])[-1]
        return " ".join(text.split()) or None
    return None
