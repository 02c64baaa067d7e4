"""What a rank uses while it trains: read once before and once after, never in between.

Every gauge says what reads it and how. Figures that can't be read are null, with the reason in `trouble`;
training continues.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from training.metrics.energy import POWERCAP, read_packages, spent_j
from training.util.network import interface_towards_master

LOOPBACK: Final = "lo"
NANOSECOND: Final = 1e-9  # s

T = TypeVar("T")


@dataclass(frozen=True)
class Gauge(Generic[T]):
    """Figures from one source."""

    by: str  # what reads it, how, and what it covers
    figures: tuple[str, ...]  # their names
    read: Callable[[], T]
    spent: Callable[[T, T, float], dict[str, Any]]  # the figures, from two readings and the s between them


class _Reading(Generic[T]):
    """A gauge that was read once."""

    def __init__(self, gauge: Gauge[T]) -> None:
        self._gauge = gauge
        self._before: T | None = None
        self._trouble: str | None = None
        try:
            self._before = gauge.read()
        except Exception as error:  # whatever it is, the record says what is missing and why
            self._trouble = _reason(error)

    def stop(self, seconds: float) -> dict[str, Any]:
        """Read it again; returns the figures."""
        figures: dict[str, Any] = {}
        if self._before is not None:
            try:
                figures = self._gauge.spent(self._before, self._gauge.read(), seconds)
            except Exception as error:  # as above
                self._trouble = _reason(error)
        return {
            **dict.fromkeys(self._gauge.figures),
            "by": self._gauge.by,
            "trouble": self._trouble,
            **figures,
        }


class Meter:
    """Starts when created; `stop` returns what was used since."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        """Read everything once.

        Args:
            powercap: the kernel's folder of energy counters.
        """
        # The process's own time is read last here and first in `stop`, so it excludes the reading itself.
        self._readings = {name: _Reading(gauge) for name, gauge in reversed(gauges(powercap).items())}
        self._began = time.perf_counter()

    def stop(self) -> dict[str, Any]:
        """Read everything again; returns the seconds in between, and the figures of each gauge by name."""
        seconds = time.perf_counter() - self._began
        return {"seconds": seconds} | {
            name: reading.stop(seconds) for name, reading in reversed(self._readings.items())
        }


def gauges(powercap: Path) -> dict[str, Gauge[Any]]:
    """All gauges, by name."""
    return {
        "cpu": Gauge(
            by="getrusage, of the rank's process and of those of its children that have ended",
            figures=("user_s", "system_s", "voluntary_switches", "involuntary_switches"),
            read=_read_cpu,
            spent=_difference,
        ),
        "waiting": Gauge(
            by="/proc/self/task/*/schedstat, of the threads that the rank's process had at the end",
            figures=("waited_s",),
            read=_read_waiting,
            spent=_waited,
        ),
        "memory": Gauge(
            by="VmHWM of /proc/self/status, of the rank's process since it began",
            figures=("peak_mb",),
            read=_read_peak,
            spent=lambda _, peak_mb, __: {"peak_mb": peak_mb},
        ),
        "disk": Gauge(
            by="/proc/self/io, of the rank's process: what was asked of disks and network file systems",
            figures=("read_bytes", "written_bytes"),
            read=_read_disk,
            spent=_difference,
        ),
        "network": Gauge(
            by="/proc/net/dev, of all that runs in the rank's network namespace, loopback left out",
            figures=("namespace", "interfaces"),
            read=_read_interfaces,
            spent=_sent,
        ),
        "way": Gauge(
            by="the address that leads to MASTER_ADDR",
            figures=("interface",),
            read=_interface_to_others,
            spent=lambda interface, _, __: {"interface": interface},
        ),
        "machine": Gauge(
            by="/proc/stat, of the whole machine, all its processors added up",
            figures=("id", "processors", "stolen_s"),
            read=_read_stolen_s,
            spent=_stolen,
        ),
        "energy": Gauge(
            by="RAPL's package counters, of the whole machine with all that runs on it",
            figures=("cpu_j",),
            read=partial(read_packages, powercap),
            spent=lambda before, after, seconds: {"cpu_j": spent_j(before, after, seconds)},
        ),
    }


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"


def _difference(before: Mapping[str, float], after: Mapping[str, float], _: float) -> dict[str, Any]:
    return {name: end - before[name] for name, end in after.items()}


def _read_cpu() -> dict[str, float]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "user_s": own.ru_utime + children.ru_utime,
        "system_s": own.ru_stime + children.ru_stime,
        "voluntary_switches": own.ru_nvcsw + children.ru_nvcsw,
        "involuntary_switches": own.ru_nivcsw + children.ru_nivcsw,
    }


def _read_waiting() -> dict[str, int]:
    """Nanoseconds that each thread was ready to run but had no core (the second number of schedstat)."""
    waited = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            waited[task.name] = int((task / "schedstat").read_text(encoding="utf-8").split()[1])
        except (FileNotFoundError, ProcessLookupError) as error:
            if task.exists():  # otherwise the thread has just ended
                raise RuntimeError("The kernel does not record how long threads wait.") from error
    return waited


def _waited(before: Mapping[str, int], after: Mapping[str, int], _: float) -> dict[str, Any]:
    # A thread that started in between has waited only since then.
    spent = sum(end - before.get(thread, 0) for thread, end in after.items())
    return {"waited_s": spent * NANOSECOND}


def _read_peak() -> float:
    """Peak resident memory in MB (2^20 bytes)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024  # the kernel reports KiB
    raise RuntimeError("/proc/self/status has no VmHWM.")


def _read_disk() -> dict[str, float]:
    import psutil

    counters = psutil.Process().io_counters()
    return {"read_bytes": counters.read_bytes, "written_bytes": counters.write_bytes}


def _read_interfaces() -> dict[str, dict[str, int]]:
    import psutil

    # The counters have 64 bits: no need for psutil's correction of wrap-arounds.
    counters = psutil.net_io_counters(pernic=True, nowrap=False)
    return {
        name: {"sent_bytes": each.bytes_sent, "received_bytes": each.bytes_recv}
        for name, each in counters.items()
        if name != LOOPBACK
    }


def _sent(
    before: Mapping[str, dict[str, int]], after: Mapping[str, dict[str, int]], _: float
) -> dict[str, Any]:
    interfaces, anew = {}, []
    for name, end in sorted(after.items()):
        # An interface created in between started at 0.
        spent = {way: count - before.get(name, {}).get(way, 0) for way, count in end.items()}
        if min(spent.values()) < 0:
            anew.append(name)
        else:
            interfaces[name] = spent
    found = {"namespace": Path("/proc/self/ns/net").readlink().name, "interfaces": interfaces}
    if anew:
        found["trouble"] = f"Not counted because it was recreated meanwhile: {', '.join(anew)}."
    return found


def _interface_to_others() -> str:
    """The interface that leads to where the ranks meet."""
    if "MASTER_ADDR" not in os.environ:
        raise RuntimeError("MASTER_ADDR is not set: the rank was not launched to meet others.")
    name = interface_towards_master()
    if name == LOOPBACK:
        raise RuntimeError("The ranks meet over loopback, which is not counted.")
    return name


def _read_stolen_s() -> float:
    import psutil

    return float(psutil.cpu_times().steal)


def _stolen(before: float, after: float, _: float) -> dict[str, Any]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return {"id": boot, "processors": os.cpu_count(), "stolen_s": after - before}
