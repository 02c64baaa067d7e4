"""Ranks, forked from a process with torch and transformers: loading them takes longer than a short run."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from experiments.util.paths import REPOSITORY
from tests.rank_processes import exit_codes, rank_variables

#: Nothing of trainbed: ranks import that themselves, from the code archive.
LOADED: Final = ["torch", "torch._dynamo", "transformers.modeling_utils", "transformers.models.auto"]
PATIENCE: Final = 300.0  # s
SAID: Final = "said-{rank}.txt"


class RanksFailed(Exception):
    """Ranks ended with an error, or not in time."""


def run_ranks(
    ranks: int, archive: Path, out: Path, arguments: Sequence[str], *, threads: int, port: int
) -> None:
    """Run `python -m training` with these arguments once for each rank, and wait for all.

    Args:
        ranks: how many.
        archive: the code archive, which they import `training` from.
        out: the folder in which they work; what a rank prints goes to `said-<rank>.txt` there.
        arguments: of the command.
        threads: for OpenMP; the same in every call, as it is read when torch is loaded.
        port: where rank 0 listens for the others, on loopback.

    Raises:
        RanksFailed: some failed, or still ran after five minutes.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    processes = []
    for rank in range(ranks):
        call = (archive, out, list(arguments), rank_variables(rank, ranks, port), SAID.format(rank=rank))
        processes.append(context.Process(target=_run, args=call))
    for process in processes:
        process.start()
    codes = exit_codes(processes, PATIENCE)
    if late := codes.count(None):
        raise RanksFailed(f"{late} of {ranks} ranks still ran after {PATIENCE:.0f} s")
    if any(codes):
        raise RanksFailed(f"the ranks ended with {', '.join(map(str, codes))}")


def _run(
    archive: Path, out: Path, arguments: Sequence[str], environment: Mapping[str, str], said: str
) -> None:
    os.chdir(out)
    with Path(said).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= environment
    elsewhere = [path for path in sys.path if path and Path(path).resolve() != REPOSITORY]
    sys.path[:] = [str(archive), *elsewhere]
    from training.__main__ import main

    sys.exit(main(arguments))
