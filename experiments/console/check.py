"""Checking results: schema, digests, completeness, and equal weights where the work is equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.analysis.figures import figures_of
from experiments.campaign.campaign import FILE, PLOTS, Campaign, campaigns, open_campaign
from experiments.records.record import RECORD, Record, read_record
from experiments.report.sections.references import Judged, judge
from experiments.util.errors import UserError
from experiments.util.files import file_sha256


def find_campaigns(path: Path) -> list[Path]:
    """The campaigns at `path`: one's own folder, a matrix's, or the folder of all results.

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


def faults_of(folder: Path) -> Iterator[str]:
    """Everything that is wrong with the campaign in `folder`, a sentence each."""
    try:
        campaign = open_campaign(folder)
    except UserError as error:
        yield str(error)
        return
    yield from _campaign_faults(campaign)
    readable = True
    for run in campaign.file.plan:
        for attempt in campaign.attempts(run.run_id):
            if not attempt.recorded:
                # Else its controller is alive and will record it.
                why = "; the next `run` records it as interrupted" if attempt.abandoned else ": it is running"
                yield f"{attempt.folder} has no record{why}."
                continue
            try:
                record = read_record(attempt.folder / RECORD)
            except UserError as error:
                readable = False
                yield str(error)
                continue
            yield from _record_faults(campaign, record, attempt.outputs)
    if readable:
        try:
            yield from _completeness_faults(campaign)
        except UserError as error:
            yield str(error)


def judged_or_none(folder: Path) -> Judged | None:
    """What the references say of the campaign in `folder`; None where it can't be read, which is a fault."""
    try:
        return judge(figures_of(open_campaign(folder)))
    except UserError:
        return None


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


def _record_faults(campaign: Campaign, record: Record, outputs: Path) -> Iterator[str]:
    place = outputs.parent / RECORD
    if record.code_digest != campaign.file.identity.code:
        yield f"{place}: it ran other code than the campaign's."
    if record.ok and record.environment.environment_digest != campaign.file.identity.environment:
        yield f"{place}: it ran in another environment than the campaign's."
    if record.ok and record.specification.work.data_digest != campaign.file.identity.dataset:
        yield f"{place}: it used another data set than the campaign's."
    for name, digest in record.files.items():
        path = outputs / name
        if not path.is_file():
            yield f"{path} is missing; the record names it."
        elif file_sha256(path) != digest:
            yield f"{path} was changed after the run (its digest differs from the record's)."


def _completeness_faults(campaign: Campaign) -> Iterator[str]:
    figures = figures_of(campaign)
    impossible = {run.run_id for run in campaign.file.plan if run.cannot_run is not None}
    for run_id, reason in figures.not_run:
        if run_id not in impossible:
            yield f"{campaign.folder / run_id}: no result. {reason}"
    for work in figures.compared:
        if not work.equal:
            shown = "; ".join(
                f"{stack}: {', '.join(each[:8] for each in digests)}"
                for stack, digests in work.digests.items()
            )
            yield f"{campaign.folder}: the same work, {work.name}, ended with different weights ({shown})."
