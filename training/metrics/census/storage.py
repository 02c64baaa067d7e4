"""How a process reads and writes: with which priority, and what the disks under its places are like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import psutil

from training.metrics.census.machine import Mount, mount_of
from training.metrics.census.process import number_of
from training.util.files import text_of

SYS: Final = Path("/sys")
CLASSES: Final[dict[int, str]] = {
    psutil.IOPRIO_CLASS_NONE: "by niceness",
    psutil.IOPRIO_CLASS_RT: "real time",
    psutil.IOPRIO_CLASS_BE: "best effort",
    psutil.IOPRIO_CLASS_IDLE: "idle",
}
"""Of I/O priorities, as in ioprio_set(2)."""

ROTATES: Final = {"0": "no", "1": "yes"}
LEVELLED: Final = (psutil.IOPRIO_CLASS_RT, psutil.IOPRIO_CLASS_BE)
"""Classes that have levels, of which 0 goes first."""


def input_and_output(places: Mapping[str, Path], of: str = "self") -> dict[str, str]:
    """Its I/O priority, and for each place the scheduler, read-ahead and kind of the disks under it.

    Of a place on the network there is only how far is read ahead; of one in memory, or in the layers of a
    container, nothing.
    """
    found = _priority(of)
    for purpose, place in places.items():
        if (mount := mount_of(place, of)) is not None:
            found |= {f"{purpose}, {name}": text for name, text in _under(mount).items()}
    return found


def _priority(of: str) -> dict[str, str]:
    try:
        of_class, level = psutil.Process(number_of(of) or None).ionice()
    except psutil.Error:
        return {}  # the process may not ask
    name = CLASSES[of_class]
    return {"priority": f"{name}, {level}" if of_class in LEVELLED else name}


def _under(mount: Mount) -> dict[str, str]:
    device = SYS / "dev" / "block" / mount.device
    if not device.exists() and mount.source.startswith("/dev/"):
        # The numbers of Btrfs and the like are no device's.
        device = SYS / "class" / "block" / Path(mount.source).resolve().name
    whole = _whole(device)
    disks = _disks(whole)
    ahead = text_of(whole / "queue" / "read_ahead_kb")
    found = {
        "scheduler": _listed(_chosen(text_of(disk / "queue" / "scheduler")) for disk in disks),
        "read-ahead in KiB": ahead or text_of(SYS / "class" / "bdi" / mount.device / "read_ahead_kb"),
        "rotates": _listed(ROTATES.get(text_of(disk / "queue" / "rotational") or "") for disk in disks),
    }
    return {name: text for name, text in found.items() if text}


def _whole(device: Path) -> Path:
    """The device, or that of which it is a partition: it alone has a queue."""
    folder = device.resolve()
    return folder.parent if (folder / "partition").exists() else folder


def _disks(device: Path) -> list[Path]:
    """What a device of the device mapper, or an array, consists of; any other is itself a disk."""
    parts = sorted((device / "slaves").glob("*"))
    return [disk for part in parts for disk in _disks(_whole(part))] or [device]


def _chosen(schedulers: str | None) -> str | None:
    """`none` of `[none] mq-deadline kyber`."""
    return schedulers and (schedulers.partition("[")[2].partition("]")[0] or schedulers)


def _listed(texts: Iterable[str | None]) -> str:
    return ", ".join(sorted({text for text in texts if text}))
