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
    # The open modules of 535 leave GeForce, Quadro and RTX cards alone.
    ("Debian-12", "Turing"): (535, PROPRIETARY),
    ("Debian-12", "Ampere"): (535, PROPRIETARY),
    ("Debian-12", "Ada"): (535, PROPRIETARY),
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
    assert row["packages"] == ["nvidia-headless-no-dkms-580-server", "nvidia-utils-580-server"]
    assert not any("open" in str(value) for value in row.values())


@pytest.mark.parametrize("card", ["Tesla T4", "RTX 3090", "RTX 4090", "L4", "A100 80GB"])
def test_open_modules_that_leave_consumer_cards_alone_are_taken_only_on_request(card: str) -> None:
    assert driver("Debian-12", card)["modules"] == PROPRIETARY
    assert driver("Debian-12", card, modules=OPEN)["dkms"] == "nvidia-open-kernel-dkms"
    assert driver("Debian-13", card)["modules"] == OPEN


def test_nvswitches_take_a_fabric_manager() -> None:
    found = models("H100 SXM", "H100 SXM")
    ask = (DRIVERS, ARCHITECTURES, "", "", ["22a3"])
    assert plugin.nvidia_driver(found, "Ubuntu-24", *ask)["fabric"] == "nvidia-fabricmanager-580"
    assert plugin.nvidia_driver(found, "Debian-13", *ask)["problem"] == (
        "NVSwitches join its GPUs, which takes the fabric manager, and Debian-13 has no package of it: use "
        "Ubuntu-24, or install both yourself and set nvidia_driver_managed: false."
    )


#: Kernel releases, and the flavour of their packages.
KERNELS = {
    ("Ubuntu-24", "6.8.0-71-generic"): "generic",
    ("Ubuntu-24", "6.14.0-27-generic"): "generic-hwe-24.04",
    ("Ubuntu-24", "6.17.0-35-generic"): "generic-hwe-24.04",
    ("Ubuntu-24", "6.8.0-1031-aws"): "aws",
    ("Ubuntu-24", "6.14.0-1012-azure"): "azure",
    ("Ubuntu-24", "6.8.0-1033-gcp"): "gcp",
    ("Ubuntu-24", "6.8.0-1030-oracle"): "oracle",
    ("Ubuntu-24", "6.8.0-1025-kvm"): "kvm",
    ("Ubuntu-24", "6.8.0-71-lowlatency"): "lowlatency",
    ("Ubuntu-24", "6.14.0-27-lowlatency"): "lowlatency-hwe-24.04",
    ("Ubuntu-24", "6.8.12-4-pve"): "",
    ("Debian-12", "6.1.0-37-amd64"): "amd64",
    ("Debian-12", "6.1.0-37-cloud-amd64"): "cloud-amd64",
    ("Debian-12", "6.12.9+bpo-rt-amd64"): "rt-amd64",
    ("Debian-13", "6.12.38+deb13-cloud-amd64"): "cloud-amd64",
    ("Debian-13", "6.12.38+deb13-amd64"): "amd64",
    ("Debian-13", "6.8.12-4-pve"): "",
}


@pytest.mark.parametrize(("system", "release"), KERNELS)
def test_a_kernels_flavour_is_known_by_its_release(system: str, release: str) -> None:
    assert plugin.nvidia_flavour(release, TABLES["nvidia_kernels"][system]) == KERNELS[system, release]


def test_every_row_of_kernels_is_in_these_tests() -> None:
    rows = {(name, row["flavour"]) for name in DRIVERS for row in TABLES["nvidia_kernels"][name]}
    seen = {(name, flavour) for (name, _), flavour in KERNELS.items() if flavour}
    assert {(name.replace("13", "12"), flavour) for name, flavour in rows} == {
        (name.replace("13", "12"), flavour) for name, flavour in seen
    }


def plan(system: str, card: str, release: str, *missing: str) -> dict[str, Any]:
    """What is installed if apt has all that may be needed, except for what is missing."""
    row, flavour = driver(system, card), KERNELS[system, release]
    names = plugin.nvidia_names(row, flavour, release)
    assert set(missing) <= set(names), (missing, names)
    planned: dict[str, Any] = plugin.nvidia_plan(
        row, flavour, release, [name for name in names if name not in missing]
    )
    return planned


@pytest.mark.parametrize(
    ("system", "card", "release", "missing", "packages"),
    [
        (
            "Ubuntu-24",
            "GTX 1060 3GB",
            "6.8.0-71-generic",
            (),
            [
                "nvidia-headless-no-dkms-580-server",
                "nvidia-utils-580-server",
                "linux-modules-nvidia-580-server-generic",
                "linux-modules-nvidia-580-server-6.8.0-71-generic",
            ],
        ),
        # An older kernel runs than apt still has: the next one comes with the modules, and a reboot.
        (
            "Ubuntu-24",
            "RTX 4090",
            "6.14.0-27-generic",
            ("linux-modules-nvidia-580-server-open-6.14.0-27-generic",),
            [
                "nvidia-headless-no-dkms-580-server-open",
                "nvidia-utils-580-server",
                "linux-modules-nvidia-580-server-open-generic-hwe-24.04",
            ],
        ),
        # A flavour that the distribution builds no modules for.
        (
            "Ubuntu-24",
            "Tesla T4",
            "6.8.0-1025-kvm",
            (
                "linux-modules-nvidia-580-server-open-kvm",
                "linux-modules-nvidia-580-server-open-6.8.0-1025-kvm",
            ),
            [
                "nvidia-headless-no-dkms-580-server-open",
                "nvidia-utils-580-server",
                "nvidia-dkms-580-server-open",
                "dkms",
                "linux-headers-kvm",
                "linux-headers-6.8.0-1025-kvm",
            ],
        ),
        (
            "Debian-12",
            "GTX 1060 3GB",
            "6.1.0-37-cloud-amd64",
            ("linux-headers-6.1.0-37-cloud-amd64",),
            [
                "nvidia-smi",
                "libcuda1",
                "libnvidia-ml1",
                "nvidia-persistenced",
                "nvidia-kernel-dkms",
                "dkms",
                "linux-headers-cloud-amd64",
                "linux-image-cloud-amd64",
            ],
        ),
    ],
)
def test_modules_and_headers_follow_the_kernel(
    system: str, card: str, release: str, missing: tuple[str, ...], packages: list[str]
) -> None:
    planned = plan(system, card, release, *missing)
    signed = any(name.startswith("linux-modules") for name in packages)
    assert planned == {"packages": packages, "signed": signed, "problem": ""}


def test_a_kernel_without_modules_and_headers_is_refused() -> None:
    planned = plan("Debian-13", "Tesla T4", "6.8.12-4-pve", "linux-headers-6.8.12-4-pve")
    assert planned["packages"] == []
    assert planned["problem"] == (
        "it runs the kernel 6.8.12-4-pve, for which apt has neither the driver's modules nor headers to "
        "build them with: boot a kernel of the distribution, or give apt the source of this one's headers."
    )


def test_what_apt_can_install_is_read_from_its_policy() -> None:
    policy = (
        "nvidia-utils-580-server:\n  Installed: (none)\n  Candidate: 580.95.05-0ubuntu0.24.04.2\n"
        "  Version table:\n     580.95.05-0ubuntu0.24.04.2 500\n        500 mirror noble/restricted\n"
        "linux-headers-kvm:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
        "dkms:\n  Installed: 3.0.11\n  Candidate: 3.0.11\n  Version table:\n *** 3.0.11 100\n"
    )
    assert plugin.nvidia_available(policy) == ["nvidia-utils-580-server", "dkms"]


def test_driver_and_kernel_are_held_and_nothing_else() -> None:
    ours = [
        "nvidia-utils-580-server",
        "libnvidia-compute-580-server",
        "libcuda1",
        "firmware-nvidia-gsp",
        "nvidia-fabricmanager-580",
        "linux-modules-nvidia-580-server-generic",
        "linux-objects-nvidia-580-server-6.8.0-71-generic",
        "linux-generic",
        "linux-image-generic",
        "linux-headers-generic",
        "linux-image-6.8.0-71-generic",
        "linux-modules-6.8.0-71-generic",
    ]
    others = [
        "linux-libc-dev",
        "linux-image-6.8.0-60-generic",
        "nvidia-container-toolkit",
        "libnvidia-container1",
        "openssh-server",
    ]
    listed = [f"{name} install installed" for name in (*ours, *others)]
    listed.append("nvidia-utils-570-server deinstall config-files")
    kernel = ("generic", "6.8.0-71-generic")
    assert plugin.nvidia_holds(listed, *kernel, True) == ours
    held = [f"{name} hold installed" for name in (*ours, "openssh-server")]
    assert plugin.nvidia_holds(held, *kernel, True) == []
    # What others hold is theirs.
    assert plugin.nvidia_holds(held, *kernel, False) == ours


@pytest.mark.parametrize(
    ("secure_boot", "log", "dkms", "says"),
    [
        (
            "SecureBoot enabled",
            "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
            "nvidia/535.261.03, 6.1.0-37-amd64, x86_64: installed",
            "The kernel refuses the module, because no enrolled key has signed it (Secure Boot): enrol",
        ),
        (
            "SecureBoot enabled",
            "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
            "",
            "The kernel refuses the module, because no enrolled key has signed it (Secure Boot): enrol",
        ),
        # The message that only taints the kernel is no refusal.
        (
            "SecureBoot enabled",
            "nvidia: module verification failed: signature and/or required key missing - tainting kernel\n"
            "NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.",
            "",
            "The open modules of this branch leave this card alone: set nvidia_modules: proprietary.",
        ),
        (
            "",
            "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
            "",
            "This card needs the open modules: set nvidia_modules: open.",
        ),
        (
            "",
            "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.",
            "",
            "The card has fallen off the bus",
        ),
        (
            "SecureBoot disabled",
            "",
            "nvidia/550.163.01: added",
            "dkms has not installed the module (nvidia/550.163.01: added): see /var/lib/dkms/nvidia*/",
        ),
        (
            "SecureBoot disabled\n",
            "NVRM: first\n[   9.1] NVRM:   RmInitAdapter failed! (0x26)\nusb 1-1: new device",
            "",
            "The kernel says last: [ 9.1] NVRM: RmInitAdapter failed! (0x26); Secure Boot: disabled.",
        ),
        ("", "", "", "The kernel's log says nothing of it; Secure Boot: unknown. See dmesg and dkms status"),
    ],
)
def test_a_driver_that_does_not_run_is_explained_by_what_the_node_says(
    secure_boot: str, log: str, dkms: str, says: str
) -> None:
    assert plugin.nvidia_blame(secure_boot, log, dkms).startswith(says)


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


def test_a_build_chosen_by_hand_must_run_on_the_gpus() -> None:
    assert plugin.nvidia_variant(["9.0"], [580], VARIANTS, "cu126") == {"variant": "cu126", "problem": ""}
    for asked in ("cu130", "cpu"):
        answer = plugin.nvidia_variant(["6.1"], [580], VARIANTS, asked)
        assert answer["problem"] == (
            f"environment_variant asks for torch's build {asked}, which can't use these GPUs (compute "
            "capability 6.1, driver 580): leave it out, or set cu126."
        )


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
