"""The model that a run keeps: the last epoch's or the best one's, whole or not at all; it comes home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.training_helpers import Datasets, Run, data_spec, load, run_spec
from training.errors import CheckpointError
from training.export import export
from training.spec import RunSpec
from training.trained import read_model, write_model
from training.weights import weights_digest

DATA = data_spec()


def keeping(spec: RunSpec, how: str) -> RunSpec:
    return RunSpec(
        stack=spec.stack, work=spec.work, conditions=spec.conditions.model_copy(update={"save": how})
    )


@pytest.mark.parametrize("how", ["last", "best", "none"])
def test_the_model_of_the_epoch_that_was_asked_for_is_kept(
    run: Run, datasets: Datasets, tmp_path: Path, how: str
) -> None:
    prepared = datasets(DATA)
    # So fast that it soon forgets what it has learnt: the best epoch is an early one.
    spec = run_spec(prepared, DATA, workers=2, epochs=5, learning_rate=0.3, schedule="constant")
    out, statuses = run(keeping(spec, how), prepared.path)
    assert statuses == [0, 0]
    result = load(out / "result.json")
    accuracies = [epoch["validation_accuracy"] for epoch in result["epochs"]]
    if how == "none":
        assert not (out / "model").exists()
        with pytest.raises(CheckpointError, match=r"has neither a model \(save: last, or best\) nor a good"):
            export(spec, prepared.path, out, tmp_path / "home")
        return
    found = read_model(out)
    assert found
    state, facts = found
    best = accuracies.index(max(accuracies)) + 1
    assert facts["epoch"] == (best if how == "best" else 5)
    assert best < 5, "the two are to differ"
    assert (facts["metric"], facts["value"]) == ("accuracy", accuracies[facts["epoch"] - 1])
    assert facts["weights_digest"] == weights_digest(state)
    assert (facts["weights_digest"] == result["weights_digest"]) == (how == "last")
    assert len(list((out / "model").iterdir())) == 2

    other = run_spec(prepared, DATA, workers=2, epochs=5, learning_rate=0.2, schedule="constant")
    with pytest.raises(CheckpointError, match="is from another work"):
        export(other, prepared.path, out, tmp_path / "home")
    home = export(keeping(spec, how), prepared.path, out, tmp_path / "home")
    note = load(home / "trainbed.json")
    assert note == facts | {
        "run_id": keeping(spec, how).run_id,
        "model": "bert, 1 layers, 8 wide, 2 heads, from scratch",
    }


def test_every_evaluated_epoch_is_judged_by_the_workloads_metric(run: Run, datasets: Datasets) -> None:
    prepared = datasets(DATA)
    work: dict[str, Any] = {"epochs": 3, "evaluate_every_epochs": 2, "learning_rate": 1e-6}
    out, statuses = run(keeping(run_spec(prepared, DATA, **work), "best"), prepared.path)
    assert statuses == [0]
    found = read_model(out)
    assert found and found[1]["epoch"] == 2  # the third is no better, and the first was not evaluated


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    assert read_model(tmp_path) is None
    write_model(tmp_path, {"weights": torch.ones(3)}, 1, {"metric": "loss", "value": 2.0})
    write_model(tmp_path, {"weights": torch.zeros(3)}, 4, {"metric": "loss", "value": float("nan")})
    found = read_model(tmp_path)
    assert found and found[1] == {"epoch": 4, "metric": "loss", "value": None}
    assert found[0]["weights"].tolist() == [0.0, 0.0, 0.0]
    weights = tmp_path / "model" / "weights-000004.pt"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"weights-000004.pt is damaged: it is not what was written"):
        read_model(tmp_path)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"model is incomplete: .*weights-000004.pt is missing"):
        read_model(tmp_path)
    (tmp_path / "model" / "model.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match="model can't be read"):
        read_model(tmp_path)


def test_a_model_that_cannot_be_written_is_said_and_the_earlier_one_stays(full_disk: Path) -> None:
    write_model(full_disk, {"weights": torch.ones(3)}, 1, {})
    with pytest.raises(CheckpointError, match=r"can't be written to .*/model: .*No space left on device"):
        write_model(full_disk, {"weights": torch.zeros(1 << 19)}, 2, {})
    found = read_model(full_disk)
    assert found and found[1] == {"epoch": 1}
    kept = sorted(path.name for path in (full_disk / "model").iterdir())
    assert kept == ["model.json", "weights-000001.pt"]  # no draft stays
