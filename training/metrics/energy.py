"""Energy of the processor, from the kernel's counters of its packages (RAPL, through powercap)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

POWERCAP: Final = Path("/sys/class/powercap")
MOST_W: Final = 1000.0  # assumed limit of a package that reports none
BURST_S: Final = 60.0  # a package's limit holds for its mean over about this time, not at every moment


class EnergyError(RuntimeError):
    """The energy is not known; its text is one sentence that says why."""


@dataclass(frozen=True)
class Package:
    """A package's counter, read once."""

    energy_uj: int
    range_uj: int  # where the counter wraps around to 0
    limit_w: float | None  # the package's long-term limit; None if unknown


def read_packages(folder: Path = POWERCAP) -> dict[str, Package]:
    """The counters of all packages of this machine, by the names of their zones.

    Leaves out zones within a package (cores, memory), which the package already counts, the zone of the
    whole platform, and the duplicate counters of intel-rapl-mmio.

    Raises:
        EnergyError: there are none, or they can't be read.
    """
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _is_package(zone)]
    if not zones:
        raise EnergyError(
            f"{folder} shows no package of the processor, as in virtual machines and most containers."
        )
    try:
        return {zone.name: _read(zone) for zone in zones}
    except PermissionError as error:
        raise EnergyError(
            f"{error.filename} can't be read by the user of the training (uid {os.geteuid()}); by default "
            "only root can."
        ) from error
    except (OSError, ValueError) as error:
        raise EnergyError(f"The counters in {folder} can't be read: {error}.") from error


def spent_j(before: Mapping[str, Package], after: Mapping[str, Package], seconds: float) -> float:
    """Joules used by all packages together between two readings, `seconds` apart.

    Raises:
        EnergyError: the packages differ, or a counter may have wrapped around more than once.
    """
    if set(before) != set(after):
        raise EnergyError(f"The packages changed meanwhile: {', '.join(sorted(set(before) ^ set(after)))}.")
    total = 0
    for zone, end in after.items():
        most_w = MOST_W if end.limit_w is None else end.limit_w
        if most_w * (seconds + BURST_S) * 1e6 >= end.range_uj:
            raise EnergyError(
                f"The counter of {zone} may have wrapped around more than once: it holds "
                f"{end.range_uj / 1e6:.0f} J, and the package may draw {most_w:.0f} W."
            )
        spent = end.energy_uj - before[zone].energy_uj
        total += spent if spent >= 0 else spent + end.range_uj
    return total / 1e6


def _is_package(zone: Path) -> bool:
    if not re.fullmatch(r"intel-rapl:\d+", zone.name):
        return False
    try:
        return _text(zone / "name").startswith("package")
    except OSError:
        return False


def _read(zone: Path) -> Package:
    return Package(
        energy_uj=int(_text(zone / "energy_uj")),
        range_uj=int(_text(zone / "max_energy_range_uj")),
        limit_w=_limit_w(zone),
    )


def _limit_w(zone: Path) -> float | None:
    """The long-term limit, if there is one and it is enforced."""
    try:
        if _text(zone / "enabled") != "1" or _text(zone / "constraint_0_name") != "long_term":
            return None
        return int(_text(zone / "constraint_0_power_limit_uw")) / 1e6
    except (FileNotFoundError, PermissionError):
        return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
