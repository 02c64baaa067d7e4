"""What a rank used while it trained, as recorded (measured by `training.metrics.resource_use`)."""

from __future__ import annotations

from experiments.util.models import FiniteModel, FrozenModel


class Read(FiniteModel):
    """Figures from one source; null where they could not be read."""

    by: str  # who read them, how, and of what
    trouble: str | None  # why they, or some of them, are missing


class CpuUse(Read):
    """Processor time and context switches of the rank's process."""

    user_s: float | None
    system_s: float | None
    voluntary_switches: int | None
    involuntary_switches: int | None


class WaitingUse(Read):
    """How long the rank's threads were ready to run but had no core, summed over all threads."""

    waited_s: float | None


class MemoryUse(Read):
    """The peak resident memory of the rank's process."""

    peak_mb: float | None  # MB of 2^20 bytes


class DiskUse(Read):
    """What the rank's process read from and wrote to disks and network file systems."""

    read_bytes: int | None
    written_bytes: int | None


class Traffic(FrozenModel):
    """Bytes through one network interface."""

    sent_bytes: int
    received_bytes: int


class NetworkUse(Read):
    """Traffic of the rank's network namespace, other processes and ranks in it included."""

    namespace: (
        str | None
    )  # as the kernel names it; ranks of one node that name the same one share its figures
    interfaces: dict[str, Traffic] | None  # those that were counted


class Way(Read):
    """The network interface over which the rank reaches the others."""

    interface: str | None


class MachineUse(Read):
    """Time that the hypervisor took from this machine while it wanted to run, summed over all processors."""

    id: str | None  # the kernel's boot id: nodes that are containers of one machine have the same
    processors: int | None
    stolen_s: float | None


class EnergyUse(Read):
    """Energy of the machine's processor packages."""

    cpu_j: float | None


class RankUse(FiniteModel):
    """What one rank used between two readings, taken just before and just after the training function."""

    seconds: float  # between the readings
    cpu: CpuUse
    waiting: WaitingUse
    memory: MemoryUse
    disk: DiskUse
    network: NetworkUse
    way: Way
    machine: MachineUse
    energy: EnergyUse
