"""How every command that uses the cluster starts: it takes the lock and prepares the cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.campaign.attempt import VARIABLES, Attempt
from experiments.campaign.code_archive import training_archive
from experiments.campaign.machines import note_machines
from experiments.cluster.description import PreparedCluster, read_prepared
from experiments.cluster.lock import cluster_lock
from experiments.cluster.playbooks import (
    PlaybookError,
    Playbooks,
    failure_message,
    last_lines,
    process_mark,
    step_under_way,
)
from experiments.cluster.prepared_so_far import FOLLOW, PreparedSoFar
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from experiments.util.files import utc_now, write_whole
from experiments.util.processes import end_marked, has_process, marks_in_use, processes_with
from experiments.util.words import counted
from training.settings import canonical
from training.spec import DataSpec

PREFIX = ".prepare-"  # then the controller's process id


@contextmanager
def prepared_cluster(
    playbooks: Playbooks, matrix: Matrix, results: Path, verb: str, break_lock: bool
) -> Iterator[PreparedCluster]:
    """The cluster, locked and with the matrix's data staged, for as long as the context is open.

    Args:
        playbooks: how playbooks are called.
        matrix: the one whose data sets are prepared.
        results: the folder with the results of all matrices.
        verb: what the lock is taken for.
        break_lock: take the lock even from a holder that may still be alive.
    """
    with locked_cluster(playbooks, results, verb, break_lock) as folder:
        prepared = _prepare(playbooks, matrix, folder)
        note_machines(playbooks.root, results, prepared.cluster.inventory, prepared.cluster.machines)
        yield prepared


@contextmanager
def locked_cluster(playbooks: Playbooks, results: Path, verb: str, break_lock: bool) -> Iterator[Path]:
    """The cluster's lock, for as long as the context is open, and a folder for what it takes meanwhile.

    The folder is removed, except after a PlaybookError.

    Args:
        playbooks: how playbooks are called.
        results: the folder with the results of all matrices.
        verb: what the lock is taken for.
        break_lock: take the lock even from a holder that may still be alive.
    """
    results.mkdir(parents=True, exist_ok=True)
    end_orphaned_playbooks(playbooks, results)
    folder = results / f"{PREFIX}{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    keep_log = False
    try:
        with cluster_lock(playbooks, verb, folder, take_over=break_lock):
            yield folder
    except PlaybookError:
        keep_log = True
        raise
    finally:
        if not keep_log:
            shutil.rmtree(folder, ignore_errors=True)


def _prepare(playbooks: Playbooks, matrix: Matrix, folder: Path) -> PreparedCluster:
    screen, log, started = playbooks.screen, folder / "prepare.log", utc_now()
    specs = matrix.data_specs
    what = "the data set" if len(specs) == 1 else counted(len(specs), "data set")
    rows = PreparedSoFar(folder / FOLLOW)

    def tick() -> None:
        seconds = (utc_now() - started).total_seconds()
        if counted_rows := rows.text():
            doing = f"preparing {what}: {counted_rows}"
        else:
            step = step_under_way(log)
            doing = f"preparing the cluster and {what}{f': {step}' if step else ''}"
        screen.status(f"{doing} ({seconds:.0f} s)" if screen.is_terminal else doing)

    screen.status(f"preparing the cluster and {what}", now=True)
    archive = folder / "training.zip"
    write_whole(archive, training_archive(playbooks.root, matrix.workload_folder))
    variables = {
        "prepare_code_archive": str(archive.absolute()),
        "prepare_data_sets": data_sets_asked(matrix, specs),
        "prepare_files": str(matrix.folder.absolute()),
        "prepare_dest": str(folder.absolute()),
    }
    try:
        outcome = playbooks.play("prepare", log, variables, tick=tick)
    finally:
        rows.stop()
    screen.clear_status()
    if not outcome.good:
        shown = "\n".join(f"  {line}" for line in last_lines(log))
        message = failure_message(log) or "its last lines are above"
        raise PlaybookError(f"{shown}\nplaybooks/prepare.yml failed: {message} Its full output is in {log}.")
    return read_prepared(folder, specs)


def data_sets_asked(matrix: Matrix, specs: Sequence[DataSpec]) -> list[dict[str, Any]]:
    """The data sets as the playbook takes them."""
    asked = []
    for spec in specs:
        values = {axis: getattr(spec.data, name) for axis, name in matrix.data_axes.items()}
        files = list(dict.fromkeys(spec.data.files))
        name = ", ".join(f"{axis}={value}" for axis, value in values.items())
        places = matrix.data_places(spec)
        asked.append({"name": name, "spec": canonical(spec), "files": files, "places": places})
    return asked


def end_orphaned_playbooks(playbooks: Playbooks, results: Path) -> None:
    """Ends the playbooks that killed controllers left running on this machine."""
    in_use = marks_in_use()
    # Variables of run.yml, and of stop.yml, which may still be running after a failed run has its record.
    for path in sorted(results.glob(f"*/[0-9]*/*/[0-9]*/*{VARIABLES}")):
        mark = process_mark(path)
        if mark in in_use and Attempt(path.parent).controller_gone and _end_playbook(mark):
            playbooks.screen.line(
                f"Ended a playbook that a killed controller had left running ({path.parent.parent.name})."
            )
    for folder in results.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX)
        if pid.isdigit() and not has_process(int(pid)):
            for path in folder.glob(f"*-{VARIABLES}"):
                _end_playbook(process_mark(path))
            shutil.rmtree(folder, ignore_errors=True)


def _end_playbook(mark: str) -> bool:
    """Ends the playbook with this mark, if there is one; returns whether there was.

    Raises:
        UserError: it can't be ended, and would get in the way.
    """
    was_there = end_marked(mark)
    survivors = sorted(processes_with(mark))
    if survivors:
        raise UserError(
            f"A playbook that a killed controller had left running can't be ended (process "
            f"{survivors[0]}, maybe another user's): end it, then give the same command again."
        )
    return was_there
