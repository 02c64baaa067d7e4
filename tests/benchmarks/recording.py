"""The cost of recording: the same training with every figure kept and with none, alternately.

python -m tests.benchmarks.recording --data DIR (a prepared data set) [--rounds N]

Prints the seconds of an epoch with and without for each round, and the median of the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from training.loop import train_epoch
from training.metrics.figures import Figures
from training.metrics.phases import Phases
from training.session import RankStatus
from training.spec import Conditions, Work
from training.state import set_up
from training.torchrun import TorchrunSession
from training.util.process import keep_freed_memory
from training.workload import open_workload


class Alone(TorchrunSession):
    """A single rank outside of any run, which keeps figures or drops them and is never told to stop."""

    def __init__(self, figures: Figures | None, device: torch.device | None = None) -> None:
        self.rank, self.world_size, self.local_rank = 0, 1, 0
        self.device = device or torch.device("cpu")
        self._figures = figures

    def should_stop(self) -> bool:
        """Never."""
        return False


def epoch_seconds(work: Work, data: Path, out: Path | None) -> float:
    """Seconds of one epoch's steps; figures go to `out`, or nowhere."""
    session = Alone(Figures(out) if out else None)
    phases = Phases()
    phases.begin("other")
    training = set_up(open_workload(work, data, Conditions(), data), session, phases)
    figures = {"epochs": 1, "steps_per_epoch": work.steps_per_epoch, "world_size": 1, "parameters": 0}
    session.report("start", **figures, model="", data="", metric="accuracy")
    begun = time.perf_counter()
    train_epoch(training, 1, RankStatus(), begun)
    spent = time.perf_counter() - begun
    session.close()
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the prepared data set's own folder")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    about = json.loads((given.data / "dataset.json").read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    keep_freed_memory()
    fields = {"data": about["spec"], "data_digest": about["digest"], "workers": 1, "epochs": 1, "seed": 1}
    work = Work.model_validate(fields)
    ratios = []
    for number in range(given.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            # Each goes first in half of the rounds, so that a drift of the machine affects both.
            order = (Path(folder), None) if number % 2 else (None, Path(folder))
            spent = {out is not None: epoch_seconds(work, given.data, out) for out in order}
        if not number:
            continue  # the first round warms up
        ratios.append(spent[True] / spent[False])
        print(
            f"round {number}: with {spent[True]:.2f} s, without {spent[False]:.2f} s: {ratios[-1] - 1:+.2%}"
        )
    print(f"recording costs {statistics.median(ratios) - 1:+.2%} (median of {given.rounds} rounds)")


if __name__ == "__main__":
    main()
