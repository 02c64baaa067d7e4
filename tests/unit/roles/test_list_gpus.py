"""The list of a node's GPUs, from made-up devices and recorded answers of real drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT, load

SCRIPT = ROOT / "roles/nvidia/files/list-gpus"
listing = load("roles/nvidia/files/list-gpus")
state = load("roles/nvidia/files/driver-state")

ONE = (
    "0, GPU-4f1c6a52-9c1e-7d0b-3a5f-0d9f1f2c7b10, NVIDIA GeForce GTX 1060 3GB, 3072, 6.1, [N/A], 580.95.05\n"
)
TWO = ONE + ONE.replace("0, GPU-4f1c6a52", "1, GPU-b1b2a7e4")
MIG = "0, GPU-6a1b2c3d-0000-1111-2222-333344445555, NVIDIA H100 PCIe, 81559, 9.0, Enabled, 570.124.06\n"
NOT_RUNNING = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"


def bus(folder: Path, *devices: tuple[str, str, str]) -> Path:
    """A stand-in for /sys with PCI devices of the given vendor, class and device."""
    for number, (vendor, kind, device) in enumerate(devices):
        place = folder / f"sys/bus/pci/devices/0000:0{number}:00.0"
        place.mkdir(parents=True)
        for name, content in (("vendor", vendor), ("class", kind), ("device", device)):
            (place / name).write_text(content + "\n", encoding="ascii")
    return folder / "sys"


def gpus(folder: Path, number: int) -> Path:
    return bus(folder, *[("0x10de", "0x030000", "0x1c02")] * number)


def ask(sysfs: Path, nvidia_smi: Path | str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--sysfs", sysfs, "--nvidia-smi", nvidia_smi, *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def stand_in(folder: Path, answer: str, code: int = 0) -> Path:
    """A stand-in for nvidia-smi that gives a recorded answer."""
    (folder / "answer").write_text(answer, encoding="utf-8")
    program = folder / "nvidia-smi-stand-in"
    program.write_text(f"#!/bin/sh\ncat '{folder}/answer'\nexit {code}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("answer", "number"), [(ONE, 1), (TWO, 2)])
def test_gpus_are_those_that_the_driver_lists(tmp_path: Path, answer: str, number: int) -> None:
    found = ask(gpus(tmp_path, number), stand_in(tmp_path, answer))
    assert [gpu["index"] for gpu in found["gpus"]] == [str(index) for index in range(number)]
    assert found["trouble"] is None
    first = found["gpus"][0]
    assert first["uuid"] == "GPU-4f1c6a52-9c1e-7d0b-3a5f-0d9f1f2c7b10"
    assert (first["memory_mb"], first["capability"], first["driver"]) == (3072, "6.1", "580.95.05")
    assert not first["mig"] and not first["pseudo"]


def test_a_node_without_asks_no_driver(tmp_path: Path) -> None:
    audio_and_others = bus(tmp_path, ("0x10de", "0x040300", "0x10f1"), ("0x1234", "0x030000", "0x1111"))
    found = ask(audio_and_others, "/no/such/command")
    nothing: dict[str, Any] = {"pci": [], "switches": [], "gpus": []}
    assert found == nothing | {"module": None, "nouveau": False, "trouble": None}


def test_nvswitches_are_told_from_gpus_and_from_old_mainboards(tmp_path: Path) -> None:
    switch, chip = ("0x10de", "0x068000", "0x22a3"), ("0x10de", "0x068000", "0x07dc")
    sysfs = bus(tmp_path, ("0x10de", "0x030200", "0x2330"), switch, switch, chip)
    found = ask(sysfs, tmp_path / "missing")
    assert found["switches"] == ["22a3", "22a3"] and found["pci"] == ["2330"]


def test_mig_is_seen(tmp_path: Path) -> None:
    assert ask(gpus(tmp_path, 1), stand_in(tmp_path, MIG))["gpus"][0]["mig"]


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (NOT_RUNNING, 9, "exited with 9 and said: NVIDIA-SMI has failed because it couldn't communicate"),
        (MISMATCH, 18, "exited with 18 and said: Failed to initialize NVML: Driver/library version mismatch"),
        (
            "No devices were found\n",
            0,
            "There are 1 NVIDIA GPUs on the PCI bus, but the driver answers for 0.",
        ),
        (
            "\x00\x7fgarbage, more\n",
            0,
            "nvidia-smi answered with something other than a GPU: '\\x00\\x7fgarbage",
        ),
        ("0, tomato, x, 1, 1, 1, 1\n", 0, "nvidia-smi answered with something other than a GPU: '0, tomato"),
        (TWO, 0, "There are 1 NVIDIA GPUs on the PCI bus, but the driver answers for 2."),
    ],
)
def test_a_driver_in_trouble_is_named(tmp_path: Path, answer: str, code: int, says: str) -> None:
    found = ask(gpus(tmp_path, 1), stand_in(tmp_path, answer, code))
    assert says in found["trouble"]
    assert found["pci"] == ["1c02"]


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    assert "the driver is not installed" in ask(gpus(tmp_path, 1), "/no/such/nvidia-smi")["trouble"]


def test_a_driver_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = tmp_path / "nvidia-smi-stand-in"
    hangs.write_text("#!/bin/sh\nsleep 600 & wait\n", encoding="utf-8")
    hangs.chmod(0o755)
    monkeypatch.setattr(listing, "PATIENCE", 0.5)
    with pytest.raises(
        listing.Trouble, match=r"did not answer for 0 s: the driver hangs; see dmesg, and reboot"
    ):
        listing.ask(str(hangs))


def test_declared_gpus_are_named_as_such(tmp_path: Path) -> None:
    found = ask(gpus(tmp_path, 1), "/no/such/command", "--pseudo", "2")
    assert [gpu["index"] for gpu in found["gpus"]] == ["0", "1"]
    assert all(gpu["pseudo"] and gpu["name"] == "pseudo-GPU (declared, no hardware)" for gpu in found["gpus"])


@pytest.mark.parametrize(
    ("loaded", "on_disk", "nouveau", "way"),
    [
        ("580.95.05", "580.95.05", False, "none"),
        (None, "580.95.05", False, "load"),
        (None, "580.95.05", True, "reboot"),
        ("535.247.01", "580.95.05", False, "reboot"),
        (None, None, False, "reboot"),
        ("580.95.05", None, False, "reboot"),
    ],
)
def test_a_reboot_is_asked_for_only_where_it_is_needed(
    loaded: str | None, on_disk: str | None, nouveau: bool, way: str
) -> None:
    found, why = state.decide(loaded, on_disk, nouveau)
    assert found == way
    assert bool(why) == (way != "none")
