"""Whether this machine can carry a testbed, and what is said of what changes on it."""

from __future__ import annotations

import ipaddress
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT, load

SCRIPT = ROOT / "roles" / "testbed" / "files" / "this-machine"
host = load("roles/testbed/files/this-machine")

NETWORKS = [ipaddress.IPv4Network("198.18.0.0/24"), ipaddress.IPv4Network("198.19.0.0/24")]
#: Parts of what `docker info --format '{{json .}}'` says on different machines, and Podman's own form of it.
DEBIAN = {
    "ServerVersion": "20.10.24+dfsg1", "OperatingSystem": "Debian GNU/Linux 12 (bookworm)", "Name": "desk",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=default", "name=cgroupns"],
}  # fmt: skip
ROOTLESS = {**DEBIAN, "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]}
REMAPPED = {**DEBIAN, "SecurityOptions": ["name=seccomp,profile=builtin", "name=userns"]}
DESKTOP = {
    "ServerVersion": "27.3.1", "OperatingSystem": "Docker Desktop", "Name": "docker-desktop",
    "KernelVersion": "6.10.11-linuxkit", "SecurityOptions": ["name=seccomp,profile=unconfined"],
}  # fmt: skip
PODMAN = {"host": {"buildahVersion": "1.28.2", "security": {"rootless": True}}, "store": {}, "version": {}}

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
#: A machine at 192.0.2.2, as /proc/net/route shows it.
USUAL = (
    "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)
CLASH = "Meta\t000012C6\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"  # 198.18.0.0/16
TUNNEL = "utun\t000012C6\t00000000\t0001\t0\t0\t0\tFCFFFFFF\t0\t0\t0\n"  # 198.18.0.0/30
ALL_BY_VPN = (
    "tun0\t00000000\t0100080A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n"
    "tun0\t00000080\t0100080A\t0003\t0\t0\t0\t00000080\t0\t0\t0\n"
)
BRIDGE = "br-0123456789ab\t000012C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"


def machine(**known: Any) -> Any:
    """A machine with Debian's engine, and whatever is known besides."""
    table = known.pop("table", USUAL)
    usual = {"docker_version": "Docker version 20.10.24+dfsg1, build 297e128\n", "engine": DEBIAN}
    return host.Machine(**{**usual, "routes": host.routes(HEAD + table), **known})


@pytest.mark.parametrize(
    ("known", "faults"),
    [
        ({}, []),
        ({"docker_version": "", "engine": None}, []),  # nothing there yet: it will be installed
        ({"engine": ROOTLESS}, ["rootless"]),
        ({"engine": REMAPPED}, ["userns-remap"]),
        ({"engine": None, "engine_settings": {"userns-remap": "default"}}, ["userns-remap"]),
        ({"engine": None, "engine_settings": {"log-driver": "journald"}}, []),
        # What its file says is not what a running engine does.
        ({"engine_settings": {"userns-remap": "default"}}, []),
        ({"engine": DESKTOP}, ["desktop"]),
        ({"engine": PODMAN}, ["podman"]),
        ({"docker_version": "podman version 4.3.1\n", "engine": None}, ["podman"]),
        ({"engine_host": "ssh://ada@server"}, ["remote"]),
        ({"engine_host": "unix:///run/other.sock"}, []),
        ({"selinux_enforces": True}, ["selinux"]),
        ({"table": USUAL + CLASH}, ["route"]),
        ({"table": TUNNEL + USUAL}, ["route"]),
        ({"table": ALL_BY_VPN + USUAL}, []),
        ({"table": BRIDGE + USUAL}, ["route"]),  # of another testbed with the same numbers
        ({"table": BRIDGE + USUAL, "own_interfaces": frozenset({"br-0123456789ab"})}, []),
        ({"table": BRIDGE + USUAL, "engine": None}, []),  # left by an engine that was killed
        ({"engine": ROOTLESS, "selinux_enforces": True, "table": CLASH}, ["rootless", "selinux", "route"]),
    ],
)
def test_what_keeps_a_machine_from_carrying_nodes(known: dict[str, Any], faults: list[str]) -> None:
    found = host.faults(machine(**known), NETWORKS)
    assert list(found) == faults
    for sentence in found.values():
        assert sentence.endswith(".") and ": " in sentence and "{" not in sentence


def test_the_route_and_the_engine_that_are_in_the_way_are_named() -> None:
    said = host.faults(machine(table=CLASH, engine_host="tcp://server:2376"), NETWORKS)
    assert "198.18.0.0/24" in said["route"] and "198.18.0.0/16 through Meta" in said["route"]
    assert "tcp://server:2376" in said["remote"]


def test_another_range_is_free_of_it() -> None:
    assert host.faults(machine(table=CLASH), [ipaddress.IPv4Network("10.198.18.0/24")]) == {}


@pytest.mark.parametrize(
    ("environment", "prefixes"),
    [
        ({}, ["198.18.0", "198.19.0"]),
        ({"TESTBED_PREFIX": "10.255.4"}, ["10.255.4", "10.0.4"]),
        ({"TESTBED_PREFIX": "tonight"}, []),
        ({"ANSIBLE_INVENTORY": "../site/lab"}, []),
    ],
)
def test_the_networks_before_an_inventory_is_read(environment: dict[str, str], prefixes: list[str]) -> None:
    assert host.usual_prefixes(environment) == prefixes


def test_virtual_machines_have_networks_of_their_own() -> None:
    # As `make demo TESTBED_KIND=vm` calls it.
    environment = {"ANSIBLE_INVENTORY": "inventory/vm"}
    assert host.usual_prefixes(environment, "vm") == ["198.18.16", "198.19.16"]


def having(*commands: str) -> Callable[[str], bool]:
    return lambda name: name in commands


def test_what_a_demo_will_change_is_said_before() -> None:
    bare = "\n".join(
        host.announcement(machine(docker_version="", engine=None), having(), "bed", NETWORKS, "?")
    )
    for word in ("python3-venv", "openssh-client", "docker.io", "mmdebstrap", "start    the Docker engine"):
        assert word in bare
    assert "named bed-…" in bare and "198.18.0.0/24, 198.19.0.0/24" in bare and "20 GB of disk" in bare

    there = having("ensurepip", "ssh-keygen", "dockerd", "mmdebstrap")
    ready = "\n".join(host.announcement(machine(), there, "bed", [], "?"))
    assert "install  no package" in ready and "start " not in ready


def test_a_demo_on_virtual_machines_says_what_they_are_made_with() -> None:
    bare = "\n".join(host.announcement_of_machines(having(), "bed", NETWORKS, "?"))
    for word in (
        "openssh-client",
        "mmdebstrap",
        "user-mode-linux",
        "qemu-system-x86",
        "198.18.0.0/24",
        "ip_forward",
    ):
        assert word in bare
    assert "docker" not in bare.lower()

    there = having("ensurepip", "ssh-keygen", *(program for program, _ in host.FOR_MACHINES))
    ready = "\n".join(host.announcement_of_machines(there, "bed", NETWORKS, "?"))
    assert "install  no package" in ready


def test_what_is_left_is_named_if_it_is_there() -> None:
    assert "docker.io, mmdebstrap, which" in "\n".join(host.left(having("docker.io", "mmdebstrap")))
    nothing = "\n".join(host.left(having()))
    assert "package" not in nothing and "ip_forward" not in nothing
    assert "net.ipv4.ip_forward is on" in "\n".join(host.left(having("user-mode-linux")))


def programs(folder: Path, **scripts: str) -> str:
    """A PATH on which these programs come first."""
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def check(path: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["python3", SCRIPT, "check", "--network", "198.18.0", *options],
        env={**{name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_machine_itself_is_asked_and_a_fault_may_be_put_up_with(tmp_path: Path) -> None:
    info = '{"SecurityOptions": ["name=rootless"], "OperatingSystem": "Debian GNU/Linux 12 (bookworm)"}'
    path = programs(tmp_path, docker=f"[ \"$1\" != info ] || echo '{info}'")

    refused = check(path, "--accept", "route", "selinux")
    assert refused.returncode == 1 and refused.stdout.count("\n") == 1 and "rootless" in refused.stdout
    accepted = check(path, "--accept", "route", "selinux", "rootless")
    assert (accepted.returncode, accepted.stdout, accepted.stderr) == (0, "", "")


def test_an_engine_that_does_not_answer_is_none(tmp_path: Path) -> None:
    # The command prints an empty answer then, too.
    path = programs(tmp_path, docker='echo "{}"; exit 1')
    assert check(path, "--accept", "route", "selinux").returncode == 0


@pytest.mark.parametrize("kind", ["check", "controller"])
def test_another_system_is_refused_before_anything_is_made(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "requirements" / "bootstrap", kind],
        env={"PATH": programs(tmp_path, uname="echo Darwin"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "this machine runs Darwin" in done.stderr
    assert not (tmp_path / ".cache").exists()


def test_a_machine_that_cannot_carry_a_testbed_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    path = programs(tmp_path, docker='[ "$1" = --version ] && echo "podman version 4.3.1"')
    home = {"PATH": path, "HOME": str(tmp_path)}

    def make(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
        return subprocess.run(command, env=home, capture_output=True, text=True, check=False)

    done = make("testbed")
    assert done.returncode != 0 and done.stdout.startswith("The command docker is Podman's here")
    assert not (tmp_path / ".cache").exists()
    # Who knows better is asked by the role, which comes later.
    accepted = make("testbed", "--dry-run", "ARGS=-e '{testbed_accepted_faults: [podman]}'")
    assert "playbooks/testbed.yml" in accepted.stdout and "this-machine" not in accepted.stdout
