"""A stack asks for its slots back, as Determined does: the ranks leave, and the work is resumed later."""

from __future__ import annotations

from pathlib import Path

from tests.unit.training.training_helpers import Datasets, Ranks, Run, data_spec, load, run_spec
from training.spec import RunSpec
from training.torchrun import TorchrunSession
from training.util.stop import StopSignal

DATA = data_spec(train=64, validation=16)
ENOUGH = 5  # steps


class Preempted(TorchrunSession):
    """A rank whose launcher wants the slots back after some steps, tells only rank 0, and resumes later."""

    def __init__(self, spec: RunSpec, out: Path, stop: StopSignal) -> None:
        super().__init__(spec, out, stop)
        self.goes_on_later = True
        self._asked = 0

    def should_stop(self) -> bool:
        self._asked += 1
        return self.rank == 0 and self._asked > ENOUGH


def test_slots_that_are_asked_back_are_given_back_and_the_work_goes_on(
    ranks: Ranks, run: Run, datasets: Datasets, tmp_path: Path
) -> None:
    from training.rank import run_rank

    prepared = datasets(DATA)
    spec = run_spec(prepared, DATA, workers=2, batch_per_worker=4, epochs=2, checkpoint_every_epochs=1)
    whole, statuses = run(spec, prepared.path)
    assert statuses == [0, 0]

    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    assert ranks(2, run_rank, (file, prepared.path, out, Preempted)) == [0, 0]
    assert not (out / "result.json").exists()
    assert not list(out.glob("error-*.json"))
    (kept,) = (out / "checkpoints").iterdir()
    assert int(kept.name.split("-")[0]) == ENOUGH + 1

    assert ranks(2, run_rank, (file, prepared.path, out)) == [0, 0]
    assert load(out / "result.json")["weights_digest"] == load(whole / "result.json")["weights_digest"]


def test_what_an_earlier_try_said_of_its_failure_is_not_taken_for_this_ones(
    run: Run, datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(DATA)
    out = tmp_path / "out"
    out.mkdir()
    (out / "error-0.json").write_text("{}", encoding="ascii")
    assert run(run_spec(prepared, DATA, epochs=1), prepared.path, out)[1] == [0]
    assert not (out / "error-0.json").exists()
