"""What the runs ran on: the nodes, where each rank was, and what its GPU did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.cluster.environment import Environment, Gpu
from experiments.records.record import Rank, Record
from experiments.report.formats import NOTHING, PERCENT, Format, Value, number, quantity
from experiments.report.tables import Column, Table, columns
from experiments.util.words import counted

TO: Final = "\N{EN DASH}"  # between the ends of a range of cores
MEGABYTES: Final = Format(unit=" MB")


def nodes_table(environment: Environment) -> Table:
    """The nodes of the cluster."""
    return Table(
        title="Nodes",
        before="",
        columns=[
            *columns("node", "groups", "cores", "memory", words=("node", "groups")),
            *(
                Column(name)
                for name in ("processor", "GPUs", "system", "kernel", "Docker", "Java", "virtualisation")
            ),
        ],
        rows=[
            [
                name,
                ", ".join(node.groups),
                Value(node.cores),
                Value(node.memory_mb, MEGABYTES),
                node.cpu,
                _gpus_text(node.gpus),
                node.distribution,
                node.kernel,
                node.docker or NOTHING,
                node.java or NOTHING,
                node.virtualization or NOTHING,
            ]
            for name, node in environment.nodes.items()
        ],
    )


def placement_table(records: Sequence[Record]) -> Table:
    """Where each rank of each run was."""
    return Table(
        title="Where the ranks ran",
        before="",
        columns=columns("run", "ranks", words=("run", "ranks")),
        rows=[
            [Value(record.run_id, kind="code"), "; ".join(_rank_text(rank) for rank in record.ranks)]
            for record in records
        ],
    )


def _rank_text(rank: Rank) -> str:
    cores = "core" if len(rank.affinity) == 1 else "cores"
    gpu = f", GPU {rank.visible_gpus}" if rank.visible_gpus else ""
    return (
        f"{rank.rank} on {rank.node or rank.host}, {cores} {_cores(rank.affinity)}, "
        f"{counted(rank.threads, 'thread')}, uid {rank.uid}{gpu}"
    )


def gpus_table(records: Sequence[Record]) -> Table:
    """What each rank's GPU, if it has one, did during training."""
    words = ("run", "GPU", "throttled")
    return Table(
        title="The GPUs during training",
        before="Sampled through NVML in each rank's process, once a second, during training.",
        columns=columns(
            "run",
            "rank",
            "GPU",
            "use, %",
            "peak memory, MB",
            "highest temperature, °C",
            "SM clock, MHz (lowest)",
            "power, W",
            "energy, J",
            "throttled",
            words=words,
        ),
        rows=[
            row
            for record in records
            for rank in record.ranks
            if (row := _gpu_row(record.run_id, rank)) is not None
        ],
    )


def _gpu_row(run_id: str, rank: Rank) -> list[Value | str] | None:
    gpu = rank.gpu
    if gpu is None:
        return None
    throttled = ", ".join(f"{reason} {quantity(share, PERCENT)}" for reason, share in gpu.throttled.items())
    return [
        Value(run_id, kind="code"),
        Value(rank.rank),
        gpu.name,
        Value(gpu.utilisation_percent_mean),
        Value(gpu.memory_mb_max),
        Value(gpu.temperature_c_max),
        Value(gpu.sm_clock_mhz_mean, note=number(gpu.sm_clock_mhz_min)),
        Value(gpu.power_w_mean, Format(1)),
        Value(gpu.energy_j),
        throttled or ("no" if gpu.samples else NOTHING),
    ]


def _gpus_text(gpus: Sequence[Gpu]) -> str:
    """The GPUs of a node, equal ones together."""
    names = [
        gpu.name if gpu.pseudo else f"{gpu.name}, {gpu.memory_mb} MB, {gpu.capability}, driver {gpu.driver}"
        for gpu in gpus
    ]
    return "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or NOTHING


def _cores(cores: Sequence[int]) -> str:
    """Core numbers, with neighbours joined into ranges."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}{TO}{part[-1]}" for part in parts)
