"""Checking results: schema, digests, completeness, and equal weights where the work is equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiments.analysis.figures import Figures, figures_of
from experiments.analysis.references import ReferenceCheck, check_references
from experiments.campaign.attempt import Attempt
from experiments.campaign.campaign import FILE, PLOTS, Campaign, campaigns, open_campaign
from experiments.cluster.provenance import patch_name
from experiments.records.record import RECORD, Record, read_record
from experiments.report.names import missing_reason, work_name
from experiments.util.errors import UserError
from experiments.util.files import file_sha256


def find_campaigns(path: Path) -> list[Path]:
    """The campaigns at `path`: a campaign's folder, a matrix's, or the folder of all results.

    Raises:
        UserError: there is none.
    """
    if (path / FILE).is_file():
        return [path]
    found = campaigns(path) or [
        campaign for folder in sorted(path.glob("*")) for campaign in campaigns(folder)
    ]
    if not found:
        raise UserError(
            f"There is no campaign in {path}: give results/, results/<matrix> or results/<matrix>/<campaign>."
        )
    return found


@dataclass(frozen=True)
class CampaignCheck:
    """A campaign's faults, one sentence each, and what the references say about its figures."""

    faults: list[str]
    references: ReferenceCheck | None  # None if the figures can't be computed, which is a fault


def check_campaign(folder: Path) -> CampaignCheck:
    """Checks everything in the campaign in `folder`."""
    try:
        campaign = open_campaign(folder)
    except UserError as error:
        return CampaignCheck([str(error)], None)
    faults = list(_campaign_faults(campaign))
    readable = True
    for attempt in (each for run in campaign.file.plan for each in campaign.attempts(run.run_id)):
        try:
            faults += _attempt_faults(campaign, attempt)
        except UserError as error:
            faults.append(str(error))
            readable = False
    if not readable:
        return CampaignCheck(faults, None)
    try:
        figures = figures_of(campaign)
    except UserError as error:
        return CampaignCheck([*faults, str(error)], None)
    return CampaignCheck([*faults, *_completeness_faults(campaign, figures)], check_references(figures))


def faults_of(folder: Path) -> list[str]:
    """The faults of the campaign in `folder`, one sentence each."""
    return check_campaign(folder).faults


def _campaign_faults(campaign: Campaign) -> Iterator[str]:
    file = campaign.file
    if not campaign.archive.is_file():
        yield f"{campaign.archive} is missing: the code that was run is lost."
    elif file_sha256(campaign.archive) != file.identity.code:
        yield f"{campaign.archive} is not the code that the campaign names (its digest differs)."
    if (file.matrix, file.name) != (campaign.folder.parent.name, campaign.folder.name):
        yield f"{campaign.folder} holds the campaign {file.name} of {file.matrix}: the folder was renamed."
    for run in file.plan:
        if run.run_id != run.specification.run_id:
            yield f"{campaign.folder / FILE}: {run.run_id} has the specification of another run."
    known = {run.run_id for run in file.plan} | {PLOTS}
    for folder in sorted(campaign.folder.iterdir()):
        if folder.is_dir() and folder.name not in known:
            yield f"{folder} belongs to no planned run."


def _attempt_faults(campaign: Campaign, attempt: Attempt) -> list[str]:
    if attempt.recorded:
        record = read_record(attempt.folder / RECORD)
        return list(_record_faults(campaign, record, attempt.outputs))
    # Unless it is abandoned, its controller is alive and will record it.
    why = "; the next `run` records it as interrupted" if attempt.abandoned else ": it is running"
    return [f"{attempt.folder} has no record{why}."]


def _record_faults(campaign: Campaign, record: Record, outputs: Path) -> Iterator[str]:
    place = outputs.parent / RECORD
    if record.code_digest != campaign.file.identity.code:
        yield f"{place}: it ran code other than the campaign's."
    if record.ok and record.environment.environment_digest != campaign.file.identity.environment:
        yield f"{place}: it ran in an environment other than the campaign's."
    if record.ok and record.specification.work.data_digest not in campaign.file.every_dataset:
        yield f"{place}: it used a data set other than the campaign's."
    for patch in record.environment.git.patches:
        if not (campaign.folder / patch_name(patch)).is_file():
            yield f"{campaign.folder / patch_name(patch)} is missing: uncommitted changes that {place} names."
    for name, digest in record.files.items():
        path = outputs / name
        if not path.is_file():
            yield f"{path} is missing; the record names it."
        elif file_sha256(path) != digest:
            yield f"{path} was changed after the run (its digest differs from the record's)."


def _completeness_faults(campaign: Campaign, figures: Figures) -> Iterator[str]:
    for missing in figures.not_run:
        if missing.run.cannot_run is None and missing.reason != "not needed":
            yield f"{campaign.folder / missing.run.run_id}: no result. {missing_reason(missing)}"
    for work in figures.works:
        if not work.equal:
            shown = "; ".join(
                f"{stack}: {', '.join(each[:8] for each in digests)}"
                for stack, digests in work.digests.items()
            )
            name = work_name(work)
            yield f"{campaign.folder}: the same work, {name}, ended with different weights ({shown})."
