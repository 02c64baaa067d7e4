"""Preflight's decisions about room, memory, ports, clocks and users, and what it reads of a node."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader

from tests.unit.roles.loading import ROOT, call, load, value_of

decisions = load("roles/preflight/filter_plugins/preflight.py")
declared_needs = load("roles/preflight/lookup_plugins/declared_needs.py")
unknown_variables = load("roles/preflight/lookup_plugins/unknown_variables.py")
node_survey = load("roles/preflight/library/node_survey.py")

#: That a cluster has unless its inventory asks for more; docs/admin.md adds up what they need.
STACKS = ["ddp", "determined", "spark"]
GROUPS = {
    "master": ["cluster", "master"],
    "worker": ["cluster", "workers"],
    "both": ["cluster", "master", "workers"],
}
#: Mount points of a machine with one disk, of one whose /var is apart, and of one whose Docker is.
PLAIN, VAR, DOCKER = ["/"], ["/", "/var"], ["/", "/var/lib/docker"]


def needs(node: str, *stacks: str) -> dict[str, Any]:
    """What is declared for a node of this kind."""
    variables = {"playbook_dir": str(ROOT / "playbooks")}
    (found,) = declared_needs.LookupModule(loader=DataLoader()).run(
        list(stacks or STACKS), variables, groups=GROUPS[node]
    )
    result: dict[str, Any] = found
    return result


def survey(
    room: list[dict[str, Any]], mounts: list[str], free: dict[str, int], **more: Any
) -> dict[str, Any]:
    """A node whose file systems are mounted there, with so much free space in MB."""

    def mount(path: str) -> str:
        return max((each for each in mounts if f"{path}/".startswith(each.rstrip("/") + "/")), key=len)

    found: dict[str, Any] = {}
    for entry in room:
        found.setdefault(mount(entry["path"]), set()).add(entry["path"])
    systems = [{"mount": at, "free_mb": free[at], "paths": sorted(paths)} for at, paths in found.items()]
    return {"systems": systems, "sizes": {}, "there": [], "moved": {}, **more}


def filled(room: list[dict[str, Any]]) -> dict[str, int]:
    """MB by path where every need is met."""
    return {entry["path"]: sum(e["mb"] for e in room if e["path"] == entry["path"]) for entry in room}


def wanted(node: str, variant: str, mounts: list[str], spare: int = 1000, **values: Any) -> dict[str, int]:
    """MB that a fresh node needs, by mount point, by preflight's own sentences."""
    room = decisions.preflight_room(needs(node), values, variant)
    said = decisions.preflight_disks(survey(room, mounts, dict.fromkeys(mounts, 0)), room, "n", spare)
    found = [re.match(r"n has 0 MB free on (\S+), and needs (\d+): ", each) for each in said]
    return {match[1]: int(match[2]) for match in found if match}


@pytest.mark.parametrize("mounts", [PLAIN, VAR, DOCKER])
@pytest.mark.parametrize("variant", ["cpu", "cu126"])
@pytest.mark.parametrize("node", GROUPS)
def test_each_file_system_is_refused_with_one_gigabyte_less_than_its_paths_need(
    node: str, variant: str, mounts: list[str]
) -> None:
    room = decisions.preflight_room(needs(node), {}, variant)
    least = wanted(node, variant, mounts)
    assert set(least) == set(mounts)
    assert decisions.preflight_disks(survey(room, mounts, least), room, "n", 1000) == []
    for mount in mounts:
        (said,) = decisions.preflight_disks(
            survey(room, mounts, least | {mount: least[mount] - 1000}), room, "n", 1000
        )
        assert said.startswith(f"n has {least[mount] - 1000} MB free on {mount}, and needs {least[mount]}: ")
        if mount in ("/var", "/var/lib/docker"):
            assert f"{2900 if variant == 'cpu' else 6600} for the image in /var/lib/docker" in said
    # What is needed does not depend on how the disk is divided, but for what is spared.
    assert sum(least.values()) - 1000 * len(mounts) == wanted(node, variant, PLAIN)["/"] - 1000


def test_cuda_needs_what_was_measured() -> None:
    sizes = {entry["for"]: entry["mb"] for entry in decisions.preflight_room(needs("both"), {}, "cu130")}
    assert [
        sizes[f"the {what}"] for what in ("locked environment", "image", "registry", "environment's wheels")
    ] == [6300, 6600, 3600, 3600]
    # The dissertation's machines have 64 GB of disk and 32 GB of memory; one was the master.
    assert wanted("both", "cu126", PLAIN, nvidia_wanted=True)["/"] < 45000


@pytest.mark.parametrize(
    ("node", "words"), [("master", "master"), ("worker", "worker"), ("both", "master and worker")]
)
def test_the_docs_have_what_is_needed_in_total(node: str, words: str) -> None:
    disks = [
        wanted(node, variant, PLAIN, nvidia_wanted=variant != "cpu")["/"] for variant in ("cpu", "cu126")
    ]
    (said,) = decisions.preflight_memory(needs(node), {}, "n", 0, 1, 0)
    memory = re.findall(r"needs (\d+):", said)[0]
    row = f"| {words} | {disks[0]} | {disks[1]} | {memory} |\n"
    assert row in (ROOT / "docs/admin.md").read_text(encoding="utf-8"), row


def test_what_a_node_holds_already_is_not_asked_for_again() -> None:
    room = decisions.preflight_room(needs("worker"), {}, "cpu")
    held = filled(room)
    marks = [mark for entry in room for mark in entry["done"]]
    full = survey(room, PLAIN, {"/": 1000}, sizes=held, there=marks)
    assert decisions.preflight_disks(full, room, "n", 1000) == []
    held["/opt/trainbed/env"] -= 300  # half installed
    (said,) = decisions.preflight_disks(
        survey(room, PLAIN, {"/": 1000}, sizes=held, there=marks), room, "n", 1000
    )
    assert "needs 1300: 300 for the locked environment in /opt/trainbed/env, 1000 to spare" in said


@pytest.mark.parametrize(
    ("there", "variant", "needed"),
    [
        ("cpu", "cu130", 6300 + 6600),
        ("cpu", "", 6300 + 6600),  # the GPUs decide, and it won't be this one
        ("cu130", "cpu", 2500 + 2900),
        ("cu130", "cu130", 0),
        ("cu126", "", 0),
        ("", "cu130", 0),
    ],
)
def test_another_variant_comes_beside_the_one_that_is_there(there: str, variant: str, needed: int) -> None:
    room = decisions.preflight_room(needs("worker"), {}, variant, there)
    before = decisions.preflight_room(needs("worker"), {}, there or variant, there)
    held = filled(before)
    marks = [mark for entry in room for mark in entry["done"]]
    full = survey(room, PLAIN, {"/": 0}, sizes=held, there=marks)
    said = decisions.preflight_disks(full, room, "n", 0)
    assert [re.findall(r"and needs (\d+): ", each) for each in said] == ([[str(needed)]] if needed else [])
    if needed:
        # What a try that failed has installed of the other one counts.
        held["/opt/trainbed/env"] += 1000
        full = survey(room, PLAIN, {"/": needed - 1000}, sizes=held, there=marks)
        assert decisions.preflight_disks(full, room, "n", 0) == []


def test_what_others_put_beside_it_does_not_count() -> None:
    room = decisions.preflight_room(needs("worker"), {}, "cpu")
    least = wanted("worker", "cpu", PLAIN)["/"]
    free = {"/": least - 1000}
    assert decisions.preflight_disks(survey(room, PLAIN, free, sizes={"/usr": 3000}), room, "n", 1000)
    marks = [mark for entry in room for mark in entry["done"]]
    assert len(marks) >= 4 and all(entry["done"] for entry in room if entry["path"] == "/usr")
    (said,) = decisions.preflight_disks(survey(room, PLAIN, {"/": 0}, there=marks), room, "n", 1000)
    assert "/usr" not in said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, []),
        ('{"log-driver": "local", "dns": ["192.0.2.1"]}', []),
        ("{,}", [r"On n, .*daemon.json can't be read \(Expecting .*\): correct or remove it\."]),
        ("[]", [r"can't be read \(it is not an object\)"]),
        ('{"log-driver": "syslog"}', ["has the log driver syslog, .* one of json-file, local, journald"]),
        ('{"userns-remap": "default"}', [r"has userns-remap \(default\), .*: remove it"]),
    ],
)
def test_settings_of_an_engine_that_runs_could_not_bear(
    tmp_path: Path, written: str | None, said: list[str]
) -> None:
    file = tmp_path / "daemon.json"
    if written is not None:
        file.write_text(written, encoding="utf-8")
    sentences = decisions.preflight_engine({"engine": node_survey.engine(file)}, "n")
    assert len(sentences) == len(said)
    assert all(re.search(start, sentence) for start, sentence in zip(said, sentences, strict=True))


def test_room_is_looked_for_where_the_engine_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, root = tmp_path / "daemon.json", tmp_path / "elsewhere"
    root.mkdir()
    file.write_text(json.dumps({"data-root": str(root)}), encoding="utf-8")
    monkeypatch.setattr(node_survey, "DAEMON", file)
    asked = [{"path": "/var/lib/docker", "mb": 1 << 40}]
    found = call(node_survey, room=asked, user="nobody", uid=0)
    assert found["systems"][0]["mount"] == node_survey.mount_point(root)
    room = [{**asked[0], "for": "the image", "done": [], "beside": None}]
    (said,) = decisions.preflight_disks(found, room, "n", 0)
    assert f"for the image in {root}, " in said


def test_paths_are_those_of_the_inventory() -> None:
    room = decisions.preflight_room(needs("worker"), {"data_root": "/scratch/data"}, "cpu")
    assert [entry["path"] for entry in room if entry["for"] == "data sets"] == ["/scratch/data"]
    drivers = [
        decisions.preflight_room(needs("worker"), {"nvidia_wanted": on}, "cpu") for on in (True, False)
    ]
    assert len(drivers[0]) == len(drivers[1]) + 1


@pytest.mark.parametrize("node", GROUPS)
@pytest.mark.parametrize("slots", [1, 4])
def test_memory_is_for_what_always_runs_and_the_largest_run(node: str, slots: int) -> None:
    declared = needs(node)
    (said,) = decisions.preflight_memory(declared, {}, "n", 0, slots, 0)
    least = int(re.findall(r"needs (\d+):", said)[0])
    assert decisions.preflight_memory(declared, {}, "n", least, slots, 0) == []
    assert decisions.preflight_memory(declared, {}, "n", least - 1, slots, 0)
    assert decisions.preflight_memory(declared, {}, "n", least - 1, slots, -1) == []
    assert said.count("the driver of") == (node != "worker") and said.count("an executor of") == (
        node != "master"
    )
    assert "a run of DDP" not in said  # another stack's is larger
    assert least < 32000 * slots
    fewer = decisions.preflight_memory(needs(node, STACKS[0]), {}, "n", 0, slots, 0)
    assert int(re.findall(r"needs (\d+):", fewer[0])[0]) < least


def listener(port: int, unit: str = "", address: str = "0.0.0.0", program: str = "java") -> dict[str, Any]:
    return {"port": port, "address": address, "program": program, "pid": 42, "unit": unit}


@pytest.mark.parametrize(
    ("there", "values", "said"),
    [
        (listener(8070), {}, "port 8070, which artifacts needs, is taken by java (process 42): stop that"),
        (listener(8070, "nginx"), {}, ""),
        (listener(8070, "nginx"), {"artifacts_port": 8090}, ""),
        (listener(8090, "tomcat10"), {"artifacts_port": 8090}, "by java (process 42, tomcat10.service)"),
        (listener(3142, "apt-cacher-ng"), {}, "is taken by java (process 42, apt-cacher-ng.service)"),
        (listener(5000, program=""), {}, "which registry needs, is taken by a program (unknown)"),
        (listener(7077), {}, "port 7077, which spark needs"),
        (listener(7077, "spark-master"), {}, ""),
        (listener(7077, address="127.0.0.1"), {}, ""),
        (listener(8080), {}, "java (process 42): stop that, or set determined_port"),
        (listener(8080), {"determined_tls": True}, ""),
        (listener(8443), {"determined_tls": "true"}, "port 8443, which determined needs"),
        (listener(5432, "postgresql@15-main", "127.0.0.1"), {}, ""),
        (listener(5432, "mysql", "127.0.0.1"), {}, "port 5432, which determined needs"),
        (listener(22, "ssh"), {}, ""),
    ],
)  # fmt: skip
def test_ports_that_others_listen_on_are_named_with_who_it_is(
    there: dict[str, Any], values: dict[str, Any], said: str
) -> None:
    found = decisions.preflight_ports({"listeners": [there]}, needs("master"), values, "m")
    assert bool(found) == bool(said) and len(found) <= 1
    assert all(each.startswith("m: ") and said in each for each in found), found


def test_a_socket_of_systemd_is_nobodys() -> None:
    waiting = {**listener(8080, program="systemd"), "pid": 1}
    assert decisions.preflight_ports({"listeners": [waiting]}, needs("master"), {}, "m") == []


def test_the_unit_of_a_process_is_its_innermost_service(monkeypatch: pytest.MonkeyPatch) -> None:
    v1 = "2:pids:/docker/1f/system.slice/nginx.service\n1:name=systemd:/docker/1f/init.scope\n0::/\n"
    v2 = "0::/system.slice/docker-1f.scope/system.slice/system-postgresql.slice/postgresql@15-main.service\n"
    texts = {"/proc/1/cgroup": v1, "/proc/2/cgroup": v2, "/proc/3/cgroup": "0::/user.slice/session-1.scope\n"}
    monkeypatch.setattr(node_survey.Path, "read_text", lambda path, **_: texts[str(path)])
    assert [node_survey.unit_of(pid) for pid in (1, 2, 3)] == ["nginx", "postgresql@15-main", ""]


@pytest.mark.parametrize(
    ("uid", "gid", "said"),
    [
        ((None, None), (None, None), []),
        (("trainbed", 6100), ("trainbed", 6100), []),
        (("alice", None), (None, None), ["w: the uid 6100 belongs to the user alice: set trainbed_uid"]),
        ((None, None), ("render", None), ["w: the gid 6100 belongs to the group render: set trainbed_uid"]),
        (
            (None, 1001),
            (None, 1002),
            [
                "w: its user trainbed has the uid 1001, not 6100",
                "w: its group trainbed has the gid 1002, not",
            ],
        ),
    ],
)
def test_a_number_or_name_that_is_taken_is_named_with_whose_it_is(
    uid: tuple[Any, Any], gid: tuple[Any, Any], said: list[str]
) -> None:
    found = {"uid_of": dict(zip(("holder", "own"), uid, strict=True)),
             "gid_of": dict(zip(("holder", "own"), gid, strict=True))}  # fmt: skip
    sentences = decisions.preflight_users(found, "w", "trainbed", 6100)
    assert len(sentences) == len(said)
    assert all(sentence.startswith(start) for sentence, start in zip(sentences, said, strict=True))


@pytest.mark.parametrize(
    ("ahead", "took", "refused"),
    [
        ({"a": 0.0, "b": 0.0}, 1.0, False),
        ({"a": 0.0, "b": 40.0}, 1.0, True),
        ({"a": -40.0, "b": 0.0}, 1.0, True),
        ({"a": 900.0, "b": 900.0}, 1.0, False),  # the controller's own clock is wrong
        ({"a": 0.0, "b": 8.0}, 1.0, True),
        ({"a": 0.0, "b": 8.0}, 10.0, False),  # not certain: reading them took that long
    ],
)
def test_clocks_are_apart_only_if_no_delay_explains_it(
    ahead: dict[str, float], took: float, refused: bool
) -> None:
    times = {host: 1000.0 + offset + took / 2 for host, offset in ahead.items()}
    said = decisions.preflight_clocks(times, dict.fromkeys(ahead, 1000.0), 1000.0 + took, 5)
    assert bool(said) == refused
    if refused:
        assert re.match(r"The clock of b is at least \d+ s ahead of that of a, ", said[0])


def test_copies_of_one_machine_are_named_together() -> None:
    (said,) = decisions.preflight_machine_ids(
        {"a": "1", "b": "2", "c": "1", "d": "1", "e": "", "f": "NA", "g": "NA"}
    )
    assert said.startswith("a, c and d have the same machine-id")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"unreachable": True, "msg": "ssh: port 22:\nNo route"}, "w cannot be reached (ssh: port 22: No"),
        (
            {
                "unreachable": True,
                "msg": 'Task failed: Data could not be sent to remote host "w". '
                "Make sure this host can be reached over ssh: ssh: port 22: refused",
            },
            "w cannot be reached (ssh: port 22: refused): check",
        ),
        ({"msg": "Task failed: Missing sudo password"}, "w: sudo asks for a password, and none"),
        ({"msg": "Task failed: Incorrect sudo password"}, "w: sudo refused the given password"),
        ({"msg": "Timeout (22s) waiting for privilege escalation prompt:"}, "w: sudo did not answer in"),
        ({"msg": "interpreter '/usr/bin/python3' was not found"}, "w has no python3: install"),
        ({"msg": "", "module_stderr": "no sudoer"}, "w: a command with sudo failed there: no sudoer"),
    ],
)  # fmt: skip
def test_why_a_node_does_not_answer_is_told_apart(result: dict[str, Any], said: str) -> None:
    assert decisions.preflight_no_answer((result, "w")).startswith(said)


PROXY = "http://me:pw@proxy.lab:3128"


@pytest.mark.parametrize(
    ("apt", "login", "root", "known"),
    [
        ("", "HOME=/home/lab\n", {}, ""),
        ("", f"https_proxy={PROXY}\n", {"http_proxy": PROXY}, ""),
        ("", f"A=b\nhttps_proxy={PROXY}\n", {}, "only to the user who logs in (sudo drops it)"),
        (PROXY, "", {}, "only to apt"),
        (PROXY, "", {"HTTPS_PROXY": PROXY}, ""),
        ("http://198.18.0.10:3142", "", {}, ""),  # trainbed's own
    ],
)
def test_a_proxy_that_would_be_lost_is_named(apt: str, login: str, root: dict[str, str], known: str) -> None:
    said = decisions.preflight_proxies({"apt_proxy": apt}, login, root, "m", "http://198.18.0.10:")
    assert bool(said) == bool(known)
    assert all(each.startswith(f"m: the proxy http://proxy.lab:3128 is known {known}, so") for each in said)


def test_needs_are_those_of_the_roles_that_are_played(tmp_path: Path) -> None:
    assert {entry["role"] for entry in needs("master", "ddp")["ports"]} == {"artifacts", "registry"}
    assert "determined" not in {entry["role"] for entry in needs("both", "ddp", "spark")["memory"]}
    assert {"artifacts_port", "data_root", "determined_tls", "nvidia_wanted"} <= set(needs("both")["names"])
    with pytest.raises(AnsibleLookupError, match="no role for the stack nowhere"):
        needs("master", "nowhere")
    assert declared_needs.roles([str(tmp_path)], []) == []


def test_every_declaration_can_be_read() -> None:
    files = sorted(ROOT.glob("roles/*/meta/needs.yml"))
    assert len(files) > 8
    for path in files:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert set(content) <= set(declared_needs.KINDS), path
        for entry in content.get("disk", []):
            assert set(entry) <= {"for", "path", "path_of", "group", "when", "done", "mb"} and {
                "for",
                "path",
                "mb",
            } <= set(entry)
            assert isinstance(entry["mb"], int) or set(entry["mb"]) == {"cpu", "cuda"}
        for entry in content.get("memory", []):
            assert set(entry) <= {"for", "group", "when", "during", "mb", "mb_per_slot"}
            assert {
                "for",
                "mb",
            } <= set(entry)
        for entry in content.get("ports", []):
            assert {"port", "default", "services"} <= set(entry)
        for entry in [each for kind in content.values() for each in kind]:
            assert (
                entry.get("group", "master") in ("master", "workers") and entry.get("during", "run") == "run"
            )


ROLES = {"spark": {"spark_worker_memory_mb", "spark_user"}, "node": set[str](), "testbed": {"testbed_name"}}
COMMON = {"slots_per_worker", "stacks"}


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("spark_worker_memory", "spark_worker_memory_mb"),
        ("slots_per_workr", "slots_per_worker"),
        ("slots_per_worker", None),
        ("node_exporter_port", None),
        ("spark_lacking", None),
        ("sparkling", None),
        ("lab_slots", None),
        ("ansible_user", None),
        ("testbed_cpu_list", None),
    ],
)
def test_what_looks_like_a_variable_of_ours_and_is_none(name: str, closest: str | None) -> None:
    expected = [{"name": name, "closest": closest}] if closest else []
    assert unknown_variables.unknown([name], ROLES, COMMON) == expected


@pytest.mark.parametrize("path", sorted(ROOT.glob("**/group_vars/all/*.yml")), ids=lambda path: path.name)
def test_our_own_inventories_set_nothing_unknown(path: Path) -> None:
    given = list(yaml.safe_load(path.read_text(encoding="utf-8")))
    lookup = unknown_variables.LookupModule(loader=DataLoader())
    assert given and lookup.run(given, {"playbook_dir": str(ROOT / "playbooks")}) == []
    (said,) = lookup.run(["docker_user"], {"playbook_dir": str(ROOT / "playbooks")})
    assert said.startswith("The inventory sets docker_user, which nothing here reads; the closest name is ")


def test_a_survey_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "held").write_bytes(b"x" * (3 << 20))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = call(
            node_survey,
            check=True,
            room=[{"path": str(tmp_path), "mb": 1 << 40}, {"path": str(tmp_path / "a/b"), "mb": 1}],
            user="nobody",
            uid=0,
        )
    (system,) = found["systems"]
    assert os.path.ismount(system["mount"]) and set(system["paths"]) == {str(tmp_path), str(tmp_path / "a/b")}
    assert system["free_mb"] > 0 and found["sizes"][str(tmp_path)] in (3, 4)
    assert found["uid_of"]["holder"] == "root" and found["uid_of"]["own"] == 65534
    assert abs(found["time"] - time.time()) < 60 and not found["changed"]
    assert [each["pid"] for each in found["listeners"] if each["port"] == port] == [os.getpid()]
    plenty = call(node_survey, room=[{"path": str(tmp_path), "mb": 1}], user="nobody", uid=0)
    assert plenty["sizes"] == {}


def test_listeners_are_read_from_what_ss_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_survey, "unit_of", lambda pid: {7: "nginx"}.get(pid, ""))
    printed = (
        'LISTEN 0  511  198.18.0.10:8070  0.0.0.0:*  users:(("nginx",pid=7,fd=6),("n",pid=8,fd=6))\n'
        "LISTEN 0      128             [::]:22           [::]:*\n"
        'LISTEN 0      4096   127.0.0.53%lo:53        0.0.0.0:*    users:(("systemd-resolve",pid=9,fd=14))\n'
        'LISTEN 0      50                 *:7077            *:*    users:(("java",pid=10,fd=1))\n'
    )
    assert [tuple(each.values()) for each in node_survey.listeners(printed)] == [
        (8070, "198.18.0.10", "nginx", 7, "nginx"),
        (22, "::", "", 0, ""),
        (53, "127.0.0.53", "systemd-resolve", 9, ""),
        (7077, "*", "java", 10, ""),
    ]


#: What a node that can be used says of itself.
FACTS = {
    "distribution": "Debian",
    "distribution_version": "12.11",
    "distribution_major_version": "12",
    "architecture": "x86_64",
    "service_mgr": "systemd",
    "all_ipv4_addresses": ["10.0.0.2"],
}


@pytest.mark.parametrize(
    ("facts", "given", "said"),
    [
        ({}, {}, None),
        ({}, {"shared_storage_kind": "mounted", "preflight_state": {"there": ["/shared"]}}, None),
        (
            {"distribution_major_version": "11", "distribution_version": "11.9"},
            {},
            "n runs Debian 11.9, which",
        ),
        (
            {"distribution": "Fedora"},
            {},
            "n runs Fedora 12.11, which is not supported: use one of Debian 12 or",
        ),
        ({"architecture": "aarch64"}, {}, "n is a aarch64 machine: the locked environment is for x86_64."),
        (
            {"service_mgr": "openrc"},
            {},
            "n does not run systemd (but openrc): services could not be started.",
        ),
        (
            {},
            {"cluster_address": "fd00::2"},
            "n has the IPv6 address fd00::2 in the inventory: the cluster is",
        ),
        (
            {},
            {"cluster_address": "10.0.0.9"},
            "n has no interface with the address 10.0.0.9 (it has 10.0.0.2)",
        ),
        (
            {"all_ipv4_addresses": []},
            {},
            "n has no interface with the address 10.0.0.2 (it has no IPv4 addre",
        ),
        (
            {},
            {"shared_storage_kind": "mounted"},
            "n has no directory /shared, which shared_storage_kind 'moun",
        ),
    ],
)
def test_a_node_that_cannot_be_used_is_one_sentence(
    facts: dict[str, Any], given: dict[str, Any], said: str | None
) -> None:
    defaults = yaml.safe_load((ROOT / "roles/preflight/defaults/main.yml").read_text(encoding="utf-8"))
    usual = {
        "cluster_address": "10.0.0.2",
        "shared_storage_kind": "nfs",
        "shared_storage_path": "/shared",
        "preflight_state": {"there": []},
    }
    checks = value_of(
        "preflight_node_checks",
        "roles/preflight/vars/main.yml",
        inventory_hostname="n",
        ansible_facts=FACTS | facts,
        preflight_distributions=defaults["preflight_distributions"],
        **usual | given,
    )
    found = [each["say"].strip() for each in checks if each["wrong"]]
    assert [each[: len(said or "")] for each in found] == ([said] if said else [])


def test_a_mounted_directory_that_is_another_one_elsewhere_is_named() -> None:
    def node(name: str, there: bool | None) -> dict[str, Any]:
        seen = {} if there is None else {"preflight_same": {"stat": {"exists": there}}}
        return {"inventory_hostname": name, **seen}

    found = value_of(
        "preflight_same_elsewhere",
        "roles/preflight/vars/main.yml",
        preflight_reached=["m", "w1", "w2"],
        hostvars={"m": node("m", True), "w1": node("w1", False), "w2": node("w2", None)},
    )
    assert found == ["w1"]


@pytest.mark.parametrize(
    ("databases", "others"),
    [([], []), (["postgres", "determined"], []), (["postgres", "gitlab"], ["gitlab"])],
)
def test_databases_of_others_are_named(databases: list[str], others: list[str]) -> None:
    said = {"stdout_lines": databases}
    file = "roles/postgresql/vars/main.yml"
    found = value_of("postgresql_others", file, postgresql_databases=said, postgresql_database="determined")
    assert found == others
