"""How a command starts: its options, the campaign that it resumes or creates, its deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from experiments.campaign.adoption import adopt
from experiments.campaign.campaign import Campaign, campaigns, create_campaign, open_campaign
from experiments.campaign.code_archive import training_archive
from experiments.campaign.concurrent import Group
from experiments.campaign.estimates import Estimates
from experiments.campaign.identity import Identity, identity_of
from experiments.campaign.plan import PlannedRun
from experiments.campaign.presentation import Presentation, presentation_of, write_presentation
from experiments.campaign.sequential import sequential_rule
from experiments.cluster.description import PreparedCluster
from experiments.cluster.playbooks import Playbooks
from experiments.cluster.provenance import Git
from experiments.matrix.model import Matrix
from experiments.records.record import Record
from experiments.util.errors import UserError
from experiments.util.files import sha256
from experiments.util.screen import Screen
from experiments.util.words import counted


@dataclass(frozen=True)
class Options:
    """The options of `run`."""

    only: str | None = None
    retry: str | None = None  # failed, interrupted or disturbed: only runs whose newest attempt was
    new: bool = False
    campaign: str | None = None  # the one to go on with; None = the newest that matches
    break_lock: bool = False
    side_by_side: bool = False  # single-worker runs at once, on different workers
    max_time_s: float | None = None  # start no run that would end later than this
    decide: float | None = None  # percent; a new campaign ends as soon as its comparisons are decided


class Deadline:
    """When a command must have ended."""

    def __init__(
        self, limit_s: float | None, began: float, results: Path, machines: Mapping[str, str]
    ) -> None:
        """The time counts from `began` (monotonic clock); results on these machines are read now."""
        self._end = None if limit_s is None else began + limit_s
        self._estimates = Estimates(results, machines) if limit_s is not None else None

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
    """The campaign to go on with, else a new one; either takes over what earlier ones know of its runs.

    One that decides when it has runs enough takes over nothing.

    Raises:
        UserError: the campaign that was asked for does not match, a folder has another's name, or there is
            nothing to retry; or a rule comes too late, or can't decide anything.
    """
    say = playbooks.screen.line
    folder = root / "results" / matrix.name
    archive = training_archive(root, matrix.workload_folder)
    identity = identity_of(root, matrix, prepared, sha256(archive), plan)
    existing = _existing(folder)
    rule = None if options.decide is None else sequential_rule(options.decide, plan, matrix.stacks[0])
    if options.new:
        campaign = create_campaign(folder, matrix, identity, plan, archive, prepared, git, rule)
        say(f"Starting campaign {campaign.file.name} of {matrix.name}.")
        return campaign
    found = _named(existing, options.campaign, folder) if options.campaign else _matching(existing, identity)
    if found is not None and (changed := found.file.identity.differences(identity)):
        raise UserError(
            f"Campaign {found.file.name} does not match; changed since: {', '.join(changed)}. Change that "
            "back, or leave CAMPAIGN out."
        )
    if found is not None:
        begun = found.file.sequential
        if rule is not None and (begun is None or begun.percent != rule.percent):
            how = "without --decide" if begun is None else f"with --decide {begun.percent:g}"
            raise UserError(
                f"Campaign {found.file.name} was begun {how}, and what decides must be fixed before the "
                "first run. Add --new to begin another one."
            )
        newer = [each.file.name for each in existing if each.file.name > found.file.name]
        beside = f" Newer ones don't match: {', '.join(newer)}." if newer and not options.campaign else ""
        say(f"Resuming campaign {found.file.name} of {matrix.name}.{beside}")
        campaign = _with_current_presentation(found, matrix, playbooks.screen)
    else:
        if existing:
            newest = existing[0].file
            since = (
                f"Changed since campaign {newest.name}: {', '.join(newest.identity.differences(identity))}."
            )
            if options.retry is not None:
                raise UserError(
                    f"{since} Its runs can't be retried; leave --retry out to start a new campaign."
                )
            say(f"{since} This starts a new campaign.", "yellow")
        campaign = create_campaign(folder, matrix, identity, plan, archive, prepared, git, rule)
        say(f"Starting campaign {campaign.file.name} of {matrix.name}.")
    if campaign.file.sequential is not None:
        return campaign  # runs that were seen before it began would have a say in when it ends
    for name, runs in adopt(campaign, existing).items():
        say(
            f"Adopted from campaign {name}, because nothing of them has changed: {counted(len(runs), 'run')}."
        )
    return campaign


def _existing(folder: Path) -> list[Campaign]:
    """The campaigns in a matrix's folder, the newest first.

    Raises:
        UserError: the newest is damaged, or one has another's name.
    """
    found: list[Campaign] = []
    for path in reversed(campaigns(folder)):
        try:
            campaign = open_campaign(path)
        except UserError:
            if not found:
                raise
            continue  # the command has named it already
        if campaign.file.name != campaign.folder.name:
            raise UserError(
                f"{campaign.folder} holds the campaign {campaign.file.name}: the folder was renamed, or is a "
                "copy. Rename it back, or move it out of the results."
            )
        found.append(campaign)
    return found


def _matching(existing: list[Campaign], identity: Identity) -> Campaign | None:
    return next((each for each in existing if not each.file.identity.differences(identity)), None)


def _named(existing: list[Campaign], name: str, folder: Path) -> Campaign:
    found = next((each for each in existing if each.file.name == name), None)
    if found is None:
        there = ", ".join(each.file.name for each in existing) or "none"
        raise UserError(f"There is no campaign {name} in {folder}; there are: {there}.")
    return found


def _with_current_presentation(campaign: Campaign, matrix: Matrix, screen: Screen) -> Campaign:
    """The campaign with the matrix's current presentation, saved in its folder if it has changed."""
    current = presentation_of(matrix)
    file = campaign.file
    if current == Presentation(description=file.description, ladders=file.ladders, target=file.target):
        return campaign
    write_presentation(campaign.folder, current)
    screen.line(
        "The matrix's description, ladders or target have changed; the campaign's report will follow them."
    )
    return open_campaign(campaign.folder)
