"""What runs used, from the counters that their ranks read: one number for each run, and cells' means."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.analysis.figures import Cell
from experiments.analysis.statistics import Estimate, estimate
from experiments.records.rank_use import RankUse
from experiments.records.record import Rank, Record

MB: Final = 2**20  # bytes
GRADIENT_BYTES: Final = {"dense": 4, "bf16": 2, "fp16": 2}
"""Bytes that are sent for each parameter, by what `gradient_sync` came to; of others nobody knows before."""


@dataclass(frozen=True)
class CellUse:
    """What the runs of a cell used, by quantity; None where no run has it."""

    cell: Cell
    runs: int  # that have any of it
    found: dict[str, Estimate | None]


def resource_use(cells: Sequence[Cell]) -> list[CellUse]:
    """What the runs of each cell used; runs that are not timed, or have none of it, are left out."""
    found = []
    for cell in cells:
        telling = [record for record in cell.timed if any(rank.use for rank in record.ranks)]
        if telling:
            quantities = {name: estimate(_values(telling, of)) for name, of in QUANTITIES.items()}
            found.append(CellUse(cell, len(telling), quantities))
    return found


def ring_bytes(parameters: int, ranks: int, width: int = 4) -> float:
    """Bytes that each rank sends, and receives, when gradients of `width` bytes are summed in a ring."""
    return parameters * width * 2 * (ranks - 1) / ranks


def _values(records: Iterable[Record], of: Callable[[Record], float | None]) -> list[float]:
    return [value for record in records if (value := of(record)) is not None]


def _of_ranks(
    pick: Callable[[RankUse], float | None], sum_up: Callable[[list[float]], float] = statistics.fmean
) -> Callable[[Record], float | None]:
    """A run's quantity as its ranks' mean (or another `sum_up`); None unless every rank has it."""

    def of(record: Record) -> float | None:
        values = [pick(rank.use) if rank.use else None for rank in record.ranks]
        known = [value for value in values if value is not None]
        return sum_up(known) if known and len(known) == len(values) else None

    return of


def _shared(
    record: Record, key: Callable[[Rank, RankUse], Hashable], pick: Callable[[RankUse], float | None]
) -> list[float] | None:
    """A figure shared by ranks with the same `key`, once for each key; None unless every rank has it."""
    groups: dict[Hashable, list[float]] = {}
    for rank in record.ranks:
        value = pick(rank.use) if rank.use else None
        if rank.use is None or value is None:
            return None
        groups.setdefault(key(rank, rank.use), []).append(value)
    # They read the same counter, moments apart.
    return [statistics.fmean(values) for values in groups.values()]


def _traffic(direction: str) -> Callable[[Record], float | None]:
    """MB per rank and step over the interface through which the ranks meet."""

    def pick(use: RankUse) -> float | None:
        name = use.way.interface
        traffic = (use.network.interfaces or {}).get(name) if name else None
        return getattr(traffic, direction) / MB if traffic else None

    def of(record: Record) -> float | None:
        found = _shared(record, lambda rank, use: (rank.node or rank.host, use.network.namespace), pick)
        steps = record.ranks[0].steps
        return sum(found) / len(record.ranks) / steps if found and steps else None

    return of


def _in_theory(record: Record) -> float | None:
    first = record.ranks[0]
    parameters = first.parameters
    width = GRADIENT_BYTES.get(first.gradient_sync or record.specification.work.gradient_sync)
    if parameters is None or width is None:
        return None
    return ring_bytes(parameters, len(record.ranks), width) / MB


def _of_machines(
    pick: Callable[[RankUse], float | None], sum_up: Callable[[list[float]], float]
) -> Callable[[Record], float | None]:
    """A quantity of whole machines, each counted once, however many ranks it has."""

    def of(record: Record) -> float | None:
        found = _shared(record, lambda rank, use: use.machine.id or rank.node or rank.host, pick)
        return sum_up(found) if found else None

    return of


def _cpu_s(use: RankUse) -> float | None:
    cpu = use.cpu
    return None if cpu.user_s is None or cpu.system_s is None else cpu.user_s + cpu.system_s


def _cpu_share(use: RankUse) -> float | None:
    spent = _cpu_s(use)
    return None if spent is None or not use.seconds else spent / use.seconds


def _stolen_share(use: RankUse) -> float | None:
    machine = use.machine
    if machine.stolen_s is None or not machine.processors or not use.seconds:
        return None
    return machine.stolen_s / (machine.processors * use.seconds)


def _gpu_j(record: Record) -> float | None:
    known = [rank.gpu.energy_j for rank in record.ranks if rank.gpu and rank.gpu.energy_j is not None]
    return sum(known) if known and len(known) == len(record.ranks) else None


def _mb(count: int | None) -> float | None:
    return None if count is None else count / MB


QUANTITIES: Final[dict[str, Callable[[Record], float | None]]] = {
    "cpu_s_per_rank": _of_ranks(_cpu_s),
    "cpu_share_of_one_core": _of_ranks(_cpu_share),
    "peak_memory_mb": _of_ranks(lambda use: use.memory.peak_mb, max),
    "sent_mb_per_rank_and_step": _traffic("sent_bytes"),
    "received_mb_per_rank_and_step": _traffic("received_bytes"),
    "gradients_mb_per_rank_and_step_in_theory": _in_theory,
    "stolen_s_per_machine": _of_machines(lambda use: use.machine.stolen_s, statistics.fmean),
    "stolen_share_of_machine": _of_machines(_stolen_share, statistics.fmean),
    "cpu_energy_j": _of_machines(lambda use: use.energy.cpu_j, sum),
    "gpu_energy_j": _gpu_j,
    "waited_s_per_rank": _of_ranks(lambda use: use.waiting.waited_s),
    "voluntary_switches_per_rank": _of_ranks(lambda use: use.cpu.voluntary_switches),
    "involuntary_switches_per_rank": _of_ranks(lambda use: use.cpu.involuntary_switches),
    "disk_read_mb_per_rank": _of_ranks(lambda use: _mb(use.disk.read_bytes)),
    "disk_written_mb_per_rank": _of_ranks(lambda use: _mb(use.disk.written_bytes)),
}
"""Every quantity of a run by its name in the exported figures."""
