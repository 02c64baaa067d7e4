"""The driver, kernel modules and torch build that a GPU gets: every row of the tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT, load

plugin = load("roles/nvidia/filter_plugins/nvidia.py")
TABLES = yaml.safe_load((ROOT / "roles/nvidia/vars/main.yml").read_text(encoding="utf-8"))
CHIPS, ARCHITECTURES = TABLES["nvidia_chips"], TABLES["nvidia_architectures"]
DRIVERS, VARIANTS = TABLES["nvidia_drivers"], TABLES["nvidia_variants"]

# Common cards: PCI device id, architecture, compute capability.
CARDS = {
    "GTX 1060 3GB": ("1c02", "Pascal", "6.1"),
    "GTX 1060 6GB": ("1c03", "Pascal", "6.1"),
    "GTX 1080 Ti": ("1b06", "Pascal", "6.1"),
    "Tesla P100": ("15f8", "Pascal", "6.0"),
    "GTX 750 Ti": ("1380", "Maxwell", "5.0"),
    "GTX 980": ("13c0", "Maxwell", "5.2"),
    "Tesla K80": ("102d", "Kepler", "3.5"),
    "Tesla V100": ("1db6", "Volta", "7.0"),
    "Tesla T4": ("1eb8", "Turing", "7.5"),
    "GTX 1660": ("2184", "Turing", "7.5"),
    "A100 80GB": ("20b5", "Ampere", "8.0"),
    "RTX 3090": ("2204", "Ampere", "8.6"),
    "RTX 3060": ("2503", "Ampere", "8.6"),
    "RTX 4090": ("2684", "Ada", "8.9"),
    "L4": ("27b8", "Ada", "8.9"),
    "H100 SXM": ("2330", "Hopper", "9.0"),
    "H200": ("2335", "Hopper", "9.0"),
    "B200": ("2901", "Blackwell", "10.0"),
    "RTX 5090": ("2b85", "Blackwell", "12.0"),
}


def models(*cards: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plugin.nvidia_models([CARDS[card][0] for card in cards], CHIPS)
    return found


def driver(system: str, *cards: str, **wishes: str) -> dict[str, Any]:
    row: dict[str, Any] = plugin.nvidia_driver(models(*cards), system, DRIVERS, ARCHITECTURES, **wishes)
    return row


@pytest.mark.parametrize("card", CARDS)
def test_a_card_is_known_by_its_pci_id(card: str) -> None:
    device, architecture, capability = CARDS[card]
    assert models(card) == [{"device": device, "architecture": architecture, "capability": capability}]


def test_ranges_do_not_overlap_and_name_known_architectures() -> None:
    bounds = sorted((int(chip["first"], 16), int(chip["last"], 16)) for chip in CHIPS)
    assert all(first <= last for first, last in bounds)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(bounds))
    assert {chip["architecture"] for chip in CHIPS} == set(ARCHITECTURES)


PROPRIETARY, OPEN = "proprietary", "open"
EXPECTED = {
    ("Ubuntu-24", "Maxwell"): (580, PROPRIETARY),
    ("Ubuntu-24", "Pascal"): (580, PROPRIETARY),
    ("Ubuntu-24", "Volta"): (580, PROPRIETARY),
    ("Ubuntu-24", "Turing"): (580, OPEN),
    ("Ubuntu-24", "Ampere"): (580, OPEN),
    ("Ubuntu-24", "Ada"): (580, OPEN),
    ("Ubuntu-24", "Hopper"): (580, OPEN),
    ("Ubuntu-24", "Blackwell"): (580, OPEN),
    ("Debian-12", "Maxwell"): (535, PROPRIETARY),
    ("Debian-12", "Pascal"): (535, PROPRIETARY),
    ("Debian-12", "Volta"): (535, PROPRIETARY),
    ("Debian-12", "Turing"): (535, OPEN),
    ("Debian-12", "Ampere"): (535, OPEN),
    ("Debian-12", "Ada"): (535, OPEN),
    ("Debian-12", "Hopper"): (535, OPEN),
    ("Debian-13", "Maxwell"): (550, PROPRIETARY),
    ("Debian-13", "Pascal"): (550, PROPRIETARY),
    ("Debian-13", "Volta"): (550, PROPRIETARY),
    ("Debian-13", "Turing"): (550, OPEN),
    ("Debian-13", "Ampere"): (550, OPEN),
    ("Debian-13", "Ada"): (550, OPEN),
    ("Debian-13", "Hopper"): (550, OPEN),
}
IMPOSSIBLE = {
    (
        system,
        "Kepler",
    ): f"Kepler needs the driver 470 or older, but {system} has {has}: use another release or"
    for system, has in (("Ubuntu-24", 580), ("Debian-12", 535), ("Debian-13", 550))
} | {
    (
        system,
        "Blackwell",
    ): f"Blackwell needs the driver 570 or newer, but {system} has {has}: use another release"
    for system, has in (("Debian-12", 535), ("Debian-13", 550))
}


def card_of(architecture: str) -> str:
    return next(card for card, (_, found, _) in CARDS.items() if found == architecture)


@pytest.mark.parametrize("system", DRIVERS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_on_every_distribution(system: str, architecture: str) -> None:
    row = driver(system, card_of(architecture))
    if (system, architecture) in IMPOSSIBLE:
        assert row["problem"].startswith(IMPOSSIBLE[(system, architecture)])
        assert "packages" not in row
        return
    assert row["problem"] == ""
    assert (row["branch"], row["modules"]) == EXPECTED[(system, architecture)]


def test_every_row_of_drivers_can_be_chosen() -> None:
    chosen = {(system, *EXPECTED[(system, architecture)]) for system, architecture in EXPECTED}
    assert chosen == {
        (system, row["branch"], row["modules"]) for system, rows in DRIVERS.items() for row in rows
    }


def test_the_dissertations_cards_get_what_they_need() -> None:
    row = driver("Ubuntu-24", "GTX 1060 3GB")
    assert row["packages"] == ["nvidia-headless-580-server", "nvidia-utils-580-server"]
    assert not any("open" in package for package in row["packages"])


@pytest.mark.parametrize(
    ("cards", "wishes", "says"),
    [
        (
            ["GTX 1060 3GB", "RTX 5090"],
            {},
            "its GPUs (Blackwell and Pascal) need different kernel modules, but a node has only one kind",
        ),
        (
            ["GTX 1060 3GB"],
            {"branch": "590"},
            "nvidia_branch asks for the driver 590, but Pascal needs 580 or older",
        ),
        (
            ["RTX 5090"],
            {"branch": "535"},
            "nvidia_branch asks for the driver 535, but Blackwell needs 570 or newer",
        ),
        (
            ["GTX 1060 3GB"],
            {"modules": "open"},
            "nvidia_modules asks for open modules, which can't drive Pascal: leave it empty, or set",
        ),
        (
            ["GTX 1060 3GB"],
            {"branch": "535"},
            "nvidia_branch asks for 535, but Ubuntu-24 has 580: use another release",
        ),
    ],
)
def test_what_cannot_work_is_said(cards: list[str], wishes: dict[str, str], says: str) -> None:
    assert driver("Ubuntu-24", *cards, **wishes)["problem"].startswith(says)


def test_an_unknown_gpu_and_an_unknown_system_are_said() -> None:
    unknown = plugin.nvidia_models(["ffff"], CHIPS)
    said = plugin.nvidia_driver(unknown, "Debian-12", DRIVERS, ARCHITECTURES)["problem"]
    assert said.startswith("its GPU 10de:ffff is in no row of nvidia_chips")
    assert driver("Fedora-42", "Tesla T4")["problem"].startswith("there is no driver for Fedora-42")


def test_wishes_that_fit_are_followed() -> None:
    assert driver("Debian-12", "Tesla T4", modules="proprietary")["modules"] == "proprietary"
    assert driver("Debian-12", "Tesla T4", branch="535")["branch"] == 535
    mixed = driver("Debian-12", "GTX 1060 3GB", "A100 80GB")
    assert mixed["modules"] == "proprietary"  # which drives both


@pytest.mark.parametrize(
    ("capabilities", "branches", "variant"),
    [
        (["6.1", "6.1"], [580, 580], "cu126"),
        (["6.1"], [535], "cu126"),
        (["6.1", "9.0"], [580], "cu126"),
        (["7.0"], [580], "cu126"),
        (["7.5"], [580], "cu130"),
        (["7.5", "12.0"], [580], "cu130"),
        (["8.0"], [535], "cu126"),  # Debian 12's driver is too old for CUDA 13
        (["9.0", "9.0"], [580, 550], "cu126"),
        (["10.0"], [580], "cu130"),
    ],
)
def test_torchs_build_follows_the_oldest_gpu(
    capabilities: list[str], branches: list[int], variant: str
) -> None:
    assert plugin.nvidia_variant(capabilities, branches, VARIANTS) == {"variant": variant, "problem": ""}


@pytest.mark.parametrize(
    ("capabilities", "branches", "says"),
    [
        (["6.1", "12.0"], [580], "no build of torch runs on GPUs with compute capability both 6.1 and 12.0"),
        (["3.5"], [470], "no build of torch runs on GPUs with compute capability 3.5"),
        (
            ["12.0"],
            [570],
            "compute capability 12.0 needs torch's build cu130, which needs the driver 580 or newer",
        ),
        ([], [], "no node of the inventory has an NVIDIA GPU"),
    ],
)
def test_clusters_without_a_build_are_told(capabilities: list[str], branches: list[int], says: str) -> None:
    answer = plugin.nvidia_variant(capabilities, branches, VARIANTS)
    assert answer["variant"] == ""
    assert answer["problem"].startswith(says)


def test_what_the_check_found_is_a_table() -> None:
    rank = {
        "rank": 0,
        "node": "worker1",
        "name": "NVIDIA GeForce GTX 1060 3GB",
        "memory_mb": 3008,
        "trouble": None,
    }
    rank |= {"capability": "6.1", "driver": "580.95.05", "torch": "2.13.0+cu126", "cuda": "12.6"}
    other = rank | {
        "rank": 1,
        "node": "worker2",
        "name": "Tesla T4",
        "capability": "7.5",
        "trouble": "It is hot.",
    }
    speed = {"bytes": 67108864, "latency_us": 93.2, "bus_gb_per_s": 0.117}
    lines = plugin.nvidia_table({"backend": "nccl", "ranks": [rank, other], "all_reduce": speed})
    assert lines[0].split() == [
        "rank",
        "node",
        "GPU",
        "memory",
        "capability",
        "driver",
        "torch",
        "CUDA",
        "verdict",
    ]
    assert "worker1  NVIDIA GeForce GTX 1060 3GB  3008 MB" in lines[1]
    assert lines[1].endswith("computes") and lines[2].endswith("fails")
    assert lines[3].startswith("The GPUs differ (NVIDIA GeForce GTX 1060 3GB, Tesla T4)")
    assert lines[4] == "All-reduce by nccl over 2 ranks: latency 93 us, bus bandwidth 0.12 GB/s."
    assert plugin.nvidia_failure(other) == "worker2, rank 1 (Tesla T4): It is hot."
