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
from ansible.module_utils.run_places import UnknownUser, as_user, roots_directory

DOCUMENTATION = r"""
---
module: run_job
short_description: Run a stack's command on this node to its end, and note how it ended
description:
  - The command runs as a transient unit, or in the container that it starts. So it does not end unnoticed
    with Ansible's connection, and can be found and stopped.
  - A command that fails, or cannot be started, does not fail the task. Its exit code is returned and noted.
  - The task fails if somebody else stops the command meanwhile.
  - Root writes the log, the note and the files. Their directories are created; it must be true of each that
    only root can write there.
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
  user: {description: "User that the unit runs as, and that creates O(failed).", type: str}
  group: {description: Group that the unit runs as., type: str}
  chdir: {description: Working directory of the unit., type: path}
  environment: {description: Environment of the unit., type: dict, default: {}}
  properties:
    description: "Further properties of the unit, such as C(LimitNOFILE=65536)."
    type: list
    elements: str
    default: []
  files:
    description: "Content of files that the command reads, by path; they are written first."
    type: dict
    default: {}
  log: {description: File that its output is appended to., type: path, required: true}
  output:
    description: "File that the unit's standard output goes to instead. It and O(log) are then written anew."
    type: path
  failed:
    description:
      - File on storage that the nodes of a run share. It is created if the command fails, by O(user), who
        owns its directory.
      - Once another node has created it, the command is ended after half a minute.
    type: path
  note: {description: "File that notes how the command ended, as launch.json does.", type: path}
  note_if:
    description: Whether to write the note in any case or only after a failure.
    type: str
    choices: [ended, failed]
    default: ended
  note_unit:
    description: "Whether the note gives the whole command that starts the unit, not only what the unit runs."
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
    log: /var/lib/trainbed/launches/some-run/01/logs/master.log
    note: /var/lib/trainbed/launches/some-run/01/launch.json
    stack: toy
"""

RETURN = r"""
exit_code:
  description: "The command's; if a signal ended it, 128 plus the signal's number."
  type: int
  returned: always
started: {description: "When it was started, in unix seconds.", type: float, returned: always}
ended: {description: "When it ended, in unix seconds.", type: float, returned: always}
command: {description: "The command that the note names.", type: list, returned: always}
limit:
  description: "Which of the unit's own limits ended it: C(memory), C(time), or nothing."
  type: str
  returned: always
"""

PIECE: Final = 5.0  # s; asking more often would take time from the training
GRACE: Final = 30.0  # s, once another node has failed
KILL_AFTER: Final = 10.0  # s, after SIGTERM
ENDED: Final = ("exited", "failed", "dead")
EXITED: Final = "1"  # CLD_EXITED of waitid(2): the status is an exit code; otherwise it is a signal's number
SYSTEMDS_OWN: Final = range(200, 246)  # exit codes if systemd could not execute a command
LIMITS: Final = {"oom-kill": "memory", "timeout": "time"}  # what systemd calls the result
PROPERTIES: Final = (
    "Result",
    "SubState",
    "MainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "InactiveExitTimestampMonotonic",
    "ActiveExitTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
)
STOPPED: Final = "is gone: somebody stopped it during the run."


class JobError(Exception):
    """It is unknown how a job ended; the text is a sentence that says why."""


class NotStarted(Exception):
    """A job could not be started: the text is the error, `code` the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def call(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a short command; unless `check` is false, a failure raises JobError."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if check and done.returncode != 0:
        raise JobError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done


class Unit:
    """A transient systemd unit. Once ended, it remains until `close` has asked how it ended."""

    @property
    def limit(self) -> str:
        """Which of its limits ended it, as the module returns it."""
        return LIMITS.get(self._state.get("Result", ""), "")

    def __init__(self, name: str, start: list[str]) -> None:
        self._name = f"{name}.service"
        self._start = start
        self._state: dict[str, str] = {}

    def start(self) -> None:
        """Start it.

        Raises:
            NotStarted: systemd could not start it.
        """
        before = time.monotonic()
        done = call(*self._start, check=False)
        if done.returncode == 0:
            return
        self.process()
        status = int(self._state["ExecMainStatus"])
        tried = int(self._state["ExecMainStartTimestampMonotonic"]) >= before * 1e6
        executed = self._state["ExecMainCode"] != EXITED or status not in SYSTEMDS_OWN
        # systemd-run also fails if the command was started, but failed at once.
        if not (tried and executed):
            why = done.stderr.strip() or f"status {status if tried else done.returncode}, see systemd.exec(5)"
            raise NotStarted(f"systemd-run failed: {why}", done.returncode)

    def process(self) -> int | None:
        """Id of its main process; 0 before there is one, None once it has ended."""
        told = call("systemctl", "show", f"--property={','.join(PROPERTIES)}", self._name).stdout
        self._state = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        return None if self._state["SubState"] in ENDED else int(self._state["MainPID"])

    def signal(self, signal: str) -> None:
        """Send a signal to all of its processes."""
        call("systemctl", "kill", f"--signal={signal}", self._name)

    def close(self) -> tuple[int, float, float]:
        """Remove it; returns its exit code, and when it began and ended.

        Raises:
            JobError: somebody stopped it.
        """
        state = self._state
        ended = int(state["ExecMainExitTimestampMonotonic"])
        # A unit that is stopped leaves the state active before its main process ends, otherwise after it.
        stopped = 0 < int(state["ActiveExitTimestampMonotonic"]) < ended
        if state["SubState"] == "dead" or not ended or (stopped and not self.limit):
            if state["SubState"] == "failed":
                self._remove("reset-failed")
            raise JobError(f"The unit {self._name} {STOPPED}")
        status = int(state["ExecMainStatus"])
        code = status if state["ExecMainCode"] == EXITED else 128 + status
        # systemd counts microseconds of the monotonic clock.
        epoch = time.time() - time.monotonic()
        began = int(state["InactiveExitTimestampMonotonic"])
        self._remove("stop")  # which also ends processes that it left running
        if state["SubState"] == "failed":
            self._remove("reset-failed")
        return code, epoch + began / 1e6, epoch + ended / 1e6

    def _remove(self, verb: str) -> None:
        """Stop or reset it, unless somebody else was faster."""
        done = call("systemctl", verb, self._name, check=False)
        if done.returncode != 0 and "not loaded" not in done.stderr:
            raise JobError(
                f"systemctl {verb} {self._name} ended with {done.returncode}: {done.stderr.strip()}"
            )


class Container:
    """The container that the command starts, identified by its id: a later attempt has the same name."""

    limit = ""

    def __init__(self, start: list[str], log: Path) -> None:
        self._start = start
        self._log = log
        self._id = ""

    def start(self) -> None:
        """Start it.

        Raises:
            NotStarted: the engine could not start it, or is missing.
        """
        try:
            done = call(*self._start, check=False)
        except OSError as error:
            raise NotStarted(f"docker run failed: {error}", 127) from error
        if done.returncode != 0:
            raise NotStarted(f"docker run failed: {done.stderr.strip()}", done.returncode)
        self._id = done.stdout.strip()

    def process(self) -> int | None:
        """Id of its main process; None once it has ended."""
        running, pid = self._told("{{.State.Running}} {{.State.Pid}}").split()
        return int(pid) if running == "true" else None

    def signal(self, signal: str) -> None:
        """Send a signal to its main process."""
        call("docker", "kill", f"--signal={signal}", self._id)

    def close(self) -> tuple[int, float, float]:
        """Keep its log and remove it; returns its exit code, and when it was created and ended.

        Raises:
            JobError: somebody removed it, or is about to.
        """
        told = self._told("{{.State.Status}} {{.State.ExitCode}} {{.Created}} {{.State.FinishedAt}}")
        state, code, made, ended = told.split()
        if state in ("removing", "dead"):
            raise JobError(f"The container {self._id[:12]} {STOPPED}")
        with self._log.open("ab") as log:
            subprocess.run(["docker", "logs", self._id], stdout=log, stderr=log, check=True, timeout=120)
        call("docker", "rm", self._id)
        return int(code), unix_seconds(made), unix_seconds(ended)

    def _told(self, template: str) -> str:
        done = call("docker", "inspect", "--format", template, self._id, check=False)
        if done.returncode != 0:
            raise JobError(f"The container {self._id[:12]} {STOPPED}")
        return done.stdout


def unix_seconds(moment: str) -> float:
    """The engine's moment, such as 2026-11-23T15:26:00.123456789Z, in unix seconds."""
    whole, _, rest = moment.partition(".")
    digits = rest.rstrip("Z") if rest else "0"
    begun = datetime.datetime.strptime(whole.rstrip("Z"), "%Y-%m-%dT%H:%M:%S")
    utc = begun.replace(tzinfo=datetime.timezone.utc)  # noqa: UP017 - Python 3.10 nodes
    return utc.timestamp() + float(f"0.{digits}")


def wait_for_process(pid: int, seconds: float) -> None:
    """Wait until the process has ended, but at most this many seconds."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        time.sleep(0.1)  # it has ended, and systemd or the engine is about to notice
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(seconds * 1000)
    finally:
        os.close(handle)


def wait(job: Unit | Container, failed: Path | None) -> None:
    """Wait until the job has ended, by itself or because another node's job has failed."""
    others_failed: float | None = None  # when that was noticed
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


def mark_failed(path: Path, user: str) -> None:
    """Create the marker as the user who owns its directory: as root it could be led elsewhere by a link.

    Raises:
        JobError: it can't be created.
    """
    touch = ["touch", "--", str(path)]
    done = subprocess.run(touch, capture_output=True, text=True, check=False, **as_user(user))
    if done.returncode != 0:
        raise JobError(f"The other nodes can't be told that this one has failed: {done.stderr.strip()}")


def run(job: Unit | Container, log: Path, failed: Path | None, user: str) -> tuple[int, float, float]:
    """Run the job to its end; returns its exit code, and when it began and ended.

    Raises:
        JobError: it is unknown how it ended.
    """
    try:
        job.start()
    except NotStarted as error:
        # Treated as a failed job, so that the other nodes, which wait for this one, are told below.
        log.write_text(f"{error}\n", encoding="utf-8")
        now = time.time()
        code, began, ended = error.code, now, now
    else:
        wait(job, failed)
        code, began, ended = job.close()
    if code and failed is not None:
        mark_failed(failed, user)
    return code, began, ended


def unit_command(asked: dict[str, Any]) -> list[str]:
    """The command that starts the requested unit."""
    options = ["--quiet", f"--unit={asked['unit']}.service"]
    options += [f"--uid={asked['user']}"] if asked["user"] else []
    options += [f"--gid={asked['group']}"] if asked["group"] else []
    options += [f"--working-directory={asked['chdir']}"] if asked["chdir"] else []
    options += ["--remain-after-exit", "--property=Type=exec"]
    how, to = ("truncate", asked["output"]) if asked["output"] else ("append", asked["log"])
    outputs = [f"StandardOutput={how}:{to}", f"StandardError={how}:{asked['log']}"]
    options += [f"--property={each}" for each in [*asked["properties"], *outputs]]
    options += [f"--setenv={name}={value}" for name, value in asked["environment"].items()]
    # The service manager replaces $NAME and ${NAME} in arguments, and takes $$ for a $ (systemd.service(5)).
    return ["systemd-run", *options, *(each.replace("$", "$$") for each in asked["argv"])]


def write(path: Path, text: str) -> None:
    """Write a file that everyone may read, under a temporary name and then renamed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o644)
    draft.replace(path)


def perform(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the requested command; returns what the module returns.

    Raises:
        JobError: it is unknown how it ended.
        OSError: a file could not be written, or not by root.
        UnknownUser: there is no such user.
    """
    log, failed = Path(asked["log"]), Path(asked["failed"]) if asked["failed"] else None
    for path in filter(None, [asked["log"], asked["output"], asked["note"], *asked["files"]]):
        roots_directory(Path(path).parent)
    for path, text in asked["files"].items():
        write(Path(path), text)
    started_by = asked["argv"] if asked["container"] else unit_command(asked)
    job = Container(started_by, log) if asked["container"] else Unit(asked["unit"], started_by)
    code, began, ended = run(job, log, failed, asked["user"])
    command = started_by if asked["note_unit"] else asked["argv"]
    if asked["note"] and (code or asked["note_if"] == "ended"):
        note = {"stack": asked["stack"], "started": began, "ended": ended, "exit_code": code}
        note |= {"command": command, "nodes": asked["nodes"], "hosts": [os.uname().nodename]}
        write(Path(asked["note"]), json.dumps(note, indent=4) + "\n")
    return {"exit_code": code, "started": began, "ended": ended, "command": command, "limit": job.limit}


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
            "output": {"type": "path"},
            "failed": {"type": "path"},
            "note": {"type": "path"},
            "note_if": {"type": "str", "choices": ["ended", "failed"], "default": "ended"},
            "note_unit": {"type": "bool", "default": False},
            "stack": {"type": "str"},
            "nodes": strings,
        },
        required_if=[("container", False, ("unit",))],
        required_by={"failed": ("user",)},
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        module.exit_json(changed=True, **perform(module.params))
    except (JobError, UnknownUser, OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
