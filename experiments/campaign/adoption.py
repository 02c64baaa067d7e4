"""Records of earlier campaigns that a campaign takes over, because their runs would be the same."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.campaign.attempt import ADOPTED, Attempt
from experiments.campaign.campaign import Campaign
from experiments.campaign.concurrent import shifted, shifts_side_by_side
from experiments.campaign.plan import PlannedRun
from experiments.cluster.provenance import LOCK, patch_name
from experiments.records.record import Record
from experiments.util.files import json_text, write_whole


def adopt(campaign: Campaign, earlier: Iterable[Campaign]) -> dict[str, list[str]]:
    """Copies what earlier campaigns know of a campaign's unfinished runs; returns run ids by campaign.

    A record is taken over if its run would be made alike: the same specification, code, environment, image,
    data set, nodes, and the same way of launching its stack; and if its ranks were on the workers that the
    plan gives it. Warm-ups are not, because they warm up; neither are runs of users who begin at once, which
    count only together.

    Args:
        campaign: takes over.
        earlier: of the same matrix, the first has precedence.

    Raises:
        UserError: a record is damaged.
    """
    adopted: dict[str, list[str]] = {}
    others = list(earlier)
    shifts = shifts_side_by_side(campaign.file.plan)
    for run in campaign.file.wanted:
        if run.together or run.cannot_run is not None or campaign.counting(run.run_id) is not None:
            continue
        for other, (attempt, record) in _candidates(run, campaign, others):
            shift = shifts.get(run.run_id, 0) if record.together is not None else 0
            if not _is_there(record, shifted(run, campaign.file.identity.workers, shift)):
                continue
            for patch in record.environment.git.patches:
                _bring(other.folder / patch_name(patch), campaign.folder)
            for lock in other.folder.glob(f"{LOCK}-*.txt"):
                _bring(lock, campaign.folder)
            _copy(attempt, campaign.next_folder(run.run_id), other.file.name)
            adopted.setdefault(record.campaign, []).append(run.run_id)
            break
    return adopted


def _candidates(
    run: PlannedRun, campaign: Campaign, others: Iterable[Campaign]
) -> Iterator[tuple[Campaign, tuple[Attempt, Record]]]:
    for other in others:
        if other.folder == campaign.folder:
            continue
        if not other.file.identity.launches_alike(campaign.file.identity, run.specification):
            continue
        if (found := other.counting_attempt(run.run_id)) is not None:
            yield other, found


def _is_there(record: Record, nodes: list[str]) -> bool:
    """Whether a run's ranks were on these nodes, in their order; without any, they may be anywhere.

    An empty program's leave no word of theirs: of them the launch knows.
    """
    there = list(dict.fromkeys(rank.node for rank in record.ranks))
    if record.specification.bare and record.launch is not None:
        there = [*record.launch.nodes]
    return not nodes or there == nodes


def _copy(attempt: Attempt, to: Path, campaign: str) -> None:
    """Copies an attempt's folder, as links to the same files where that is possible: they don't change."""
    draft = to.with_name(f".adopting-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(attempt.folder, draft, copy_function=_link)
    if not (draft / ADOPTED).exists():  # it may have been adopted there
        origin = {"campaign": campaign, "attempt": attempt.number}
        write_whole(draft / ADOPTED, json_text(origin))
    draft.rename(to)


def _bring(file: Path, to: Path) -> None:
    """Copies a lock, or what was not committed when a record was made; `check` names one that is missing."""
    if file.is_file() and not (to / file.name).exists():
        _link(str(file), str(to / file.name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
