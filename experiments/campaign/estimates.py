"""How long runs will take, from the records of the same runs with any seed, on the same machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

from experiments.campaign.campaign import campaigns, open_campaign
from experiments.campaign.identity import are_others
from experiments.records.record import Record
from experiments.util.errors import UserError
from training.spec import RunSpec


class Estimates:
    """How long earlier runs took."""

    def __init__(self, results: Path, machines: Mapping[str, str]) -> None:
        """Reads every campaign in `results` that is not of others than these machines.

        Skips damaged ones, which `check` names.

        Args:
            results: the folder with the results of all matrices.
            machines: digests of their ids, by node; empty = not known.
        """
        self._seconds: dict[str, list[float]] = defaultdict(list)
        for folder in [folder for matrix in sorted(results.glob("*")) for folder in campaigns(matrix)]:
            try:
                campaign = open_campaign(folder)
                if are_others(campaign.file.identity.machines, machines):
                    continue
                for run in campaign.file.plan:
                    record = campaign.counting(run.run_id)
                    if record is not None:
                        self.add(record)
            except UserError:
                continue

    def add(self, record: Record) -> None:
        """Learns from one more record."""
        # A run that was not alone does not show how long it takes alone, nor a stand-in what its stack takes.
        telling = record.ok and record.together is None and record.standin is None
        if telling and record.total_s is not None:
            self._seconds[_key(record.specification)].append(record.total_s)

    def of(self, specification: RunSpec) -> float | None:
        """Mean total_s, in seconds; None if no such run was ever made."""
        seconds = self._seconds.get(_key(specification))
        return fmean(seconds) if seconds else None

    def of_all(self, specifications: Iterable[RunSpec]) -> tuple[float, int]:
        """The sum over the runs that were made before, and how many were not."""
        known = [self.of(specification) for specification in specifications]
        return sum(each for each in known if each is not None), sum(each is None for each in known)


def _key(specification: RunSpec) -> str:
    work = specification.work.model_copy(update={"seed": 0})
    return f"{specification.stack} {work.digest} {specification.conditions.digest}"
