"""What a process runs on, as it sees it: cgroup and its limits, mounts, kernel, processors.

`of` is its name below /proc, as in `process`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from training.metrics.census.process import number_of
from training.util.files import text_of

PROC: Final = Path("/proc")
SYS: Final = Path("/sys")
#: Files of a cgroup, of versions 2 and 1, with what they hold where nothing is limited.
CGROUP_FILES: Final = {
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "cpu.idle": "0",
    "cpu.uclamp.max": "max",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "io.bfq.weight": "default 100",
    "io.latency": "",
    "io.max": "",
    "io.prio.class": "no-change",
    "io.weight": "default 100",
    "memory.high": "max",
    "memory.max": "max",
    "memory.swap.max": "max",
    "pids.max": "max",
    "blkio.bfq.weight": "100",
    "blkio.prio.class": "no-change",
    "blkio.throttle.read_bps_device": "",
    "blkio.throttle.read_iops_device": "",
    "blkio.throttle.write_bps_device": "",
    "blkio.throttle.write_iops_device": "",
    "cpu.cfs_quota_us": "-1",
    "cpu.cfs_period_us": "100000",
    "cpu.shares": "1024",
    "memory.limit_in_bytes": "9223372036854771712",
}
KERNEL_FILES: Final = {
    "huge pages": "kernel/mm/transparent_hugepage/enabled",
    "defragmentation for huge pages": "kernel/mm/transparent_hugepage/defrag",
    "clock source": "devices/system/clocksource/clocksource0/current_clocksource",
    "isolated cores": "devices/system/cpu/isolated",
    "cores without ticks": "devices/system/cpu/nohz_full",
    "simultaneous multithreading": "devices/system/cpu/smt/active",
    "memory nodes": "devices/system/node/online",
}
"""Below /sys."""

PROC_FILES: Final = {
    "version": "sys/kernel/osrelease",
    "swappiness": "sys/vm/swappiness",
    "overcommitted memory": "sys/vm/overcommit_memory",
    "reclaims from near nodes": "sys/vm/zone_reclaim_mode",
    "balances memory nodes": "sys/kernel/numa_balancing",
    "groups by session": "sys/kernel/sched_autogroup_enabled",
    "address space at random": "sys/kernel/randomize_va_space",
}
"""Below /proc."""

FREQUENCY_FILES: Final = {
    "frequency driver": "cpu0/cpufreq/scaling_driver",
    "governor": "cpu0/cpufreq/scaling_governor",
    "lowest frequency in kHz": "cpu0/cpufreq/scaling_min_freq",
    "highest frequency in kHz": "cpu0/cpufreq/scaling_max_freq",
    "energy preference": "cpu0/cpufreq/energy_performance_preference",
    "boost": "cpufreq/boost",
    "no turbo": "intel_pstate/no_turbo",
}
"""Below /sys/devices/system/cpu; cpu0's, since all cores of a machine are set alike."""

OF_CPUINFO: Final = {
    "vendor_id": "vendor",
    "model name": "model",
    "microcode": "microcode",
    "cache size": "cache",
    "CPU implementer": "implementer",
    "CPU part": "part",
}
"""Lines of /proc/cpuinfo, on x86 and on ARM, by what they say."""

INSTRUCTIONS: Final = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16", "i8mm")
"""How the names of the instruction sets begin that numeric libraries choose their kernels by."""


def cgroup(of: str = "self") -> dict[str, str]:
    """Its cgroups, and what limits them or those above, by file and how many levels above."""
    found = {}
    for line in (text_of(PROC / of / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        found[f"path of {controllers}" if controllers else "path"] = path
        root = SYS / "fs" / "cgroup" / controllers
        for level, folder in enumerate(_up(path)):
            found |= _limits(root / folder.lstrip("/"), f"{level} above" if level else "its own")
    return dict(sorted(found.items()))


def _up(path: str) -> Iterator[str]:
    """A cgroup's path and those above it; what is above the namespace's root is not to be seen."""
    yield path
    yield from map(str, PurePosixPath(path).parents)


def _limits(folder: Path, which: str) -> dict[str, str]:
    values = {name: text_of(folder / name) for name in CGROUP_FILES}
    return {
        f"{name}, {which}": value
        for name, value in values.items()
        if value is not None and value != CGROUP_FILES[name]
    }


def mounts(places: Mapping[str, Path], of: str = "self") -> dict[str, str]:
    """What each place is mounted from: file system, source and options, as in /proc/self/mountinfo."""
    found = {purpose: mount_of(place, of) for purpose, place in places.items()}
    return {purpose: str(mount) for purpose, mount in found.items() if mount is not None}


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo, proc_pid_mountinfo(5)."""

    device: str  # of its files, as major:minor
    file_system: str
    source: str
    options: str

    def __str__(self) -> str:
        return f"{self.file_system} {self.source} ({self.options})"


def mount_of(place: Path, of: str = "self") -> Mount | None:
    """The mount that a place is on; None if the process sees none there."""
    table = [line.split(" ") for line in (text_of(PROC / of / "mountinfo") or "").splitlines()]
    below = [fields for fields in table if place.resolve().is_relative_to(_unescaped(fields[4]))]
    if not below:
        return None
    # Of mounts on the same point the last one covers the others.
    fields = max(reversed(below), key=lambda fields: len(fields[4]))
    file_system, source = fields[fields.index("-") + 1 :][:2]
    return Mount(fields[2], file_system, source, fields[5])


def _unescaped(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def kernel() -> dict[str, str]:
    """What of the kernel's settings may change how fast a process runs."""
    files = {name: PROC / path for name, path in PROC_FILES.items()}
    files |= {name: SYS / path for name, path in KERNEL_FILES.items()}
    found = {name: text for name, path in files.items() if (text := text_of(path))}
    swap = (text_of(PROC / "swaps") or "").splitlines()[1:]
    found["swap in KiB"] = str(sum(int(line.split()[2]) for line in swap))
    flaws = SYS / "devices" / "system" / "cpu" / "vulnerabilities"
    if flaws.is_dir():
        mitigated = {path.name: text_of(path) for path in sorted(flaws.iterdir())}
        found |= {f"against {name}": text for name, text in mitigated.items() if text}
    return found


def processor() -> dict[str, str]:
    """Its model, instruction sets, caches, and how its frequency is governed."""
    first = (text_of(PROC / "cpuinfo") or "").partition("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    about = {name.strip(): value.strip() for name, _, value in lines}
    found = {words: about[name] for name, words in OF_CPUINFO.items() if about.get(name)}
    flags = about.get("flags") or about.get("Features") or ""
    found["instructions"] = " ".join(sorted(flag for flag in flags.split() if _counts(flag)))
    if "flags" in about:  # only x86 says
        found["hypervisor"] = "yes" if "hypervisor" in flags.split() else "none to be seen"
    folder = SYS / "devices" / "system" / "cpu"
    found |= {name: text for name, path in FREQUENCY_FILES.items() if (text := text_of(folder / path))}
    for cache in sorted((folder / "cpu0" / "cache").glob("index*")):
        level, kind, size = (text_of(cache / name) for name in ("level", "type", "size"))
        found |= {f"L{level} {kind}": size} if size else {}
    return found


def frequency(of: str = "self") -> dict[str, str]:
    """How fast the cores that it may use run at this moment: the slowest and the fastest, in MHz.

    A virtual machine may see only the nominal frequency, and on ARM the kernel tells it only with cpufreq.
    """
    blocks = [
        {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":") for line in block.splitlines())
        }
        for block in (text_of(PROC / "cpuinfo") or "").split("\n\n")
    ]
    told = {each.get("processor"): each.get("cpu MHz") for each in blocks}
    found = [_mhz(core, told.get(str(core))) for core in os.sched_getaffinity(number_of(of))]
    known = [each for each in found if each is not None]
    if not known:
        return {}
    return {"slowest core, MHz": f"{min(known):.0f}", "fastest core, MHz": f"{max(known):.0f}"}


def _mhz(core: int, told: str | None) -> float | None:
    """By /proc/cpuinfo, or else by cpufreq, which counts in kHz."""
    if told:
        return float(told)
    counted = text_of(SYS / "devices" / "system" / "cpu" / f"cpu{core}" / "cpufreq" / "scaling_cur_freq")
    return float(counted) / 1000 if counted else None


def _counts(flag: str) -> bool:
    return any(name in flag for name in INSTRUCTIONS)
