"""A trial of a search ends once the searcher has stopped it, of which the master tells only who asks."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("determined")
from determined.common.api import bindings

from tests.standins.determined.master import answer
from tests.unit.training.training_helpers import Datasets, Ranks, Run, data_spec, events, load, run_spec
from training.launchers import determined_search
from training.launchers.determined_search import SearchSession
from training.spec import RunSpec
from training.util.stop import StopSignal

DATA = data_spec(train=64, validation=16)
STEPS_PER_EPOCH = 8


def trial(state: str, batches: int) -> bindings.trialv1Trial:
    """What the master answers about a trial."""
    shown = copy.deepcopy(answer("trial-completed")[1]["trial"])
    shown |= {
        "state": f"STATE_{state}",
        "latestValidation": shown["latestValidation"] | {"totalBatches": batches},
    }
    return bindings.trialv1Trial.from_json(shown)


def asked(out: Path) -> int:
    """How often the master was asked."""
    return int((out / "asked.txt").read_text())


class Searched(SearchSession):
    """A rank of a trial without a cluster; its master shows an evaluation only when asked again."""

    states: tuple[str, ...] = ("RUNNING", "RUNNING", "RUNNING")  # after each epoch

    def __init__(self, spec: RunSpec, out: Path, stop: StopSignal) -> None:
        # As torchrun tells ranks that are all on one node.
        os.environ |= {
            "LOCAL_WORLD_SIZE": os.environ["WORLD_SIZE"],
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
        }
        super().__init__(spec, out, stop)
        self.goes_on_later = True
        self._out = out
        self._asked = 0

    def _trial(self) -> bindings.trialv1Trial:
        self._asked += 1
        epoch, again = divmod(self._asked + 1, 2)
        batches = epoch * STEPS_PER_EPOCH if again else (epoch - 1) * STEPS_PER_EPOCH
        (self._out / "asked.txt").write_text(str(self._asked))
        return trial(self.states[epoch - 1] if again else "STOPPING_COMPLETED", batches)


class StoppedAfterTheFirst(Searched):
    """The same, of a trial that the searcher stops at its first evaluation."""

    states = ("STOPPING_COMPLETED",)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_ends_at_the_evaluation_at_which_it_is_stopped(
    ranks: Ranks, datasets: Datasets, tmp_path: Path, workers: int
) -> None:
    from training.rank import run_rank

    prepared = datasets(DATA)
    spec = run_spec(prepared, DATA, workers=workers, batch_per_worker=8 // workers, epochs=3)
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    assert ranks(workers, run_rank, (file, prepared.path, out, StoppedAfterTheFirst)) == [0] * workers
    assert not (out / "result.json").exists() and not list(out.glob("error-*.json"))
    assert [event["epoch"] for event in events(out) if event["event"] == "epoch"] == [1]
    assert asked(out) == 2  # the first answer did not know the evaluation yet


def test_a_trial_that_goes_on_is_like_any_run(
    ranks: Ranks, run: Run, datasets: Datasets, tmp_path: Path
) -> None:
    from training.rank import run_rank

    prepared = datasets(DATA)
    spec = run_spec(prepared, DATA, batch_per_worker=8, epochs=3)
    whole, _ = run(spec, prepared.path)
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    assert ranks(1, run_rank, (file, prepared.path, out, Searched)) == [0]
    assert load(out / "result.json")["weights_digest"] == load(whole / "result.json")["weights_digest"]
    assert asked(out) == 6


class Told:
    """What a trial reports to the Core API."""

    def __init__(self) -> None:
        self.evaluations: list[tuple[int, dict[str, Any]]] = []
        self.progress: list[float] = []

    @property
    def train(self) -> Told:
        return self

    def report_validation_metrics(self, steps_completed: int, metrics: dict[str, Any]) -> None:
        self.evaluations.append((steps_completed, metrics))

    def report_progress(self, done: float) -> None:
        self.progress.append(done)


def session(spec: RunSpec, told: Told) -> Searched:
    made = object.__new__(Searched)
    made._context, made._work = told, spec.work  # type: ignore[assignment]
    made._trial = lambda: trial("RUNNING", 8)  # type: ignore[method-assign]
    return made


def test_only_evaluations_are_reported_with_the_trials_length(datasets: Datasets) -> None:
    spec = run_spec(datasets(DATA), DATA, epochs=3, evaluate_every_epochs=3)
    told = Told()
    searched = session(spec, told)
    searched._report_epoch(8, {"epoch": 1, "train_loss": 0.6})  # the searcher's metric would be missing
    assert told.evaluations == [] and told.progress == []
    searched._trial = lambda: trial("RUNNING", 24)  # type: ignore[method-assign]
    searched._report_epoch(24, {"epoch": 3, "train_loss": 0.5, "validation_loss": 0.4})
    (reported,) = told.evaluations
    assert reported == (
        24,
        {"epoch": 3, "train_loss": 0.5, "validation_loss": 0.4, "batches": 24, "last_batch": 24},
    )
    assert told.progress == [1.0]


def test_a_master_that_does_not_show_the_evaluation_is_not_waited_for_forever(
    datasets: Datasets, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(determined_search, "DECIDED_WITHIN_S", 0.3)
    searched = session(run_spec(datasets(DATA), DATA, epochs=3), Told())
    searched._report_epoch(16, {"epoch": 2, "validation_loss": 0.4})
    assert not searched._stopped
    assert "does not show the evaluation after 16 batches" in capsys.readouterr().err
