"""How a command starts: its options, the campaign that it resumes or creates, its deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from experiments.campaign.campaign import Campaign, campaigns, create_campaign, open_campaign
from experiments.campaign.code_archive import training_archive
from experiments.campaign.concurrent import Group
from experiments.campaign.estimates import Estimates
from experiments.campaign.identity import identity_of
from experiments.campaign.plan import PlannedRun
from experiments.campaign.presentation import Presentation, presentation_of, write_presentation
from experiments.cluster.description import PreparedCluster
from experiments.cluster.playbooks import Playbooks
from experiments.cluster.provenance import Git
from experiments.matrix.model import Matrix
from experiments.records.record import Record
from experiments.util.errors import UserError
from experiments.util.files import sha256
from experiments.util.screen import Screen


@dataclass(frozen=True)
class Options:
    """The options of `run`."""

    only: str | None = None
    retry: str | None = None  # failed or interrupted: only runs whose newest attempt has this status
    new: bool = False
    break_lock: bool = False
    side_by_side: bool = False  # single-worker runs at once, on different workers
    max_time_s: float | None = None  # start no run that would end later than this


class Deadline:
    """When a command must have ended."""

    def __init__(self, limit_s: float | None, began: float, results: Path) -> None:
        """The time counts from `began` (monotonic clock); `results` are read now."""
        self._end = None if limit_s is None else began + limit_s
        self._estimates = Estimates(results) if limit_s is not None else None

    def allows(self, *groups: Group) -> bool:
        """Whether these groups, one after another from now, would end in time, judging by earlier runs."""
        if self._end is None or self._estimates is None:
            return True
        return time.monotonic() + sum(_seconds(group, self._estimates) for group in groups) < self._end

    def learn(self, records: Iterable[Record]) -> None:
        """Takes account of runs that have ended since the results were read."""
        if self._estimates is not None:
            for record in records:
                self._estimates.add(record)


def _seconds(group: Group, estimates: Estimates) -> float:
    seconds = [estimates.of(run.specification) or 0.0 for run in group.runs]
    # Users of one cluster may have to wait for one another.
    return max(seconds) if group.why == "side by side" else sum(seconds)


def campaign_for(
    root: Path,
    playbooks: Playbooks,
    matrix: Matrix,
    prepared: PreparedCluster,
    git: Git,
    plan: list[PlannedRun],
    options: Options,
) -> Campaign:
    """The newest campaign if its identity is unchanged, else a new one.

    Raises:
        UserError: the newest campaign has another's name, or can't be retried.
    """
    say = playbooks.screen.line
    folder = root / "results" / matrix.name
    archive = training_archive(root, matrix.workload_folder)
    identity = identity_of(root, matrix, prepared, sha256(archive), plan)
    existing = campaigns(folder)
    if existing and not options.new:
        campaign = open_campaign(existing[-1])
        if campaign.file.name != campaign.folder.name:
            raise UserError(
                f"{campaign.folder} holds the campaign {campaign.file.name}: the folder was renamed, or is a "
                "copy. Rename it back, or move it out of the results."
            )
        changed = campaign.file.identity.differences(identity)
        if not changed:
            say(f"Resuming campaign {campaign.file.name} of {matrix.name}.")
            return _with_current_presentation(campaign, matrix, playbooks.screen)
        since = f"Changed since campaign {campaign.file.name}: {', '.join(changed)}."
        if options.retry is not None:
            raise UserError(f"{since} Its runs can't be retried; leave --retry out to start a new campaign.")
        say(f"{since} This starts a new campaign.", "yellow")
    campaign = create_campaign(folder, matrix, identity, plan, archive, prepared, git)
    say(f"Starting campaign {campaign.file.name} of {matrix.name}.")
    return campaign


def _with_current_presentation(campaign: Campaign, matrix: Matrix, screen: Screen) -> Campaign:
    """The campaign with the matrix's current description and ladders, saved in its folder if they changed."""
    current = presentation_of(matrix)
    if current == Presentation(description=campaign.file.description, ladders=campaign.file.ladders):
        return campaign
    write_presentation(campaign.folder, current)
    screen.line("The matrix's description or ladders have changed; the campaign's report will follow them.")
    return open_campaign(campaign.folder)
