"""What a command begins with: what it was told, the campaign that it goes on with, the time that it has."""

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
from experiments.campaign.presentation import Reading, keep_reading, reading_of
from experiments.cluster.description import Prepared
from experiments.cluster.playbooks import Playbooks
from experiments.cluster.provenance import Git
from experiments.matrix.model import Matrix
from experiments.records.record import Record
from experiments.util.errors import UserError
from experiments.util.files import sha256
from experiments.util.screen import Screen


@dataclass(frozen=True)
class Options:
    """What `run` was told."""

    only: str | None = None
    retry: str | None = None  # only runs whose newest attempt ended so: failed or interrupted
    new: bool = False
    break_lock: bool = False
    side_by_side: bool = False  # runs of one worker at once, on different workers
    max_time_s: float | None = None  # begin no run that would not end within so many seconds


class TimeLeft:
    """How much of the time that a command may take is left."""

    def __init__(self, limit_s: float | None, began: float, results: Path) -> None:
        """The time begins at `began`, by the monotonic clock; `results` are read now."""
        self._end = None if limit_s is None else began + limit_s
        self._estimates = Estimates(results) if limit_s is not None else None

    def suffices(self, *groups: Group) -> bool:
        """Whether groups that begin now, one after another, end in time, as far as earlier runs tell."""
        if self._end is None or self._estimates is None:
            return True
        return time.monotonic() + sum(_seconds(group, self._estimates) for group in groups) < self._end

    def learn(self, records: Iterable[Record]) -> None:
        """Takes account of what was made since the results were read."""
        if self._estimates is not None:
            for record in records:
                self._estimates.add(record)


def _seconds(group: Group, estimates: Estimates) -> float:
    seconds = [estimates.of(run.specification) or 0.0 for run in group.runs]
    # Of users of one cluster, one may have to wait for another.
    return max(seconds) if group.why == "side by side" else sum(seconds)


def campaign_for(
    root: Path,
    playbooks: Playbooks,
    matrix: Matrix,
    prepared: Prepared,
    git: Git,
    plan: list[PlannedRun],
    options: Options,
) -> Campaign:
    """The newest campaign, if it was made of the same things as there are now, else a new one.

    Raises:
        UserError: the newest has another one's name, or can't be retried.
    """
    say = playbooks.screen.line
    folder = root / "results" / matrix.name
    archive = training_archive(root)
    identity = identity_of(root, matrix, prepared, sha256(archive), plan)
    existing = campaigns(folder)
    if existing and not options.new:
        campaign = open_campaign(existing[-1])
        if campaign.file.name != campaign.folder.name:
            raise UserError(
                f"{campaign.folder} holds the campaign {campaign.file.name}: the folder was renamed, or is a "
                "copy. Give it that name again, or move it out of the results."
            )
        changed = campaign.file.identity.differences(identity)
        if not changed:
            say(f"Campaign {campaign.file.name} of {matrix.name} goes on.")
            return _read_as_now(campaign, matrix, playbooks.screen)
        since = f"Since campaign {campaign.file.name} this has changed: {', '.join(changed)}."
        if options.retry is not None:
            raise UserError(f"{since} So nothing of it can be retried; leave --retry out for a new campaign.")
        say(f"{since} So this is a new campaign.", "yellow")
    campaign = create_campaign(folder, matrix, identity, plan, archive, prepared, git)
    say(f"Campaign {campaign.file.name} of {matrix.name} begins.")
    return campaign


def _read_as_now(campaign: Campaign, matrix: Matrix, screen: Screen) -> Campaign:
    """The campaign with the matrix's description and ladders as they are now, which are kept beside it."""
    now = reading_of(matrix)
    if now == Reading(description=campaign.file.description, ladders=campaign.file.ladders):
        return campaign
    keep_reading(campaign.folder, now)
    screen.line("The matrix's description or ladders have changed; the campaign's report follows them.")
    return open_campaign(campaign.folder)
