"""Action plugin: `python -m experiments` on the controller, showing its output line by line."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

ROOT = Path(__file__).resolve().parents[2]
# In the project's own environment, as with `make`.
START = 'e="$(requirements/bootstrap controller)" && exec "$e/bin/python" -m experiments "$@"'


class ActionModule(ActionBase):  # type: ignore[misc] # Ansible has no types
    """Runs one command of `experiments`, shows its output and passes signals on to it."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run it to its end."""
        super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            {
                "command": {"type": "str", "choices": ["plan", "run", "search"], "required": True},
                "matrix": {"type": "str"},  # of plan and run
                "record": {"type": "str"},  # of search
                "arguments": {"type": "str", "default": ""},
            },
            required_one_of=[("matrix", "record")],
        )
        about = asked["matrix"] or asked["record"]
        inventory = as_variable((task_vars or {}).get("ansible_inventory_sources") or [])
        code = follow(
            [asked["command"], about, *shlex.split(asked["arguments"])],
            {**os.environ, **({"ANSIBLE_INVENTORY": inventory} if inventory else {})},
        )
        return {
            "changed": asked["command"] != "plan",
            "failed": code != 0,
            "rc": code,
            "msg": f"python -m experiments {asked['command']} {about} ended with status {code}"
            + ("; the reason is above." if code else "."),
        }


def as_variable(sources: Sequence[str]) -> str:
    """The value of ANSIBLE_INVENTORY for a command whose working directory is the repository.

    Raises:
        AnsibleActionFail: an inventory outside the repository has a comma in its path, where Ansible would
            split the variable.
    """
    named = []
    for source in sources:
        path = Path(source)
        inside = path.is_absolute() and path.is_relative_to(ROOT)
        named.append(str(path.relative_to(ROOT)) if inside else source)
        if "," in named[-1] and path.exists():
            raise AnsibleActionFail(
                f"The inventory {source} has a comma in its path, at which Ansible splits it: move it."
            )
    return ",".join(named)


def follow(arguments: list[str], environment: dict[str, str]) -> int:
    """Run `experiments`, show its output, pass on signals and wait for its end; returns its exit code.

    Ansible ends its workers on a signal. This one stays until the command has ended what runs on the nodes.
    """
    process = subprocess.Popen(
        ["sh", "-c", START, "experiments", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    )

    passed: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        # Only the first: Ansible signals a worker several times, and a third signal would abort the cleanup.
        if not passed and process.poll() is None:
            passed.append(number)
            os.killpg(process.pid, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    shown = True
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if shown:
                shown = show(line.rstrip("\n"))
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show(line: str) -> bool:
    """Show a line through the main process; False if that is gone."""
    try:
        Display().display(line)
    except OSError:
        return False
    return True
