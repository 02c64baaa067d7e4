"""What keeps a command running when its terminal and its login are gone: systemd, or else tmux."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from experiments.util.errors import UserError

# A stop must reach the command alone, which ends its playbooks itself; what it leaves is killed at last.
# Ending a run on nodes that do not answer takes minutes. A process that lacked memory ends its task and not
# the whole command, as on a terminal.
PROPERTIES: Final = ("Type=exec", "KillMode=mixed", "TimeoutStopSec=10min", "OOMPolicy=continue")
# When the machine shuts down, the command ends while it can still reach the nodes.
ORDER: Final = "After=network-online.target docker.service"
ENDS_AT_LOGOUT: Final = (
    "Lingering is off for you: this unit ends when you log out, unless you call `loginctl enable-linger`."
)
NO_UNIT: Final = (
    "Lingering is off for you, so a systemd unit of yours would end at logout: tmux keeps it instead "
    "(`loginctl enable-linger` allows a unit)."
)


@dataclass(frozen=True)
class Keeper:
    """Something that keeps a command running, under a name."""

    what: str  # such as `the systemd unit NAME`
    start: tuple[str, ...]  # starts the command that follows it
    look: tuple[str, ...]  # succeeds while that command is kept
    stop: str  # what a person types
    remark: str = ""  # what people must know about it

    def run(self, command: Sequence[str]) -> None:
        """Starts `command`, and returns at once.

        Raises:
            UserError: it could not be started.
        """
        done = _call(*self.start, *command)
        if done.returncode != 0:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            raise UserError(f"{self.what} was not started; {self.start[0]} says: {said}")

    @property
    def keeps(self) -> bool:
        """Whether it is still there."""
        return _call(*self.look).returncode == 0


def find_keeper(name: str, user: int) -> Keeper:
    """What can keep a command running here for the user with this number; it gets the name `name`.

    For root a unit of the system's manager. For others one of their own, if lingering is on for them: it ends
    at logout otherwise, and a tmux session is better, unless logging out ends that, too.

    Raises:
        UserError: there is neither systemd nor tmux.
    """
    unit = _unit(name, () if user == 0 else ("--user",))
    session = _session(name) if shutil.which("tmux") else None
    if unit is not None and (user == 0 or _asked("show-user", str(user), "--property=Linger") == "yes"):
        return unit
    if unit is not None and (session is None or _asked("show-user", "--property=KillUserProcesses") == "yes"):
        return replace(unit, remark=ENDS_AT_LOGOUT)
    if session is None:
        raise UserError(
            "Nothing on this machine can keep a command running after logout: systemd does not answer, and "
            "there is no tmux. Install tmux (apt-get install tmux), or leave out --detach (DETACH=1)."
        )
    return session if unit is None else replace(session, remark=NO_UNIT)


def _unit(name: str, manager: tuple[str, ...]) -> Keeper | None:
    if not all(map(shutil.which, ("systemd-run", "systemctl"))):
        return None
    # The question that a manager that can't be used does not answer.
    if _call("systemctl", *manager, "show", "--property=Version").returncode != 0:
        return None
    properties = (*PROPERTIES, *(() if manager else (ORDER,)))
    return Keeper(
        what=f"the systemd unit {name}",
        start=(
            *("systemd-run", *manager, "--quiet", "--collect", f"--unit={name}.service"),
            *(f"--property={each}" for each in properties),
        ),
        look=("systemctl", *manager, "--quiet", "is-active", f"{name}.service"),
        stop=" ".join(("systemctl", *manager, "stop", name)),
    )


def _session(name: str) -> Keeper:
    # A server of its own: what users set for theirs (remain-on-exit, say) does not matter here.
    tmux = ("tmux", "-L", "trainbed", "-f", "/dev/null")
    return Keeper(
        what=f"the tmux session {name}",
        start=(*tmux, "new-session", "-d", "-s", name),
        look=(*tmux, "has-session", "-t", f"={name}"),
        stop=f"tmux -L trainbed kill-session -t {name}",
    )


def _asked(*question: str) -> str:
    """What logind answers; "" if it does not, as for a user whom it does not know."""
    return _call("loginctl", *question, "--value").stdout.strip() if shutil.which("loginctl") else ""


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
