"""The testbed of virtual machines: what is drawn, which commands run them, which rules let them out."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainbed_machines import image, kinds, network, processes, rough
from trainbed_machines.__main__ import down, planned
from trainbed_machines.errors import MachinesError
from trainbed_machines.plan import (
    KINDS,
    Kind,
    Plan,
    Request,
    Rough,
    made_for,
    read_plan,
    read_request,
    write_plan,
)

REQUEST = Request(
    name="some",
    prefix="198.18.90",
    outside_prefix="198.19.90",
    release="bookworm",
    login="lab",
    kind="auto",
    cores=2,
    memory_mb=3000,
    disk_mb=20_000,
    var_mb=9000,
    link_rate="",
    rough=True,
    seed=7,
    base_image="",
    addresses={"master": "198.18.90.10", "worker1": "198.18.90.11", "worker2": "198.18.90.12"},
    masters=["master"],
    directories=["/opt/packages"],
)
MACHINE = kinds.Machine(
    name="some-master",
    disk=Path("/state/machines/master/disk.img"),
    more_disks=[Path("/cache/cache.img")],
    taps=["tb-818-90-10", "tb-818-90-out"],
    directories=["/opt/packages"],
    cores=2,
    memory_mb=3000,
    folder=Path("/state/machines/master"),
    base=Path("/cache/base"),
)


@pytest.mark.parametrize("seed", range(40))
def test_every_kind_of_roughness_is_on_one_machine(seed: int) -> None:
    drawn = rough.draw(dataclasses.replace(REQUEST, seed=seed))
    assert drawn == rough.draw(dataclasses.replace(REQUEST, seed=seed))
    for field, clean in dataclasses.asdict(Rough()).items():
        found = [getattr(each, field) for each in drawn.values() if getattr(each, field) != clean]
        if field == "clock_s":
            assert all(rough.CLOCK_S[0] <= each <= rough.CLOCK_S[1] for each in found)
        elif field == "engine":
            assert sorted(found) == ["daemon.json", "docker-ce"]
        else:
            assert len(found) == 1, field
    assert drawn["master"].jump is None and drawn["master"].var_mb == 0


def test_seeds_give_different_machines_and_none_is_rough_if_unwanted() -> None:
    seeds = [rough.draw(dataclasses.replace(REQUEST, seed=seed)) for seed in range(40)]
    assert {name for drawn in seeds for name, each in drawn.items() if each.ufw} == set(REQUEST.addresses)
    clean = rough.draw(dataclasses.replace(REQUEST, rough=False))
    assert set(clean.values()) == {Rough()} and rough.told(Rough()) == "as clean as can be"


@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_has_its_disks_networks_and_directories(kind: Kind) -> None:
    command = kinds.command(kind, MACHINE)
    text = " ".join(command)
    for part in ("/state/machines/master/disk.img", "/cache/cache.img", "tb-818-90-10", "tb-818-90-out"):
        assert part in text
    assert ("-accel kvm" in text, "-accel tcg" in text) == (kind == "kvm", kind == "tcg")
    # A user-mode kernel mounts directories itself.
    assert ("/opt/packages" in text) == (kind != "uml")
    assert all(len(tap) < 16 for tap in MACHINE.taps)


def test_hardware_addresses_differ_and_stay() -> None:
    taps = [network.tap(REQUEST, node) for node in REQUEST.addresses]
    found = [kinds.hardware_address(tap) for tap in [*taps, network.way_out(REQUEST)]]
    assert len(set(found)) == 4 and found[:1] == [kinds.hardware_address(taps[0])]
    assert all(address.startswith("52:54:") and len(address) == 17 for address in found)


def test_names_of_interfaces_fit_and_differ_between_testbeds() -> None:
    other = dataclasses.replace(REQUEST, prefix="198.19.255", addresses={"master": "198.19.255.254"})
    names = [
        network.tap(other, "master"),
        network.way_out(other),
        network.bridge(other),
        network.bridge(REQUEST),
    ]
    assert len(set(names)) == 4 and all(len(name) < 16 for name in names)


def test_rules_of_iptables_are_marked_with_the_testbeds_name() -> None:
    for rule in network.rules(REQUEST):
        assert rule[rule.index("--comment") + 1] == "trainbed:some"
    assert "198.19.90.0/24" in network.rules(REQUEST)[0]


def test_a_kernel_that_starts_is_told_from_one_that_hangs_or_ends() -> None:
    def python(text: str) -> list[str]:
        return [sys.executable, "-c", text]

    alive = "import time; print('Kernel panic: Unable to mount root fs', flush=True); time.sleep(60)"
    began = time.monotonic()
    assert kinds.starts(python(alive), 30) is None
    assert kinds.starts(python("print('no MSR')"), 30) == "its kernel does not start: no MSR"
    hangs = "import time; print('Probing EDD', flush=True); time.sleep(60)"
    assert kinds.starts(python(hangs), 1) == "its kernel hangs, 1 s after its start"
    assert time.monotonic() - began < 30


def test_the_first_kind_that_works_is_chosen_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reasons: dict[str, str | None] = {
        "kvm": "its kernel hangs, 20 s after its start",
        "uml": None,
        "tcg": None,
    }
    monkeypatch.setattr(kinds, "why_not", lambda kind, *_: reasons[kind])
    said: list[str] = []
    assert kinds.choose(REQUEST, tmp_path, tmp_path, said.append) == "uml"
    assert said[0].startswith("The machines run on uml: programs compute at native speed")
    assert "kvm does not work here (its kernel hangs" in said[0]
    reasons["uml"] = "linux.uml is not installed"
    with pytest.raises(
        MachinesError, match=r"^No virtual machine can run here: uml does not work here \(linux"
    ):
        kinds.choose(dataclasses.replace(REQUEST, kind="uml"), tmp_path, tmp_path, said.append)


@pytest.fixture
def virt_tar_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that stands for libguestfs, reading an image without KVM only: a kernel is all it holds."""
    script = tmp_path / "bin" / "virt-tar-out"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$LIBGUESTFS_BACKEND_SETTINGS" != force_tcg ]; then\n'
        "    echo 'libguestfs: error: the appliance crashed.' >&2\n"
        "    echo 'or send a message to the mailing list.' >&2\n"
        "    exit 1\n"
        "fi\n"
        'mkdir -p boot && touch boot/vmlinuz-6.1 boot/initrd.img-6.1 && tar -cf "$4" ./boot\n',
        encoding="ascii",
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("LIBGUESTFS_BACKEND_SETTINGS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("virt_tar_out")
def test_a_cloud_image_is_read_without_kvm_where_kvm_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "cloud.raw"
    given.touch()
    request = dataclasses.replace(REQUEST, base_image=str(given), rough=False)
    said: list[str] = []
    folder, made = image.base_system(request, tmp_path / "cache", tmp_path, said.append)
    assert made and {path.name for path in folder.iterdir()} == {"root.tar", "vmlinuz", "initrd"}
    assert len(said) == 1 and "once more without KVM" in said[0]
    assert image.base_system(request, tmp_path / "cache", tmp_path, said.append) == (folder, False)
    monkeypatch.setenv("LIBGUESTFS_BACKEND_SETTINGS", "network_bridge=virbr0")  # the user's own: no other
    with pytest.raises(MachinesError, match=r"can't be read as a cloud image: .*the appliance crashed\.$"):
        image.base_system(request, tmp_path / "other", tmp_path, said.append)
    assert len(said) == 1 and list((tmp_path / "other").iterdir()) == []


def test_a_cloud_image_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    request = dataclasses.replace(REQUEST, base_image=str(tmp_path / "none.raw"), rough=False)
    with pytest.raises(MachinesError, match=r"none\.raw is not a file: let TESTBED_BASE_IMAGE name"):
        image.base_system(request, tmp_path, tmp_path, print)
    with pytest.raises(MachinesError, match=r"lacks what makes machines rough: set TESTBED_ROUGH=false"):
        image.base_system(dataclasses.replace(request, rough=True), tmp_path, tmp_path, print)


def test_processes_are_found_by_their_disk_and_killed(tmp_path: Path) -> None:
    disk = tmp_path / "disk.img"
    command = [sys.executable, "-c", "import time; time.sleep(60)", f"ubd0={disk}"]
    with subprocess.Popen(command) as running, subprocess.Popen([*command[:3], f"ubd0={disk}2"]) as other:
        try:
            assert [each.pid for each in processes.of(disk)] == [running.pid]
            assert processes.kill(disk) and processes.of(disk) == []
            assert not processes.kill(disk) and other.poll() is None
        finally:
            running.kill()
            other.kill()


def test_a_machine_that_ends_at_once_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "worker1").mkdir()
    console = tmp_path / "worker1" / "console.log"
    with pytest.raises(MachinesError, match="worker1 ended at once: no such tap"):
        processes.start([sys.executable, "-c", "print('no such tap')"], console, tmp_path)


def test_a_testbed_that_is_asked_for_elsewhere_is_refused_and_its_own_networks_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(tmp_path, Plan("uml", 7, "bookworm-1", rough.draw(REQUEST)), REQUEST)
    moved = {node: address.replace(".90.", ".91.") for node, address in REQUEST.addresses.items()}
    other = dataclasses.replace(REQUEST, prefix="198.18.91", outside_prefix="198.19.91", addresses=moved)
    (tmp_path / "machines.json").write_text(json.dumps(dataclasses.asdict(other)))
    with pytest.raises(MachinesError, match=r"made of master at 198\.18\.90\.10, .* asked for now: run make"):
        planned(other, tmp_path, tmp_path)
    removed: list[Request] = []

    def take_down(request: Request) -> bool:
        removed.append(request)
        return True

    monkeypatch.setattr(network, "take_down", take_down)
    down(tmp_path, tmp_path, caches=False)
    assert removed == [REQUEST]


def test_networks_of_another_testbed_are_refused_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [{"ifname": network.bridge(REQUEST), "ifalias": "trainbed:other"}]
    asked: list[tuple[str, ...]] = []

    def ip(*arguments: str) -> list[dict[str, str]]:
        asked.append(arguments)
        return links

    monkeypatch.setattr(network, "ip", ip)
    with pytest.raises(MachinesError, match=r"90\.0/24 is the testbed other's: choose another range"):
        network.check_owner(REQUEST)
    assert network.take_down(REQUEST) is False and set(asked) == {("link", "show")}
    network.check_owner(dataclasses.replace(REQUEST, name="other"))
    del links[0]["ifalias"]
    network.check_owner(REQUEST)


def test_request_and_plan_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "machines.json").write_text(json.dumps(dataclasses.asdict(REQUEST)))
    assert read_request(tmp_path) == REQUEST and read_plan(tmp_path) is None
    plan = Plan("uml", 7, "bookworm-1", rough.draw(REQUEST))
    assert made_for(tmp_path) == REQUEST
    write_plan(tmp_path, plan, REQUEST)
    assert read_plan(tmp_path) == plan and (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(MachinesError, match=r"plan\.json is damaged .*: run make testbed-down"):
        read_plan(tmp_path)
