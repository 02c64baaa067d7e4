"""Filters that decide what a GPU needs, from the tables in vars/main.yml alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def version(text: str) -> tuple[int, ...]:
    """`"8.6"` as a pair of numbers that can be compared."""
    return tuple(int(part) for part in str(text).split("."))


def nvidia_models(devices: Sequence[str], chips: Sequence[Row]) -> list[dict[str, Any]]:
    """Look up each PCI device in the table of chips.

    Args:
        devices: PCI device ids, four hexadecimal digits each.
        chips: `nvidia_chips`.

    Returns:
        For each device its id, architecture and compute capability; the latter two are None if no row has it.
    """
    models = []
    for device in devices:
        row = next((c for c in chips if int(c["first"], 16) <= int(device, 16) <= int(c["last"], 16)), None)
        models.append(
            {
                "device": device,
                "architecture": row["architecture"] if row else None,
                "capability": row["capability"] if row else None,
            }
        )
    return models


def nvidia_driver(
    models: Sequence[Row],
    system: str,
    drivers: Mapping[str, Sequence[Row]],
    architectures: Mapping[str, Row],
    branch: str = "",
    modules: str = "",
    switches: Sequence[str] = (),
) -> dict[str, Any]:
    """The row of the table of drivers that serves all GPUs of a node.

    Args:
        models: the node's GPUs, as `nvidia_models` returns them.
        system: distribution and major version, such as Debian-12.
        drivers: `nvidia_drivers`.
        architectures: `nvidia_architectures`.
        branch: the only branch allowed; empty for any.
        modules: the only kind of kernel modules allowed, `open` or `proprietary`; empty for any.
        switches: PCI device ids of the node's NVSwitches.

    Returns:
        The row with an added `problem` of ""; or {"problem": a sentence} if no row fits.
    """
    unknown = sorted({str(model["device"]) for model in models if not model["architecture"]})
    if unknown:
        return _problem(
            f"its GPU 10de:{unknown[0]} is in no row of nvidia_chips (roles/nvidia/vars/main.yml): "
            "add one for it"
        )
    rows = drivers.get(system)
    if not rows:
        return _problem(
            f"there is no driver for {system} in nvidia_drivers: use one of {', '.join(sorted(drivers))}"
        )
    names = sorted({str(model["architecture"]) for model in models})
    needs = [architectures[name] for name in names]
    which = " and ".join(names)
    kinds = [kind for kind in needs[0]["modules"] if all(kind in need["modules"] for need in needs)]
    if not kinds:
        return _problem(
            f"its GPUs ({which}) need different kernel modules, but a node has only one kind: put them "
            "into separate nodes"
        )
    kinds = [kind for kind in kinds if not modules or kind == modules]
    if not kinds:
        return _problem(
            f"nvidia_modules asks for {modules} modules, which can't drive {which}: leave it empty, or set "
            f"{' or '.join(needs[0]['modules'])}"
        )
    first, last = max(need["first"] for need in needs), min(need["last"] for need in needs)
    reach = f"{last} or older" if last < 999 else f"{first} or newer"
    if branch and not first <= int(branch) <= last:
        return _problem(f"nvidia_branch asks for the driver {branch}, but {which} needs {reach}")
    fitting = [
        row
        for kind in kinds
        for row in rows
        if row["modules"] == kind
        and first <= int(row["branch"]) <= last
        and (not branch or int(row["branch"]) == int(branch))
    ]
    if not fitting:
        there = ", ".join(dict.fromkeys(str(row["branch"]) for row in rows))
        asked = f"nvidia_branch asks for {branch}" if branch else f"{which} needs the driver {reach}"
        return _problem(f"{asked}, but {system} has {there}: use another release or another GPU")
    # Open modules that may leave a card alone come last: only a wish for them chooses them.
    open_from = max(int(need.get("open_from", 0)) for need in needs)
    fitting.sort(key=lambda row: row["modules"] == "open" and int(row["branch"]) < open_from)
    if switches and not fitting[0].get("fabric"):
        others = sorted(name for name in drivers if any(row.get("fabric") for row in drivers[name]))
        return _problem(
            f"NVSwitches join its GPUs, which takes the fabric manager, and {system} has no package of it: "
            f"use {' or '.join(others)}, or install both yourself and set nvidia_driver_managed: false"
        )
    return {**fitting[0], "problem": ""}


def nvidia_flavour(release: str, kernels: Sequence[Row]) -> str:
    """The flavour of the kernel `release` (`uname -r`) in the table `kernels`; "" if it is in no row."""
    return next((str(row["flavour"]) for row in kernels if re.fullmatch(row["release"], release)), "")


def nvidia_names(choice: Row, flavour: str, release: str) -> list[str]:
    """All packages that a node with this row of drivers and this kernel may need; not all of them exist."""
    ends = [end for end in (flavour, release) if end]
    prebuilt = [f"{choice['prebuilt']}-{end}" for end in ends] if choice.get("prebuilt") else []
    kernels = [f"linux-headers-{end}" for end in ends] + [f"linux-image-{flavour}"] * bool(flavour)
    return [*choice["packages"], *prebuilt, str(choice["dkms"]), "dkms", *kernels]


def nvidia_available(policy: str) -> list[str]:
    """The packages that apt can install, by the output of `apt-cache policy`."""
    found = re.findall(r"^(\S+):\n(?:  .*\n)*?  Candidate: (.*)$", policy, re.MULTILINE)
    return [name for name, candidate in found if candidate != "(none)"]


def nvidia_plan(choice: Row, flavour: str, release: str, available: Sequence[str]) -> dict[str, Any]:
    """What to install for a row of drivers.

    Args:
        choice: the row.
        flavour: of the running kernel, as `nvidia_flavour` returns it.
        release: of the running kernel.
        available: those of `nvidia_names` that apt can install.

    Returns:
        {"packages": names, "signed": whether the distribution has built the modules, "problem": ""}, or an
        empty list and a sentence.
    """
    ends = [end for end in (flavour, release) if end]
    signed = [name for end in ends if (name := f"{choice.get('prebuilt')}-{end}") in available]
    headers = [name for end in ends if (name := f"linux-headers-{end}") in available]
    if signed:
        return {"packages": [*choice["packages"], *signed], "signed": True, "problem": ""}
    if headers:
        # Headers of the running kernel that are gone come with a newer kernel.
        newer = [] if f"linux-headers-{release}" in headers else [f"linux-image-{flavour}"]
        built = [*choice["packages"], str(choice["dkms"]), "dkms", *headers, *(set(newer) & set(available))]
        return {"packages": built, "signed": False, "problem": ""}
    return {
        "packages": [],
        "signed": False,
        **_problem(
            f"it runs the kernel {release}, for which apt has neither the driver's modules nor headers to "
            "build them with: boot a kernel of the distribution, or give apt the source of this one's headers"
        ),
    }


def nvidia_holds(listed: Sequence[str], flavour: str, release: str, hold: bool) -> list[str]:
    """The packages whose selection must change so that driver and kernel are on hold, or no longer.

    Args:
        listed: lines of dpkg-query: package, what is wanted (`install`, `hold`), what is there (`installed`).
        flavour: of the running kernel.
        release: of the running kernel.
        hold: whether they are to be on hold.
    """
    # The container toolkit is pinned to its version already.
    driver = re.compile(
        r"(lib|firmware-)?nvidia-(?!container).*|libcuda1|libcudadebugger1"
        r"|linux-(modules|objects|signatures)-nvidia-.*"
    )
    ends = {end for end in (flavour, release) if end}
    kernel = {f"linux-{part}{end}" for part in ("", "image-", "headers-", "modules-") for end in ends}
    found = []
    for line in listed:
        name, wanted, there = line.split()
        ours = there == "installed" and (driver.fullmatch(name) or name in kernel)
        if ours and (wanted == "hold") != hold:
            found.append(name)
    return found


def nvidia_blame(secure_boot: str, log: str, dkms: str) -> str:
    """Why a driver does not run, as far as the node says, with what to do.

    Args:
        secure_boot: output of `mokutil --sb-state`; empty if it is not known.
        log: the kernel's messages, and what loading the module said.
        dkms: output of `dkms status`; empty without dkms.
    """
    refused = (
        r"Loading of (unsigned module|module with unavailable key) is rejected"
        r"|Lockdown: .*unsigned module loading|Key was rejected by service"
    )
    if re.search(refused, log):
        return (
            "The kernel refuses the module, because no enrolled key has signed it (Secure Boot): enrol the "
            "key of dkms (mokutil --import /var/lib/dkms/mok.pub, then reboot), or switch Secure Boot off."
        )
    if "Open nvidia.ko is only ready for use on Data Center GPUs" in log:
        return "The open modules of this branch leave this card alone: set nvidia_modules: proprietary."
    if re.search(r"requires use of the NVIDIA open (GPU )?kernel modules", log):
        return "This card needs the open modules: set nvidia_modules: open."
    if "fallen off the bus" in log:
        return "The card has fallen off the bus: check its power and passthrough, then restart the machine."
    if failed := re.search(r"^nvidia.*: *(added|built|broken).*$", dkms, re.MULTILINE):
        return (
            f"dkms has not installed the module ({' '.join(failed[0].split())}): see "
            "/var/lib/dkms/nvidia*/*/build/make.log there."
        )
    said = [line for line in log.splitlines() if "NVRM" in line]
    told = (
        f"The kernel says last: {' '.join(said[-1].split())}"
        if said
        else "The kernel's log says nothing of it"
    )
    state = re.search(r"SecureBoot (\w+)", secure_boot)
    return f"{told}; Secure Boot: {state[1] if state else 'unknown'}. See dmesg and dkms status there."


def nvidia_variant(
    capabilities: Sequence[str], branches: Sequence[int], variants: Sequence[Row], asked: str = ""
) -> dict[str, str]:
    """The build of torch that runs on all GPUs of a cluster.

    Args:
        capabilities: of all GPUs of the inventory, such as "6.1".
        branches: of the drivers of all nodes.
        variants: `nvidia_variants`.
        asked: the build that the inventory or the command line chooses; empty for none.

    Returns:
        {"variant": name, "problem": ""}, or {"variant": "", "problem": a sentence}.
    """
    if not capabilities:
        return {"variant": "", **_problem("no node of the inventory has an NVIDIA GPU")}
    oldest, newest = min(capabilities, key=version), max(capabilities, key=version)
    fitting = [
        row
        for row in variants
        if version(row["first"]) <= version(oldest) and version(newest) <= version(row["last"])
    ]
    if not fitting:
        both = oldest if oldest == newest else f"both {oldest} and {newest}"
        leave = "those" if oldest == newest else "the older or the newer ones"
        return {
            "variant": "",
            **_problem(
                f"no build of torch runs on GPUs with compute capability {both}: "
                f"leave {leave} out of the inventory"
            ),
        }
    driven = [row for row in fitting if not branches or min(branches) >= int(row["branch"])]
    if not driven:
        needed = min(int(row["branch"]) for row in fitting)
        return {
            "variant": "",
            **_problem(
                f"compute capability {newest} needs torch's build {fitting[-1]['variant']}, which needs the "
                f"driver {needed} or newer, but there is {min(branches)}: use a release that has it"
            ),
        }
    names = [str(row["variant"]) for row in driven]
    if asked and asked not in names:
        return {
            "variant": "",
            **_problem(
                f"environment_variant asks for torch's build {asked}, which can't use these GPUs (compute "
                f"capability {', '.join(sorted(set(capabilities), key=version))}, driver "
                f"{min(branches) if branches else 'unknown'}): leave it out, or set {' or '.join(names)}"
            ),
        }
    return {"variant": asked or names[0], "problem": ""}


def nvidia_table(found: Mapping[str, Any]) -> list[str]:
    """The results of the GPU check as lines of a table, followed by the all-reduce."""
    rows = [["rank", "node", "GPU", "memory", "capability", "driver", "torch", "CUDA", "verdict"]]
    for rank in found["ranks"]:
        memory = f"{rank['memory_mb']} MB" if rank["memory_mb"] else "-"
        told = [rank["name"], memory, rank["capability"], rank["driver"], rank["torch"], rank["cuda"]]
        verdict = "fails" if rank["trouble"] else "computes"
        rows.append([str(rank["rank"]), rank["node"], *(str(each or "-") for each in told), verdict])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    names = sorted({str(rank["name"]) for rank in found["ranks"]})
    if len(names) > 1:
        lines.append(f"The GPUs differ ({', '.join(names)}): times are those of the slowest.")
    if found["all_reduce"]:
        latency, bandwidth = (found["all_reduce"][key] for key in ("latency_us", "bus_gb_per_s"))
        lines.append(
            f"All-reduce by {found['backend']} over {len(found['ranks'])} ranks: latency {latency:.0f} us, "
            f"bus bandwidth {bandwidth:.2f} GB/s."
        )
    return lines


def nvidia_failure(rank: Mapping[str, Any]) -> str:
    """What is wrong with a rank's GPU, in a sentence that says where."""
    return f"{rank['node']}, rank {rank['rank']} ({rank['name']}): {rank['trouble']}"


def nvidia_last_line(text: str) -> str:
    """The last meaningful line of a failed command's output."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip(" =-")]
    return lines[-1] if lines else "the check of the GPUs failed without any output."


def _problem(sentence: str) -> dict[str, str]:
    return {"problem": f"{sentence}."}


class FilterModule:
    """Entry point for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "nvidia_models": nvidia_models,
            "nvidia_driver": nvidia_driver,
            "nvidia_flavour": nvidia_flavour,
            "nvidia_names": nvidia_names,
            "nvidia_available": nvidia_available,
            "nvidia_plan": nvidia_plan,
            "nvidia_holds": nvidia_holds,
            "nvidia_blame": nvidia_blame,
            "nvidia_variant": nvidia_variant,
            "nvidia_table": nvidia_table,
            "nvidia_failure": nvidia_failure,
            "nvidia_last_line": nvidia_last_line,
        }
