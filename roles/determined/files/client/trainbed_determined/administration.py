"""Prepares a fresh master for use: passwords, an ordinary user, agents that are all connected."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from determined.common.api import bindings
from determined.experimental import Determined
from determined.experimental.client import User

from trainbed_determined.master import Master, Refused

BUILT_IN: Final = ("admin", "determined")  # 0.38.1 creates both, with blank passwords unless it is given one
ASK_AGAIN_S: Final = 1.0


class AnotherPassword(Refused):
    """The administrator's password is neither ours nor blank."""


class AgentsMissing(Exception):
    """Agents or their slots are missing; the message is one sentence."""


@dataclass(frozen=True)
class Ordinary:
    """The user that owns the experiments and runs their tasks on the nodes."""

    name: str
    password: str
    uid: int
    group: str


def set_up_users(master: Master, admin_password: str, ordinary: Ordinary) -> bool:
    """Replace blank passwords and create the ordinary user; return whether anything was changed.

    Raises:
        AnotherPassword: the administrator's password is neither ours nor blank; nothing was changed.
    """
    changed = False
    if not master.enter("admin", admin_password):
        if not master.enter("admin", ""):
            raise AnotherPassword(
                "Determined's user admin has another password than the one in "
                f"{master.settings.password_file}. Write the right one into that file, or set the file's "
                "password in the database: make provision ARGS='-e determined_reset_password=true'."
            )
        _set_password(master, "admin", admin_password)
        changed = True
    for name in BUILT_IN[1:]:
        if master.enter(name, "") or master.enter(name, admin_password):
            # A fresh master gives it admin's password. Nobody needs this user: a random password locks it.
            _enter_as_admin(master, admin_password)
            _set_password(master, name, f"{secrets.token_urlsafe(24)}-Aa1")
            changed = True
    _enter_as_admin(master, admin_password)
    return _see_to(master, admin_password, ordinary) or changed


def _see_to(master: Master, admin_password: str, ordinary: Ordinary) -> bool:
    changed = False
    users = {user.username: user for user in master.ask("the users", lambda client: client.list_users())}
    if ordinary.name not in users:
        made = master.ask(
            f"the user {ordinary.name}",
            lambda client: client.create_user(ordinary.name, admin=False, password=ordinary.password),
        )
        users[ordinary.name] = made
        changed = True
    user = users[ordinary.name]
    if (user.agent_uid, user.agent_gid) != (ordinary.uid, ordinary.uid):
        master.ask(
            f"to run the tasks of {ordinary.name} as uid {ordinary.uid}", lambda _: _link(user, ordinary)
        )
        changed = True
    if not master.enter(ordinary.name, ordinary.password):
        _enter_as_admin(master, admin_password)
        _set_password(master, ordinary.name, ordinary.password)
        changed = True
    return changed


def _link(user: User, ordinary: Ordinary) -> None:
    user.link_with_agent(
        agent_uid=ordinary.uid, agent_gid=ordinary.uid, agent_user=ordinary.name, agent_group=ordinary.group
    )


def _set_password(master: Master, name: str, password: str) -> None:
    master.ask(
        f"a password for {name}", lambda client: client.get_user_by_name(name).change_password(password)
    )


def _enter_as_admin(master: Master, password: str) -> None:
    if not master.enter("admin", password):
        raise Refused("Determined accepted the login of its user admin a moment ago, but no longer does.")


def wait_for_agents(
    master: Master, wanted: Mapping[str, int], patience_s: float, say: Callable[[str], None]
) -> None:
    """Wait until every agent offers its slots.

    Args:
        master: the master that the agents belong to.
        wanted: slots of each agent, by its id.
        patience_s: how long to wait.
        say: shows what is still missing.

    Raises:
        AgentsMissing: some did not offer them in time.
    """
    since, said = time.monotonic(), ""
    while True:
        offered = master.ask("the agents", slots_of_agents)
        missing = [
            f"{agent} offers {offered.get(agent, 0)} of {slots} slots"
            if agent in offered
            else f"{agent} is not there"
            for agent, slots in sorted(wanted.items())
            if offered.get(agent, 0) < slots
        ]
        if not missing:
            return
        text = "; ".join(missing)
        if text != said:
            said = text
            say(f"Waiting for agents: {text}.")
        if time.monotonic() - since > patience_s:
            raise AgentsMissing(
                f"After {patience_s:.0f} s: {text}. See `journalctl -u determined-agent` on these nodes."
            )
        time.sleep(ASK_AGAIN_S)


def slots_of_agents(client: Determined) -> dict[str, int]:
    """Enabled slots of every agent that is connected and enabled, by its id."""
    agents = bindings.get_GetAgents(client._session).agents
    return {
        agent.id: sum(1 for slot in (agent.slots or {}).values() if slot.enabled)
        for agent in agents
        if agent.enabled
    }
