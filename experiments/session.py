"""What every command that touches the cluster begins with: the lock, and a cluster that is prepared."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.archive import build_archive
from experiments.attempts import left_behind_anywhere
from experiments.cluster import Prepared, read_prepared
from experiments.errors import UserError
from experiments.files import utc_now, write_whole
from experiments.lock import cluster_lock
from experiments.matrix import Matrix
from experiments.playbooks import Playbooks, failure_message, last_lines, process_mark
from experiments.processes import end_marked, has_process

PREFIX = ".prepare-"  # then the controller's process id


@contextmanager
def prepared_cluster(
    playbooks: Playbooks, matrix: Matrix, results: Path, verb: str, break_lock: bool
) -> Iterator[Prepared]:
    """The cluster, locked and with the matrix's data staged, for as long as the context is open.

    Args:
        playbooks: how playbooks are called.
        matrix: whose data is prepared.
        results: the folder with the results of all matrices.
        verb: what the lock is taken for.
        break_lock: take it also from a holder who may still be alive.
    """
    results.mkdir(parents=True, exist_ok=True)
    end_left_behind(playbooks, results)
    folder = results / f"{PREFIX}{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    kept = False
    try:
        with cluster_lock(playbooks, verb, folder, take_over=break_lock):
            prepared = _prepare(playbooks, matrix, folder)
            yield prepared
    except UserError:
        kept = (folder / "prepare.log").exists() and not (folder / "cluster.json").exists()
        raise
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


def _prepare(playbooks: Playbooks, matrix: Matrix, folder: Path) -> Prepared:
    screen, log, begun = playbooks.screen, folder / "prepare.log", utc_now()

    def tick() -> None:
        seconds = (utc_now() - begun).total_seconds()
        screen.status(
            f"preparing the cluster and the data set ({seconds:.0f} s)" if screen.is_terminal else "preparing"
        )

    screen.status("preparing the cluster and the data set", now=True)
    archive = folder / "training.zip"
    write_whole(archive, build_archive(playbooks.root / "training"))
    variables = {
        "prepare_code_archive": str(archive.absolute()),
        "prepare_data_spec": matrix.data.model_dump(mode="json"),
        "prepare_files": str(matrix.folder.absolute()),
        "prepare_dest": str(folder.absolute()),
    }
    outcome = playbooks.play("prepare", log, variables, tick=tick)
    screen.clear_status()
    if not outcome.good:
        shown = "\n".join(f"  {line}" for line in last_lines(log))
        message = failure_message(log) or "its last lines are above"
        raise UserError(f"{shown}\nplaybooks/prepare.yml failed: {message} All of its output is in {log}.")
    return read_prepared(folder, matrix.data)


def end_left_behind(playbooks: Playbooks, results: Path) -> None:
    """Ends the playbooks that killed controllers left running on this machine."""
    for attempt in left_behind_anywhere(results):
        if end_marked(process_mark(attempt.variables)):
            playbooks.screen.line(
                f"Ended a playbook that a killed controller had left running ({attempt.folder.parent.name})."
            )
    for folder in results.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX)
        if pid.isdigit() and not has_process(int(pid)):
            for name in ("lock-vars.json", "prepare-vars.json"):
                end_marked(process_mark(folder / name))
            shutil.rmtree(folder, ignore_errors=True)
