"""The report's table of what the runs used, and the remarks below it: how it was read, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from experiments.analysis.resource_use import CellUse
from experiments.records.rank_use import RankUse, Read
from experiments.records.record import Rank, Record
from experiments.report.formats import RATIO, TENTHS, Format, Value
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted

PARTS: Final = {
    "cpu": "CPU s",
    "memory": "Peak memory",
    "network": "Sent and received",
    "waiting": "Waiting for a core",
    "machine": "Stolen time",
    "energy": "CPU energy",
}
"""The parts that the table shows, and what it calls them."""
HEADS: Final = {
    "cpu_s_per_rank": "CPU s per rank",
    "cpu_share_of_one_core": "of one core, %",
    "peak_memory_mb": "peak memory, MB",
    "sent_mb_per_rank_and_step": "sent per rank and step, MB",
    "received_mb_per_rank_and_step": "received per rank and step, MB",
    "gradients_mb_per_rank_and_step_in_theory": "gradients alone, in theory, MB",
    "waited_s_per_rank": "waited for a core, s per rank",
    "stolen_s_per_machine": "stolen, s",
    "cpu_energy_j": "CPU energy, J",
    "gpu_energy_j": "GPU energy, J",
}
"""The table's columns."""
WHOLE: Final = Format(0)
FORMATS: Final = {
    "cpu_share_of_one_core": Format(0, factor=100),
    "peak_memory_mb": WHOLE,
    "cpu_energy_j": WHOLE,
    "gpu_energy_j": WHOLE,
    "cpu_s_per_rank": TENTHS,
    "waited_s_per_rank": TENTHS,
    "stolen_s_per_machine": TENTHS,
}
"""By quantity; `RATIO` for the others."""


def resource_use_table(found: Sequence[CellUse]) -> Table:
    """The report's table."""
    records = [record for each in found for record in each.cell.timed]
    return Table(
        title="What the runs used",
        before=(
            "Counters are read just before and just after the training function, so evaluations and "
            "checkpoints are included. Figures are means over the runs of a cell. 1 MB is 2^20 bytes."
        ),
        columns=columns("stack", "workers", "epochs", "runs", *HEADS.values(), words=("stack",)),
        rows=[
            [
                stack_text(each.cell.stack, each.cell.settings),
                Value(each.cell.workers),
                Value(each.cell.epochs),
                run_count(each.runs),
                *(_figure(name, each) for name in HEADS),
            ]
            for each in found
        ],
        after=[*_who_read(records), *_counted(records), *_explained(found), *_lacking(records)],
    )


def _figure(name: str, each: CellUse) -> Value:
    value = each.found[name]
    if value is None:
        return Value(None)
    note = "" if value.n == each.runs else f"of {value.n}"
    return Value(value.mean, FORMATS.get(name, RATIO), note=note)


def _uses(records: Iterable[Record]) -> list[tuple[Record, Rank, RankUse]]:
    return [(record, rank, rank.use) for record in records for rank in record.ranks if rank.use]


def _tells(read: Read) -> bool:
    return any(value is not None for name, value in read if name not in ("by", "trouble"))


def _who_read(records: Sequence[Record]) -> list[str]:
    """How each figure was read."""
    remarks = []
    for part, name in PARTS.items():
        read = [getattr(use, part) for _, _, use in _uses(records)]
        by = sorted({each.by for each in read if _tells(each)})
        if by:
            remarks.append(f"{name}: read in each rank's process, by {'; or by '.join(by)}.")
    gpus = [rank.gpu for record in records for rank in record.ranks if rank.gpu]
    by = sorted({gpu.energy_by for gpu in gpus if gpu.energy_by})
    if by:
        remarks.append(f"GPU energy: sampled in each rank's process through NVML, by {' or by '.join(by)}.")
    return remarks


def _counted(records: Sequence[Record]) -> list[str]:
    """Through which interfaces the ranks met, stack by stack: their network namespaces differ."""
    names: dict[str, set[str]] = {}
    for record, _, use in _uses(records):
        if use.way.interface:
            names.setdefault(record.specification.stack, set()).add(use.way.interface)
    if not names:
        return []
    interfaces = "; ".join(f"{stack} {', '.join(sorted(found))}" for stack, found in names.items())
    return [
        "Sent and received count everything on the interface through which a rank meets the others, "
        "including results written to shared storage and other programs' traffic. Ranks in one network "
        f"namespace are given equal shares of its traffic. Interfaces: {interfaces}. The records also have "
        "the others."
    ]


def _explained(found: Sequence[CellUse]) -> list[str]:
    if not found:
        return []
    return [
        "Peak memory is that of the rank that held the most; the other figures per rank are means over "
        "the ranks.",
        "Gradients alone, in theory: parameters x 4 bytes (2 as bfloat16) x 2 (n - 1) / n, which each of n "
        "ranks sends and receives in every step if gradients are summed in a ring; between ranks on one "
        "node, none of it crosses the network.",
        "Stolen: seconds for which the host withheld processors that the machine wanted to use, summed over "
        "its processors; a mean over the machines. CPU energy is the sum over the machines, including "
        "whatever else they did.",
    ]


def _lacking(records: Sequence[Record]) -> list[str]:
    """What could not be read, and why, with the cells concerned."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}

    def lacks(name: str, why: str, record: Record) -> None:
        specification = record.specification
        where = f"{specification.stack} with {counted(specification.work.workers, 'worker')}"
        reasons.setdefault((name, why), {})[where] = None

    for record, _, use in _uses(records):
        for part, name in {**PARTS, "way": PARTS["network"]}.items():
            if trouble := getattr(use, part).trouble:
                lacks(name, trouble, record)
    for record in records:
        for gpu in [rank.gpu for rank in record.ranks if rank.gpu and rank.gpu.energy_j is None]:
            lacks("GPU energy", gpu.trouble or f"{gpu.name} reports neither energy nor power.", record)
    remarks = [
        f"{name} can't be measured, or only in part, on {', '.join(where)}: {why}"
        for (name, why), where in reasons.items()
    ]
    if records and not any(rank.gpu for record in records for rank in record.ranks):
        remarks.append("GPU energy: no rank trained on a GPU.")
    return remarks
