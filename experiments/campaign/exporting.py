"""Bringing the trained model of a run home from the cluster, in the form in which people load it."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.campaign.attempt import Attempt, name_on_cluster
from experiments.campaign.campaign import FILE, Campaign, choose_campaign, newest_ok, open_campaign
from experiments.campaign.preparation import locked_cluster
from experiments.cluster.leftovers import end_runs
from experiments.cluster.playbooks import PlaybookError, Playbooks, failure_message, last_lines
from experiments.records.record import Record
from experiments.util.errors import UserError
from experiments.util.files import file_sha256, json_text, write_whole
from experiments.util.interrupts import Interrupted

FOLDER: Final = "model"  # in the attempt's folder
NOTE: Final = "trainbed.json"  # in the model's: where it comes from (training/export.py begins it)
EXPORTED: Final = "exported"  # as roles/export names what it fetches
DIGEST: Final = "DIGEST"  # beside it: of the environment that exported it
SHOWN: Final = 12  # digits of an environment's digest


@dataclass(frozen=True)
class Found:
    """An attempt at a run that succeeded."""

    campaign: Campaign
    attempt: Attempt
    record: Record

    @property
    def identity(self) -> dict[str, Any]:
        """What the model's note says of the attempt. If it was adopted, that is where it was made."""
        record = self.record
        return {
            "run_id": record.run_id,
            "matrix": record.matrix,
            "campaign": record.campaign,
            "attempt": record.attempt,
        }


def find_run(
    results: Path, run: str, matrix: str | None, campaign: str | None, newest: Callable[[Path], Path]
) -> Found:
    """The attempt that a person means: the newest good one, unless its own folder is named.

    Args:
        results: the folder with the results of all matrices.
        run: results/<matrix>/<campaign>/<run id>, the same with /<attempt>, or only the run id.
        matrix: name or path of the matrix, if `run` is only an id.
        campaign: name of the campaign, likewise.
        newest: the campaign to take if none is named, of those in the matrix's folder.

    Raises:
        UserError: there is no such run, it did not succeed, or it kept no weights.
    """
    wanted = None
    if run and ("/" in run or Path(run).is_dir()):
        path = Path(run)
        if not path.is_dir():
            raise UserError(f"There is no folder {run}: give results/<matrix>/<campaign>/<run id>.")
        if (path / FILE).is_file():
            raise UserError(f"{run} is a campaign: name one of its runs, as {run.rstrip('/')}/<run id>.")
        path = path.absolute()
        if path.name.isdigit():
            path, wanted = path.parent, path.name
        there = open_campaign(path.parent)
        run_id = path.name
    elif run and matrix is not None:
        chosen = choose_campaign(results, matrix, campaign)
        there, run_id = open_campaign(chosen if campaign else newest(chosen.parent)), run
    else:
        raise UserError(
            "Name the run (RUN= with make): results/<matrix>/<campaign>/<run id>, or its id and the matrix."
        )
    return _good_attempt(there, run_id, wanted)


def _good_attempt(campaign: Campaign, run_id: str, wanted: str | None) -> Found:
    planned = next((each for each in campaign.file.plan if each.run_id == run_id), None)
    if planned is None:
        ids = ", ".join(each.run_id for each in campaign.file.plan)
        raise UserError(f"The campaign {campaign.folder} has no run {run_id}; it has {ids}.")
    if planned.cannot_run is not None:
        raise UserError(f"{run_id} was not run: {planned.cannot_run}")
    ended = [each for each in campaign.recorded(run_id) if wanted in (None, each[0].folder.name)]
    if not ended:
        raise UserError(f"{run_id} has not ended yet: `python -m experiments run` makes or records it.")
    good = newest_ok(ended)
    if good is None:
        _, newest = ended[-1]
        raise UserError(
            f"{run_id} did not succeed, so it has no model to export. Attempt {newest.attempt:02d} was "
            f"{newest.status}: {newest.reason}"
        )
    found = Found(campaign, *good)
    specification = found.record.specification
    if specification.work.data.has_own_loop:
        raise UserError(
            f"{run_id} ran {specification.work.data.name}, which has a loop of its own: what it wrote is in "
            "the folder script of the run's own, on the cluster's shared storage."
        )
    if specification.bare:
        raise UserError(f"{run_id} started an empty program, which trains nothing: there is no model.")
    if specification.conditions.save == "none" and not specification.work.keeps_checkpoints:
        raise UserError(
            f"{run_id} kept neither its model nor checkpoints: set `save: last` (conditions.save) in the "
            "matrix, and run it again."
        )
    return found


def export_model(
    playbooks: Playbooks, results: Path, found: Found, out: Path | None, *, break_lock: bool
) -> None:
    """Brings a run's model into a new folder, which appears only when it is complete.

    Args:
        playbooks: how playbooks are called.
        results: the folder with the results of all matrices.
        found: the run.
        out: the new folder; None = `model` in the attempt's.
        break_lock: take the cluster's lock even from a holder that may still be alive.

    Raises:
        UserError: the folder holds something else, or the model can't be had; the text says why.
        Interrupted: a signal came meanwhile, and the export was ended.
    """
    target = (out or found.attempt.folder / FOLDER).absolute()
    if target.exists():
        fault = _fault_of(target, found)
        if fault is not None:
            raise UserError(
                f"{target} exists already, and {fault}. Nothing was overwritten: move it away, or give "
                "another folder (--out FOLDER)."
            )
        playbooks.screen.line(f"{target} is this run's model already, with every file as it was exported.")
        return
    _check_code(found.campaign)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.exporting")
    shutil.rmtree(draft, ignore_errors=True)  # of a killed command
    draft.mkdir()
    try:
        _fetch(playbooks, results, found, draft, break_lock)
        note = _complete_note(found, draft)
        (draft / EXPORTED).rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    _tell(playbooks, target, note, found.record)


def _fault_of(folder: Path, found: Found) -> str | None:
    """Why a folder is not an export of this run; None if it is, and nothing was changed since."""
    try:
        note = json.loads((folder / NOTE).read_bytes())
        files = dict(note["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"is no model that was exported (it has no readable {NOTE})"
    if {key: note.get(key) for key in found.identity} != found.identity:
        return f"is the model of another run ({note.get('run_id')}, {note.get('campaign')})"
    if _digests(folder) != files:
        return "was changed after it was exported"
    return None


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file but the note, by its path within the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        name: file_sha256(path) for path in files if (name := path.relative_to(folder).as_posix()) != NOTE
    }


def _check_code(campaign: Campaign) -> None:
    """Checks that the runs' code is there and can export."""
    archive = campaign.archive
    if not archive.is_file() or file_sha256(archive) != campaign.file.identity.code:
        raise UserError(
            f"{archive} is missing or was changed: the code of the run, which exports it, is lost."
        )
    with zipfile.ZipFile(archive) as code:
        if "training/export.py" not in code.namelist():
            raise UserError(
                f"The code of the run ({archive}) is older than exporting: run the matrix again with this "
                "checkout."
            )


def _fetch(playbooks: Playbooks, results: Path, found: Found, draft: Path, break_lock: bool) -> None:
    """Has the cluster export the model, and fetches it into the draft."""
    record, screen = found.record, playbooks.screen
    variables = {
        "run_id": record.run_id,
        "run_attempt": name_on_cluster(record.campaign, record.attempt),
        "run_spec": record.specification.model_dump(mode="json"),
        "run_code_digest": record.code_digest,
        "run_code_archive": str(found.campaign.archive.absolute()),
        "export_dest": str(draft),
        "export_made_on": record.environment.inventory,
    }
    with locked_cluster(playbooks, results, "export", break_lock) as folder:
        log = folder / "export.log"
        screen.status(f"exporting the model of {record.run_id}", now=True)
        try:
            outcome = playbooks.play("export", log, variables)
        except Interrupted:
            end_runs(playbooks, folder / "stop.log")
            raise
        screen.clear_status()
        if not outcome.good:
            message = failure_message(log)
            if message is None:
                message = "\n".join(["The last lines of playbooks/export.yml:", *last_lines(log)])
            raise PlaybookError(f"{record.run_id} can't be exported. {message}\nThe full output is in {log}.")


def _complete_note(found: Found, draft: Path) -> dict[str, Any]:
    """Adds to the model's note what only this side knows: the attempt, the environments, the files."""
    model = draft / EXPORTED
    note: dict[str, Any] = json.loads((model / NOTE).read_bytes())
    if note["run_id"] != found.record.run_id:
        raise UserError(
            f"The run's folder on the cluster holds another run, {note['run_id']}: nothing was exported."
        )
    note |= found.identity
    note["environment_digest"] = found.record.environment.digest_for(found.record.specification)
    note["exported_with_environment_digest"] = (draft / DIGEST).read_text(encoding="utf-8").strip()
    note["files"] = _digests(model)
    write_whole(model / NOTE, json_text(note))
    return note


def _tell(playbooks: Playbooks, target: Path, note: dict[str, Any], record: Record) -> None:
    """Says what was exported, and in which respects it is not what one may expect."""
    screen, weights = playbooks.screen, note["weights_digest"]
    epochs = record.specification.work.epochs
    screen.line(f"Wrote {target}: the model after epoch {note['epoch']} of {epochs}, weights {weights[:8]}.")
    if weights != record.weights_digest:
        screen.line(
            f"These are not the weights that the run ended with ({str(record.weights_digest)[:8]}), but "
            + (
                "those of its best epoch."
                if record.specification.conditions.save == "best"
                else "those of the newest that it kept."
            ),
            "yellow",
        )
    trained, exported = note["environment_digest"], note["exported_with_environment_digest"]
    if trained != exported:
        screen.line(
            f"The run's environment was {trained[:SHOWN]}; it was exported with the one that the cluster has "
            f"now, {exported[:SHOWN]}.",
            "yellow",
        )
