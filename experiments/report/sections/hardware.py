"""What the runs ran on, as the report says it: where each rank was, and what its GPU did."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cluster.environment import Gpu
from experiments.records.record import Rank, Record
from experiments.report.tables import NOTHING
from experiments.util.words import counted


def placement(record: Record) -> dict[str, str]:
    """Where each rank of a run was."""
    return {
        "run_id": record.run_id,
        "ranks": "; ".join(
            f"{rank.rank} on {rank.node or rank.host}, {'core' if len(rank.affinity) == 1 else 'cores'} "
            f"{_cores(rank.affinity)}, {counted(rank.threads, 'thread')}, uid {rank.uid}"
            + (f", GPU {rank.visible_gpus}" if rank.visible_gpus else "")
            for rank in record.ranks
        ),
    }


def gpus_text(gpus: Sequence[Gpu]) -> str:
    """The GPUs of a node, equal ones together."""
    names = [
        gpu.name if gpu.pseudo else f"{gpu.name}, {gpu.memory_mb} MB, {gpu.capability}, driver {gpu.driver}"
        for gpu in gpus
    ]
    return "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or NOTHING


def gpu_row(record: Record, rank: Rank) -> dict[str, str]:
    """What the GPU of a rank did while it trained; only for a rank that has one."""
    gpu = rank.gpu
    assert gpu is not None

    def number(value: float | None, form: str = ".0f") -> str:
        return NOTHING if value is None else format(value, form)

    return {
        "run_id": record.run_id,
        "rank": str(rank.rank),
        "name": gpu.name,
        "use": number(gpu.utilisation_percent_mean),
        "memory": number(gpu.memory_mb_max),
        "temperature": number(gpu.temperature_c_max),
        "clock": f"{number(gpu.sm_clock_mhz_mean)} ({number(gpu.sm_clock_mhz_min)})",
        "power": number(gpu.power_w_mean, ".1f"),
        "energy": number(gpu.energy_j),
        "throttled": ", ".join(f"{reason} {share * 100:.0f} %" for reason, share in gpu.throttled.items())
        or ("no" if gpu.samples else NOTHING),
    }


def _cores(cores: Sequence[int]) -> str:
    """Core numbers with ranges of neighbours drawn together."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}{NOTHING}{part[-1]}" for part in parts)
