#!/usr/bin/python3
"""Ansible module: run a stack's command on this node to its end, and note how it ended."""

from __future__ import annotations

import datetime
import json
import os
import select
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: run_job
short_description: Run a stack's command on this node to its end, and note how it ended
description:
  - The command runs as a transient unit, or in the container that it starts. So it does not end unnoticed
    with Ansible's connection, and can be found and stopped.
  - A command that fails, or cannot be started, does not fail the task. Its exit code is returned and noted.
  - A command that was stopped by somebody else while it was waited for fails the task.
options:
  argv:
    description: "The command; with O(container), a C(docker run --detach)."
    type: list
    elements: str
    required: true
  unit: {description: "Name of the transient unit, without C(.service).", type: str}
  container:
    description: "Whether the command starts a container, instead of running as a unit."
    type: bool
    default: false
  user: {description: User that the unit runs as., type: str}
  group: {description: Group that the unit runs as., type: str}
  chdir: {description: Working directory of the unit., type: path}
  environment: {description: Environment of the unit., type: dict, default: {}}
  properties:
    description: "Further properties of the unit, such as C(LimitNOFILE=65536)."
    type: list
    elements: str
    default: []
  files:
    description: "Files that the command reads, by path; they are written first."
    type: dict
    default: {}
  log: {description: File that its output is appended to., type: path, required: true}
  failed:
    description:
      - File on storage that the nodes of a run share. It is made if the command fails.
      - Where another node has made it, the command is ended after half a minute.
    type: path
  note: {description: "File for the note of how it ended, as in launch.json.", type: path}
  note_if:
    description: Whether the note is written in any case or of a failure only.
    type: str
    choices: [ended, failed]
    default: ended
  note_unit:
    description: "Whether the note's command is all that starts the unit, and not only what it runs."
    type: bool
    default: false
  stack: {description: The stack that the note names., type: str}
  nodes:
    description: "Nodes that the note names, in the order of their ranks."
    type: list
    elements: str
    default: []
author: trainbed
"""

EXAMPLES = r"""
- name: Submit and wait
  run_job:
    argv: [toy-submit, --name, some-run, program.py]
    unit: trainbed-run-toy
    user: trainbed
    log: /srv/trainbed/shared/runs/some-run/01/logs/master.log
    note: /srv/trainbed/shared/runs/some-run/01/launch.json
    stack: toy
"""

RETURN = r"""
exit_code:
  description: "The command's; 128 and the signal's number, if one ended it."
  type: int
  returned: always
started: {description: "When it was started, in unix seconds.", type: float, returned: always}
ended: {description: "When it ended, in unix seconds.", type: float, returned: always}
command: {description: "The command that the note names.", type: list, returned: always}
"""

PIECE: Final = 5.0  # s; asking more often would take time from the training
GRACE: Final = 30.0  # s, once another node has failed
KILL_AFTER: Final = 10.0  # s, once told to end
ENDED: Final = ("exited", "failed", "dead")
EXITED: Final = "1"  # CLD_EXITED of waitid(2): its status is an exit code, else the number of a signal
PROPERTIES: Final = (
    "SubState",
    "MainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "InactiveExitTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
)
STOPPED: Final = "is gone: somebody stopped it while the run was waited for."


class JobError(Exception):
    """What keeps the end of a job from being known, in a sentence."""


class NotStarted(Exception):
    """A job could not be started: its text is what was said, its code the status."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def call(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a short command, and return what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode != 0:
        raise JobError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done


class Unit:
    """A transient unit of systemd. It stays when it has ended, until it was asked how."""

    def __init__(self, name: str, start: list[str]) -> None:
        self._name = f"{name}.service"
        self._start = start
        self._state: dict[str, str] = {}

    def start(self) -> None:
        """Start it.

        Raises:
            NotStarted: systemd could not.
        """
        done = call(*self._start, check=False)
        if done.returncode != 0:
            raise NotStarted(f"systemd-run failed: {done.stderr.strip()}", done.returncode)

    def process(self) -> int | None:
        """Its main process; 0 while there is none, None once it has ended."""
        told = call("systemctl", "show", f"--property={','.join(PROPERTIES)}", self._name).stdout
        self._state = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        return None if self._state["SubState"] in ENDED else int(self._state["MainPID"])

    def signal(self, signal: str) -> None:
        """Send a signal to all of its processes."""
        call("systemctl", "kill", f"--signal={signal}", self._name)

    def close(self) -> tuple[int, float, float]:
        """Remove it; its exit code, and when it began and ended.

        Raises:
            JobError: somebody stopped it.
        """
        state = self._state
        ended = int(state["ExecMainExitTimestampMonotonic"])
        if state["SubState"] == "dead" or not ended:
            raise JobError(f"The unit {self._name} {STOPPED}")
        status = int(state["ExecMainStatus"])
        code = status if state["ExecMainCode"] == EXITED else 128 + status
        # systemd counts microseconds of the monotonic clock.
        epoch = time.time() - time.monotonic()
        began = int(state["InactiveExitTimestampMonotonic"])
        # What it left running ends with it.
        call("systemctl", "stop", self._name)
        if state["SubState"] == "failed":
            call("systemctl", "reset-failed", self._name)
        return code, epoch + began / 1e6, epoch + ended / 1e6


class Container:
    """A container, which the command starts. It is known by its id: a later attempt has the same name."""

    def __init__(self, start: list[str], log: Path) -> None:
        self._start = start
        self._log = log
        self._id = ""

    def start(self) -> None:
        """Start it.

        Raises:
            NotStarted: the engine could not, or is not there.
        """
        try:
            done = call(*self._start, check=False)
        except OSError as error:
            raise NotStarted(f"docker run failed: {error}", 127) from error
        if done.returncode != 0:
            raise NotStarted(f"docker run failed: {done.stderr.strip()}", done.returncode)
        self._id = done.stdout.strip()

    def process(self) -> int | None:
        """Its main process; None once it has ended."""
        running, pid = self._told("{{.State.Running}} {{.State.Pid}}").split()
        return int(pid) if running == "true" else None

    def signal(self, signal: str) -> None:
        """Send a signal to its main process."""
        call("docker", "kill", f"--signal={signal}", self._id)

    def close(self) -> tuple[int, float, float]:
        """Keep its log and remove it; its exit code, and when it was made and ended."""
        code, made, ended = self._told("{{.State.ExitCode}} {{.Created}} {{.State.FinishedAt}}").split()
        with self._log.open("ab") as log:
            subprocess.run(["docker", "logs", self._id], stdout=log, stderr=log, check=True, timeout=120)
        call("docker", "rm", self._id)
        return int(code), unix_seconds(made), unix_seconds(ended)

    def _told(self, template: str) -> str:
        done = call("docker", "inspect", "--format", template, self._id, check=False)
        if done.returncode != 0:
            raise JobError(f"The container {self._id[:12]} {STOPPED} {done.stderr.strip()}")
        return done.stdout


def unix_seconds(moment: str) -> float:
    """The engine's moment, such as 2026-11-23T15:26:00.123456789Z, in unix seconds."""
    whole, _, rest = moment.partition(".")
    digits = rest.rstrip("Z") if rest else "0"
    begun = datetime.datetime.strptime(whole.rstrip("Z"), "%Y-%m-%dT%H:%M:%S")
    utc = begun.replace(tzinfo=datetime.timezone.utc)  # noqa: UP017 - Python 3.10 nodes
    return utc.timestamp() + float(f"0.{digits}")


def wait_for_process(pid: int, seconds: float) -> None:
    """Return when the process has ended, and after so many seconds at the latest."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        time.sleep(0.1)  # it has ended, and whoever started it is about to know
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
    finally:
        os.close(handle)


def wait(job: Unit | Container, failed: Path | None) -> None:
    """Return once the job has ended, by itself or because another node's has failed."""
    others_failed: float | None = None  # since when that is known
    told: set[str] = set()
    while (pid := job.process()) is not None:
        if pid:
            wait_for_process(pid, PIECE)
        else:
            time.sleep(0.1)
        if others_failed is None and failed is not None and failed.exists():
            others_failed = time.monotonic()
        for signal, after in (("SIGTERM", GRACE), ("SIGKILL", GRACE + KILL_AFTER)):
            due = others_failed is not None and time.monotonic() - others_failed >= after
            if due and signal not in told and job.process() is not None:
                told.add(signal)
                job.signal(signal)


def run(job: Unit | Container, log: Path, failed: Path | None) -> tuple[int, float, float]:
    """Run the job to its end; its exit code, and when it began and ended.

    Raises:
        JobError: its end could not be seen.
    """
    try:
        job.start()
    except NotStarted as error:
        # Said where the others, who wait for this node, hear of it.
        log.write_text(f"{error}\n", encoding="utf-8")
        now = time.time()
        code, began, ended = error.code, now, now
    else:
        wait(job, failed)
        code, began, ended = job.close()
    if code and failed is not None:
        failed.touch()
    return code, began, ended


def unit_command(asked: dict[str, Any]) -> list[str]:
    """The command that starts a unit as it was asked for."""
    options = ["--quiet", f"--unit={asked['unit']}.service"]
    options += [f"--uid={asked['user']}"] if asked["user"] else []
    options += [f"--gid={asked['group']}"] if asked["group"] else []
    options += [f"--working-directory={asked['chdir']}"] if asked["chdir"] else []
    options += ["--remain-after-exit", "--property=Type=exec"]
    outputs = [f"{name}=append:{asked['log']}" for name in ("StandardOutput", "StandardError")]
    options += [f"--property={each}" for each in [*asked["properties"], *outputs]]
    options += [f"--setenv={name}={value}" for name, value in asked["environment"].items()]
    return ["systemd-run", *options, *asked["argv"]]


def write(path: Path, text: str) -> None:
    """Write a file whole, readable for all: beside, then renamed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(path)


def perform(asked: dict[str, Any]) -> dict[str, Any]:
    """Run what was asked for; what the module returns.

    Raises:
        JobError: its end could not be seen.
        OSError: a file could not be written.
    """
    log, failed = Path(asked["log"]), Path(asked["failed"]) if asked["failed"] else None
    for path, text in asked["files"].items():
        write(Path(path), text)
    started_by = asked["argv"] if asked["container"] else unit_command(asked)
    job = Container(started_by, log) if asked["container"] else Unit(asked["unit"], started_by)
    code, began, ended = run(job, log, failed)
    command = started_by if asked["note_unit"] else asked["argv"]
    if asked["note"] and (code or asked["note_if"] == "ended"):
        note = {"stack": asked["stack"], "started": began, "ended": ended, "exit_code": code}
        note |= {"command": command, "nodes": asked["nodes"]}
        write(Path(asked["note"]), json.dumps(note, indent=4) + "\n")
    return {"exit_code": code, "started": began, "ended": ended, "command": command}


def main() -> None:
    """Entry point of the module."""
    strings: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "list", "elements": "str", "required": True},
            "unit": {"type": "str"},
            "container": {"type": "bool", "default": False},
            "user": {"type": "str"},
            "group": {"type": "str"},
            "chdir": {"type": "path"},
            "environment": {"type": "dict", "default": {}},
            "properties": strings,
            "files": {"type": "dict", "default": {}},
            "log": {"type": "path", "required": True},
            "failed": {"type": "path"},
            "note": {"type": "path"},
            "note_if": {"type": "str", "choices": ["ended", "failed"], "default": "ended"},
            "note_unit": {"type": "bool", "default": False},
            "stack": {"type": "str"},
            "nodes": strings,
        },
        required_if=[("container", False, ("unit",))],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        module.exit_json(changed=True, **perform(module.params))
    except (JobError, OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
