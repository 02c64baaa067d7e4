"""Filters: preflight's decisions about room, memory, ports, clocks and users, as sentences."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ansible.errors import AnsibleFilterError

#: What Ansible says before it says what happened.
FIRST_WORDS = re.compile(r"^(Task failed: )?(Data could not be sent .* over ssh: )?")
LOOPBACK = ("127.", "::1")
#: Log drivers whose logs the engine can read back, which is how a run's log is fetched.
READABLE_LOGS = ("json-file", "local", "journald")
#: Why a stack is not there, for plans and `make status`.
TAKEN_OUT = "It was taken out of the cluster (make uninstall); make provision installs it again."
PLAIN_NAME = r"[\w.:\[\]%][\w.:\[\]%-]*[$]?"
PLAIN_JUMP = r"(-J ?|-o ?ProxyJump=)[\w\[][\w.:\[\]@,-]*"


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def applies(entry: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether the variable on which a need depends, if it names one, is true."""
    return "when" not in entry or str(values.get(entry["when"], "")).lower() in ("true", "yes", "1")


def megabytes(entry: Mapping[str, Any], variant: str) -> int:
    """Room in MB that an entry needs with this variant of the environment; any but `cpu` is CUDA's."""
    size = entry["mb"]
    return int(size["cpu" if variant == "cpu" else "cuda"] if isinstance(size, Mapping) else size)


def sum_of(parts: Sequence[tuple[int, str]]) -> int:
    """What these parts need together."""
    return sum(need for need, _ in parts)


def preflight_room(
    declared: Mapping[str, Any], values: Mapping[str, Any], variant: str, there: str = ""
) -> list[dict[str, Any]]:
    """What is needed on disks, after the inventory's own paths.

    Args:
        declared: from the lookup declared_needs.
        values: of the variables that it names.
        variant: of the environment; empty if the GPUs will decide.
        there: the variant that the cluster has; empty for none.

    Returns:
        Dicts with path, mb, for, done (files), and beside (MB of another variant's that is there, or None).
    """
    # The GPUs decide only where there are some, so it is not the CPU's.
    other = bool(there) and (variant != there if variant else there == "cpu")
    return [
        {
            "path": str(values.get(entry.get("path_of", ""), "") or entry["path"]),
            "mb": megabytes(entry, variant),
            "for": entry["for"],
            "done": [entry["done"]] if isinstance(entry.get("done"), str) else entry.get("done", []),
            "beside": megabytes(entry, there) if other and isinstance(entry["mb"], Mapping) else None,
        }
        for entry in declared["disk"]
        if applies(entry, values)
    ]


def preflight_disks(
    survey: Mapping[str, Any], room: Sequence[Mapping[str, Any]], host: str, spare: int
) -> list[str]:
    """A sentence for each file system of a node that has too little room.

    A node is not refused for what was installed on it: what a path holds already counts towards its need, or,
    where others put things there, too, one of some files that show that the need is met. Another variant of
    the environment comes beside the one that is there.

    Args:
        survey: the node's, from the module node_survey.
        room: what is needed, in MB by path.
        host: name of the node.
        spare: MB that must be left on each file system.
    """
    said = []
    for system in survey["systems"]:
        held = dict(survey["sizes"])
        needs = []
        for entry in room:
            unmet = entry["beside"] is not None or not set(entry["done"]) & set(survey["there"])
            if entry["path"] in system["paths"] and unmet:
                counted = 0 if entry["done"] else held.get(entry["path"], 0) - (entry["beside"] or 0)
                there = max(0, min(entry["mb"], counted))
                held[entry["path"]] = held.get(entry["path"], 0) - there
                if entry["mb"] > there:
                    needs.append((entry["mb"] - there, entry))
        wanted = sum(mb for mb, _ in needs) + spare
        if system["free_mb"] < wanted:
            parts = [
                f"{mb} for {entry['for']} in {survey['moved'].get(entry['path'], entry['path'])}"
                for mb, entry in sorted(needs, key=lambda n: -n[0])
            ]
            said.append(
                f"{host} has {system['free_mb']} MB free on {system['mount']}, and needs {wanted}: "
                f"{', '.join([*parts, f'{spare} to spare'])}. Make room there, or lower "
                "preflight_spare_disk_mb (it may be negative) if you know better."
            )
    return said


def preflight_engine(survey: Mapping[str, Any], host: str) -> list[str]:
    """A sentence for each setting of a Docker engine that was there before with which runs could not be.

    Args:
        survey: the node's, from the module node_survey.
        host: name of the node.
    """
    found, file = survey["engine"], f"On {host}, /etc/docker/daemon.json"
    said = []
    if found.get("trouble"):
        said.append(f"{file} can't be read ({found['trouble']}): correct or remove it.")
    if (driver := found.get("log-driver", "json-file")) not in READABLE_LOGS:
        said.append(
            f"{file} has the log driver {driver}, whose logs can't be read back: set log-driver there to "
            f"one of {', '.join(READABLE_LOGS)}."
        )
    if users := found.get("userns-remap"):
        said.append(
            f"{file} has userns-remap ({users}), so that containers could not write as the training user: "
            "remove it, or take another machine."
        )
    return said


def preflight_memory(
    declared: Mapping[str, Any], values: Mapping[str, Any], host: str, there: int, slots: int, spare: int
) -> list[str]:
    """A sentence if a node has too little memory for what always runs and the largest run of any stack.

    Args:
        declared: from the lookup declared_needs.
        values: of the variables that it names.
        host: name of the node.
        there: its memory in MB.
        slots: ranks of a run on each worker.
        spare: MB that must be left.
    """
    always: list[tuple[int, str]] = []
    runs: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)  # by stack: one runs at a time
    for entry in declared["memory"]:
        if applies(entry, values):
            need = int(entry["mb"]) + int(entry.get("mb_per_slot", 0)) * slots
            (runs[entry["role"]] if entry.get("during") == "run" else always).append((need, entry["for"]))
    parts = [*always, *max(runs.values(), key=sum_of, default=[])]
    wanted = sum_of(parts) + spare
    if there >= wanted:
        return []
    shown = ", ".join(f"{need} for {what}" for need, what in sorted(parts, reverse=True))
    return [
        f"{host} has {there} MB of memory, and needs {wanted}: {shown}, {spare} to spare. Give it more, "
        "or lower preflight_spare_memory_mb (it may be negative) if you know better."
    ]


def preflight_ports(
    survey: Mapping[str, Any], declared: Mapping[str, Any], values: Mapping[str, Any], host: str
) -> list[str]:
    """A sentence for each port that another program listens on already."""
    said = []
    for entry in declared["ports"]:
        moved = [
            number for name, number in entry.get("moved_by", {}).items() if applies({"when": name}, values)
        ]
        number = moved[0] if moved else values.get(entry["port"], "") or entry["default"]
        if not str(number).isdigit():  # a template that only the role can resolve
            continue
        others = [
            each
            for each in survey["listeners"]
            if each["port"] == int(number)
            and (entry.get("local") or not each["address"].startswith(LOOPBACK))
            and each["unit"].partition("@")[0]
            not in {name.removesuffix(".service") for name in entry["services"]}
            # systemd's own: a socket unit, as packages bring them and roles disable them.
            and each["pid"] != 1
        ]
        for other in others[:1]:
            by = f"{other['program']} (process {other['pid']}" if other["program"] else "a program (unknown"
            by += f", {other['unit']}.service)" if other["unit"] else ")"
            said.append(
                f"{host}: port {number}, which {entry['role']} needs, is taken by {by}: stop that, or set "
                f"{entry['port']} to another port."
            )
    return said


def preflight_users(survey: Mapping[str, Any], host: str, user: str, uid: int) -> list[str]:
    """A sentence for each number or name of the training user that is taken on a node."""
    said = []
    for kind, short, found in (("user", "uid", survey["uid_of"]), ("group", "gid", survey["gid_of"])):
        if found["holder"] not in (None, user):
            said.append(
                f"{host}: the {short} {uid} belongs to the {kind} {found['holder']}: set trainbed_uid to a "
                "number that no node uses yet, as user or as group."
            )
        elif found["own"] not in (None, uid):
            said.append(
                f"{host}: its {kind} {user} has the {short} {found['own']}, not {uid}: set trainbed_uid to "
                f"{found['own']} if all nodes have it so, or trainbed_user to another name."
            )
    return said


def preflight_clocks(
    times: Mapping[str, float], begun: Mapping[str, float], ended: float, allowed: float
) -> list[str]:
    """A sentence if clocks differ by more than `allowed` seconds, whatever the readings' delays.

    Args:
        times: each node's clock.
        begun: the controller's clock before each reading.
        ended: the controller's clock after all of them.
        allowed: seconds.
    """
    if not times:
        return []
    # How far a node is ahead of the controller, at least and at most.
    least = {host: time - ended for host, time in times.items()}
    most = {host: time - begun[host] for host, time in times.items()}
    fast, slow = max(least, key=lambda host: least[host]), min(most, key=lambda host: most[host])
    apart = least[fast] - most[slow]
    if apart <= allowed:
        return []
    return [
        f"The clock of {fast} is at least {apart:.0f} s ahead of that of {slow}, and base_time_sync is "
        "false: set the clocks right, or let provisioning synchronise them (base_time_sync: true)."
    ]


def preflight_machine_ids(ids: Mapping[str, str]) -> list[str]:
    """A sentence for the nodes that have the same machine-id."""
    hosts: defaultdict[str, list[str]] = defaultdict(list)
    for host, identity in ids.items():
        if identity and identity != "NA":
            hosts[identity].append(host)
    return [
        f"{listed(same)} have the same machine-id, as copies of one machine do: on all but one, run "
        "`rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup`, and reboot."
        for same in hosts.values()
        if len(same) > 1
    ]


def preflight_said(message: str) -> str:
    """What Ansible says of a node that did not answer, on one line and without its first words."""
    return FIRST_WORDS.sub("", " ".join(str(message).split()))


def preflight_no_answer(asked: Sequence[Any]) -> str:
    """Why a node can't be used, in one sentence.

    Args:
        asked: the result of `ansible.builtin.ping` with sudo, and the name of the node.
    """
    result, host = asked
    said = preflight_said(result.get("msg", ""))
    if result.get("unreachable"):
        return (
            f"{host} cannot be reached ({said or 'no answer'}): check that it is switched on, that its "
            "address in the inventory is right, and that ssh to it works with the inventory's key and user."
        )
    if "Missing sudo password" in said or "password is required" in said:
        return (
            f"{host}: sudo asks for a password, and none was given: set ansible_become_password in the "
            "inventory (with ansible-vault, whose own password is in the file that "
            "ANSIBLE_VAULT_PASSWORD_FILE names); ARGS=--ask-become-pass serves make provision alone."
        )
    if "Incorrect sudo password" in said or "incorrect password" in said:
        return (
            f"{host}: sudo refused the given password: correct it, or give this node an "
            "ansible_become_password of its own."
        )
    if "escalation prompt" in said:
        return f"{host}: sudo did not answer in time; try `sudo true` there as the inventory's user ({said})."
    if "python" in said and ("not found" in said or "No such file" in said):
        return f"{host} has no python3: install the package python3 there."
    return (
        f"{host}: a command with sudo failed there: {said or result.get('module_stderr', 'it said nothing')}"
    )


def preflight_proxies(
    survey: Mapping[str, Any], login: str, root: Mapping[str, str], host: str, own: str
) -> list[str]:
    """A sentence if the master's proxy is known only to apt, or only to the user who logs in.

    Args:
        survey: the master's.
        login: output of `env` as that user.
        root: the environment under sudo, which fetches wheels and packages.
        host: name of the master.
        own: start of the address of trainbed's own package cache.
    """
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    if any(root.get(name) for name in names):
        return []
    of_login = dict(line.partition("=")[::2] for line in login.splitlines())
    apt = str(survey["apt_proxy"])
    user = next((of_login[name] for name in names if of_login.get(name)), "")
    known = (
        "only to apt" if apt and not apt.startswith(own) else "only to the user who logs in (sudo drops it)"
    )
    proxy = apt if apt and not apt.startswith(own) else user
    if not proxy:
        return []
    scheme, _, rest = proxy.rpartition("//")
    shown = f"{scheme}//{rest.rpartition('@')[2]}" if scheme else rest.rpartition("@")[2]
    return [
        f"{host}: the proxy {shown} is known {known}, so wheels and packages would be fetched without it: "
        "put http_proxy and https_proxy into /etc/environment there, and into /etc/sudoers.d/proxy `Defaults "
        'env_keep += "http_proxy https_proxy no_proxy"`; or, if the master gets out without a proxy, set '
        "artifacts_upstream_proxy: ''."
    ]


def preflight_if_address(item: Mapping[str, Any], hostvars: Mapping[str, Any]) -> str:
    """The name of a noted member (an item of a dict) if it has the same address now; empty otherwise."""
    name = str(item["key"])
    return name if hostvars[name]["cluster_address"] == item["value"]["address"] else ""


def preflight_members(hosts: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the master notes of the members, by name: how they are recognised and reached, groups, cores."""
    found = {}
    for host in hosts:
        variables = hostvars[host]
        facts, way = variables.get("ansible_facts", {}), variables.get("preflight_way", {})
        identity = str(facts.get("machine_id", ""))
        found[host] = {
            "address": str(variables["cluster_address"]),
            "host": str(variables.get("ansible_host", host)),
            "port": int(way.get("port", 0)),
            "user": str(variables.get("ansible_user", "")),
            "ssh_args": str(way.get("ssh_args", "")),
            "key": str(way.get("key", "")),
            "cores": int(facts.get("processor_nproc", 0)),
            "machine_id": "" if identity == "NA" else identity,
            "groups": sorted(set(variables["group_names"]) & {"master", "workers"}),
        }
    return found


def preflight_without(noted: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """What the master noted, without a stack that was taken out of the cluster."""
    if stack not in noted["stacks"]:
        return dict(noted)
    return {
        **noted,
        "stacks": [each for each in noted["stacks"] if each != stack],
        "left_out": {**noted["left_out"], stack: TAKEN_OUT},
    }


def is_same(name: str, old: Mapping[str, Any], other: str, new: Mapping[str, Any]) -> bool:
    """Whether a noted member is this one of today: the same machine, or what has taken its address."""
    if old["address"] == new["address"]:
        return True
    if old["machine_id"] and new["machine_id"]:
        return bool(old["machine_id"] == new["machine_id"])
    return name == other


def checked(name: str, reached: Mapping[str, Any], trusted: Set[str | None]) -> dict[str, Any]:
    """How a member that left was reached, without what could start a program on the controller.

    The note lies on the master, and whoever is root there may have changed it.

    Args:
        name: of the member.
        reached: what the note says.
        trusted: arguments for ssh that the inventory gives to a member of today.

    Raises:
        AnsibleFilterError: host or user is no such name.
    """
    for key in ("host", "user"):
        if not re.fullmatch(PLAIN_NAME, reached[key] or "x"):
            raise AnsibleFilterError(
                f"The master's /etc/trainbed/cluster.json says that {name}, which left the cluster, has "
                f"the {key} {reached[key]!r}, and that is none: correct the file, or take {name} out of it."
            )
    arguments = reached["ssh_args"]
    kept = arguments in trusted or re.fullmatch(PLAIN_JUMP, arguments)
    return {**reached, "ssh_args": arguments if kept else ""}


def preflight_left(
    noted: Mapping[str, Mapping[str, Any]], members: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Whose services must be stopped: members that are none any more, and groups that members left.

    Returns:
        Dicts with the name, the `groups` that it left, those that it `keeps`, and `host`, `port`, `user`,
        `ssh_args`, `key` and `machine_id` of a machine that is no longer in the inventory; of one that is,
        they are empty, and `name` is today's.
    """
    here = {"host": "", "port": 0, "user": "", "ssh_args": "", "key": "", "machine_id": ""}
    found: list[dict[str, Any]] = []
    for name, old in noted.items():
        now = [other for other, new in members.items() if is_same(name, old, other, new)]
        if not now:
            reached = {key: old.get(key, usual) for key, usual in here.items()}
            way = checked(name, reached, {new.get("ssh_args") for new in members.values()})
            found.append({"name": name, "groups": old["groups"], "keeps": [], **way})
            continue
        keeps = members[now[0]]["groups"]
        if lost := [group for group in old["groups"] if group not in keeps]:
            found.append({"name": now[0], "groups": lost, "keeps": keeps, **here})
    return found


def preflight_changes(
    noted: Mapping[str, Mapping[str, Any]], members: Mapping[str, Mapping[str, Any]], partial: bool
) -> list[str]:
    """What has changed since the master noted its members, a sentence each.

    Args:
        noted: what the master noted of its members.
        members: those of today.
        partial: whether only a part is provisioned, so that nothing is retired.
    """
    said = []
    for left in preflight_left(noted, members):
        what = f"in {listed(left['groups'])} " if left["keeps"] else ""
        will = (
            "the next whole provisioning retires it"
            if partial
            else "its services will be stopped and disabled"
        )
        said.append(f"{left['name']} is no longer {what or 'in the inventory '}of this cluster: {will}.")
    for name, old in noted.items():
        for other, new in members.items():
            if is_same(name, old, other, new):
                if other != name:
                    said.append(f"{name} is now called {other}.")
                if old["address"] != new["address"]:
                    said.append(f"{other} has moved from {old['address']} to {new['address']}.")
    return said


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """All filters by name."""
        return {
            function.__name__: function
            for function in (
                preflight_no_answer,
                preflight_changes,
                preflight_clocks,
                preflight_disks,
                preflight_engine,
                preflight_if_address,
                preflight_left,
                preflight_machine_ids,
                preflight_members,
                preflight_memory,
                preflight_ports,
                preflight_proxies,
                preflight_room,
                preflight_said,
                preflight_users,
                preflight_without,
            )
        }
