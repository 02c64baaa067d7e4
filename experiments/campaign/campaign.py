"""A campaign: one matrix, one version of the code, one cluster; resumed only while all three are the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field, ValidationError

from experiments.campaign.attempt import Attempt
from experiments.campaign.identity import Identity
from experiments.campaign.plan import PlannedRun
from experiments.campaign.presentation import presentation_of, read_presentation
from experiments.campaign.script_files import script_files
from experiments.campaign.sequential import SequentialRule
from experiments.campaign.stacks import setup_files
from experiments.cluster.description import Cluster, PreparedCluster
from experiments.cluster.environment import NEWEST, Environment
from experiments.cluster.provenance import Git
from experiments.matrix.ladders import Ladder
from experiments.matrix.model import Matrix
from experiments.matrix.references import Reference
from experiments.matrix.target import Target
from experiments.records.record import RECORD, Record
from experiments.util.errors import UserError
from experiments.util.files import campaign_name, is_campaign_name, json_text, sha256, utc_now, write_whole
from experiments.util.models import FrozenModel
from training.settings import DataSettings
from training.spec import explain

FILE: Final = "campaign.json"
ARCHIVE: Final = "training.zip"
PLOTS: Final = "plots"  # what the report draws
DECIDED: Final = "decided.json"  # there if its rule needs no more runs


class CampaignFile(FrozenModel):
    """campaign.json: what the report needs besides the records. Written once."""

    schema_version: Literal[1] = 1
    matrix: str
    name: str  # the UTC time of its start
    description: str
    started: AwareDatetime
    baseline: str  # the stack that the others are compared with: the matrix's first
    identity: Identity
    plan: list[PlannedRun]
    ladders: list[Ladder] = Field(default_factory=list)
    target: Target | None = None
    stacks_missing: dict[str, str]
    environment: Environment
    dataset: dict[str, Any]  # dataset.json; if there are several, the first
    datasets: list[dict[str, Any]] = Field(default_factory=list)  # all, if there are several
    references: list[Reference] = Field(default_factory=list)  # at its start; not part of its identity
    sequential: SequentialRule | None = None  # when it has runs enough; None = when it has all

    @property
    def every_dataset(self) -> dict[str, dict[str, Any]]:
        """The descriptions of all its data sets, by digest."""
        return {each["digest"]: each for each in self.datasets or [self.dataset]}

    @property
    def data_of_runs(self) -> dict[str, DataSettings]:
        """The settings of its data sets, by digest, in the order of the matrix."""
        works = [run.specification.work for run in self.measured]
        return {work.data_digest: work.data for work in works if work.data_digest in self.every_dataset}

    @property
    def looks(self) -> int:
        """How often its runs may be looked at before they end: intervals hold for all looks."""
        return 1 if self.sequential is None else self.sequential.looks

    @property
    def has_own_loop(self) -> bool:
        """Whether its runs are of a program with a loop of its own."""
        return any(run.specification.work.data.has_own_loop for run in self.measured)

    @property
    def simulated(self) -> bool:
        """Whether its runs waited in the place of training."""
        return any(run.specification.work.simulated_step_ms is not None for run in self.measured)

    @property
    def wanted(self) -> list[PlannedRun]:
        """The runs whose results it is for, warm-ups left out, in the order of the matrix."""
        return sorted((run for run in self.plan if not run.warm_up), key=lambda run: run.written)

    @property
    def measured(self) -> list[PlannedRun]:
        """Those of them that train: every figure but bare starts comes from them."""
        return [run for run in self.wanted if not run.specification.bare]


@dataclass(frozen=True)
class Standing:
    """How far a campaign has come: ids of its runs, warm-ups left out, in the order of the matrix."""

    done: list[str]
    missing: list[str]  # neither done nor impossible, nor needless because all is decided
    failed: list[str]  # the missing ones whose newest record says so
    impossible: list[str]  # on its cluster


class Campaign:
    """A campaign's folder."""

    def __init__(self, folder: Path, file: CampaignFile) -> None:
        self.folder = folder
        self.file = file

    @property
    def archive(self) -> Path:
        """The training code of all its runs."""
        return self.folder / ARCHIVE

    @property
    def decided(self) -> bool:
        """Whether its rule needs no more runs."""
        return (self.folder / DECIDED).is_file()

    def note_decided(self, *, decided: bool) -> None:
        """Keeps what its rule says."""
        if decided and not self.decided:
            write_whole(self.folder / DECIDED, json_text({"decided": utc_now().isoformat()}))
        elif not decided:
            (self.folder / DECIDED).unlink(missing_ok=True)

    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts at a run, oldest first."""
        folders = [path for path in (self.folder / run_id).glob("*") if path.name.isdigit() and path.is_dir()]
        return sorted((Attempt(folder) for folder in folders), key=lambda attempt: attempt.number)

    def recorded(self, run_id: str) -> list[tuple[Attempt, Record]]:
        """The attempts at a run that have ended, with their records, oldest first.

        Raises:
            UserError: a record is damaged, or lies in the wrong folder.
        """
        found = []
        for attempt in self.attempts(run_id):
            if not attempt.recorded:
                continue
            record = attempt.record()
            path = attempt.folder / RECORD
            name, number = attempt.origin(self.file.name)
            if (record.run_id, record.attempt, record.campaign) != (run_id, number, name):
                raise UserError(
                    f"The record {path} is in the wrong place: it belongs to {record.campaign}, "
                    f"{record.run_id}, attempt {record.attempt:02d}."
                )
            found.append((attempt, record))
        return found

    def records(self, run_id: str) -> list[Record]:
        """The records of a run, oldest first; raises as `recorded` does."""
        return [record for _, record in self.recorded(run_id)]

    def counting_attempt(self, run_id: str) -> tuple[Attempt, Record] | None:
        """The attempt that counts for a run, with its record: the newest that is ok."""
        return newest_ok(self.recorded(run_id))

    def counting(self, run_id: str) -> Record | None:
        """The record that counts for a run."""
        found = self.counting_attempt(run_id)
        return found[1] if found else None

    def standing(self) -> Standing:
        """How far it has come.

        Raises:
            UserError: a record is damaged, or lies in the wrong folder.
        """
        runs = self.file.wanted
        impossible = [run.run_id for run in runs if run.cannot_run is not None]
        done = [run.run_id for run in runs if self.counting(run.run_id) is not None]
        open_ones = [run.run_id for run in runs if run.run_id not in {*done, *impossible}]
        missing = [name for name in open_ones if not self.decided or self.attempts(name)]
        newest = {name: [each.status for each in self.records(name)][-1:] for name in missing}
        failed = [name for name, status in newest.items() if status in (["failed"], ["disturbed"])]
        return Standing(done, missing, failed, impossible)

    def next_folder(self, run_id: str) -> Path:
        """The folder that the next attempt at a run gets."""
        attempts = self.attempts(run_id)
        return self.folder / run_id / f"{attempts[-1].number + 1 if attempts else 1:02d}"

    def new_attempt(self, run_id: str) -> Attempt:
        """A new, empty folder for the next attempt."""
        attempt = Attempt(self.next_folder(run_id))
        attempt.outputs.mkdir(parents=True)
        return attempt

    def abandoned_attempts(self) -> list[tuple[PlannedRun, Attempt]]:
        """The attempts that a dead controller left without a record."""
        return [
            (run, attempt)
            for run in self.file.plan
            for attempt in self.attempts(run.run_id)
            if attempt.abandoned
        ]


def newest_ok(recorded: Sequence[tuple[Attempt, Record]]) -> tuple[Attempt, Record] | None:
    """Of the attempts at one run, oldest first, the one that counts; None if none is ok."""
    return next((each for each in reversed(recorded) if each[1].ok), None)


def environment_of(cluster: Cluster, git: Git) -> Environment:
    """What a record keeps of the cluster: not the command that reaches it, which names keys and users."""
    return Environment(
        inventory=cluster.inventory,
        nodes=cluster.nodes,
        workers=cluster.workers,
        environment_digest=cluster.environment_digest,
        environments={
            name: digest for name, digest in cluster.environments.items() if name in (*cluster.stacks, NEWEST)
        },
        lock=cluster.lock,
        image=cluster.image,
        link=cluster.link,
        pinning=cluster.pinning,
        slots_per_worker=cluster.slots_per_worker,
        device=cluster.device,
        versions=cluster.versions,
        git=git,
    )


def campaigns(results: Path) -> list[Path]:
    """The folders of a matrix's campaigns, oldest first; folders not named like a campaign are ignored."""
    found = (path.parent for path in results.glob(f"[0-9]*/{FILE}"))
    return sorted(folder for folder in found if is_campaign_name(folder.name))


def choose_campaign(results: Path, matrix: str, name: str | None) -> Path:
    """The folder of a matrix's campaign: the one of this name, or else the newest.

    Args:
        results: the folder with the results of all matrices.
        matrix: the matrix's name or path.
        name: the campaign's.

    Raises:
        UserError: there is none.
    """
    stem = Path(matrix).stem
    folder = results / stem
    there = campaigns(folder)
    if not there:
        raise UserError(
            f"There are no results of {stem} in {folder}; `python -m experiments run {matrix}` makes some."
        )
    chosen = there[-1] if name is None else folder / name
    if chosen not in there:
        raise UserError(
            f"There is no campaign {name} of {stem}; there are {', '.join(path.name for path in there)}."
        )
    return chosen


def open_campaign(folder: Path) -> Campaign:
    """The campaign in `folder`, with its matrix's newest description, ladders and target.

    Raises:
        UserError: it is not a campaign, or its file is damaged.
    """
    path = folder / FILE
    try:
        file = CampaignFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{folder} is not a campaign: {FILE} can't be read ({error.strerror}).") from error
    except ValidationError as error:
        raise UserError(
            explain(error, str(path))
            + f" Move {folder} away, or restore it from a backup; nothing in it was changed."
        ) from error
    newest = read_presentation(folder)
    if newest is not None:
        file = file.model_copy(update=dict(newest))
    return Campaign(folder, file)


def create_campaign(
    results: Path,
    matrix: Matrix,
    identity: Identity,
    plan: list[PlannedRun],
    archive: bytes,
    prepared: PreparedCluster,
    git: Git,
    rule: SequentialRule | None = None,
) -> Campaign:
    """Makes a new campaign's folder atomically: under another name, then renamed."""
    started, presentation = _free_second(results), presentation_of(matrix)
    datasets = [dataset.model_dump(mode="json") for dataset in prepared.datasets]
    file = CampaignFile(
        matrix=matrix.name,
        name=campaign_name(started),
        description=presentation.description,
        started=started,
        baseline=matrix.stacks[0],
        identity=identity,
        plan=plan,
        ladders=presentation.ladders,
        target=presentation.target,
        stacks_missing=prepared.cluster.stacks_missing,
        environment=environment_of(prepared.cluster, git),
        dataset=datasets[0],
        datasets=datasets if len(datasets) > 1 else [],
        references=prepared.references,
        sequential=rule,
    )
    if sha256(archive) != identity.code:
        raise UserError("The training code's archive does not have the digest that the campaign names.")
    kept = setup_files(results.parent, matrix.stacks, prepared.cluster) | script_files(
        matrix, prepared.datasets
    )
    beside = results / f".{file.name}.new"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write_whole(beside / ARCHIVE, archive)
    write_whole(beside / FILE, file.model_dump_json(indent=2) + "\n")
    for name, content in kept.items():
        write_whole(beside / name, content)
    folder = results / file.name
    beside.rename(folder)
    return Campaign(folder, file)


def _free_second(results: Path) -> datetime:
    """The next second that no campaign is named after."""
    moment = utc_now()
    while (results / campaign_name(moment)).exists():
        time.sleep(0.05)
        moment = utc_now()
    return moment
