"""A run's model comes home: which run is meant, what is refused, and that it arrives whole or not at all."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.campaign import campaigns
from experiments.campaign.exporting import find_run
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.util.errors import UserError
from tests.unit.experiments import made_up_records as made_up
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace


def keeping(one: Record, **conditions: Any) -> Record:
    """The record of the same run, with other conditions."""
    found = one.specification.conditions.model_copy(update=conditions)
    specification = one.specification.model_copy(update={"conditions": found})
    changed = {"specification": specification, "run_id": specification.run_id}
    return one.model_copy(update=changed | {"conditions_digest": found.digest})


def planned(one: Record, **changes: Any) -> PlannedRun:
    return PlannedRun(run_id=one.run_id, axes={}, specification=one.specification, **changes)


def newest(folder: Path) -> Path:
    return campaigns(folder)[-1]


def test_of_campaigns_that_are_not_named_the_caller_chooses_one(tmp_path: Path) -> None:
    kept = keeping(made_up.record("ddp", 1, 50.0, 62.0), save="last")
    campaign = made_up.campaign(tmp_path, [planned(kept)], [kept])
    older = shutil.copytree(campaign.folder, campaign.folder.with_name("20200101T000000Z"))
    found = find_run(tmp_path, kept.run_id, "made", None, lambda folder: campaigns(folder)[0])
    assert found.campaign.folder == older


def test_the_newest_good_attempt_is_meant_unless_one_is_named(tmp_path: Path) -> None:
    first = keeping(made_up.record("ddp", 1, 50.0, 62.0), save="last")
    failed = keeping(
        made_up.record("ddp", 1, 50.0, 62.0, attempt=3, status="failed", reason="It broke."), save="last"
    )
    second = first.model_copy(update={"attempt": 2})
    campaign = made_up.campaign(tmp_path, [planned(first)], [first, second, failed])
    folder = campaign.folder / first.run_id
    for run, matrix, name, attempt in (
        (str(folder), None, None, 2),
        (f"{folder}/", "quick", "another", 2),  # a path needs neither
        (str(folder / "01"), None, None, 1),
        (first.run_id, "made", None, 2),
        (first.run_id, "some/folder/made.yml", made_up.NAME, 2),
    ):
        found = find_run(tmp_path, run, matrix, name, newest)
        assert (found.record.run_id, found.record.attempt) == (first.run_id, attempt)
        assert found.attempt.folder == folder / f"{attempt:02d}"
    with pytest.raises(UserError, match=r"did not succeed.* Attempt 03 was failed: It broke\."):
        find_run(tmp_path, str(folder / "03"), None, None, newest)


def test_a_run_that_keeps_checkpoints_can_be_exported(tmp_path: Path) -> None:
    one = made_up.record("ddp", 1, 50.0, 62.0)
    work = one.specification.work.model_copy(update={"checkpoint_every_epochs": 1})
    specification = one.specification.model_copy(update={"work": work})
    changed = {"specification": specification, "run_id": specification.run_id, "work_digest": work.digest}
    kept = one.model_copy(update=changed)
    made_up.campaign(tmp_path, [planned(kept)], [kept])
    assert find_run(tmp_path, kept.run_id, "made", None, newest).record == kept


def test_what_cannot_be_exported_is_refused_with_a_sentence(tmp_path: Path) -> None:
    ok = made_up.record("ddp", 1, 50.0, 62.0)
    never, lacking = made_up.planned("ddp", 2), made_up.planned("spark", 2, cannot_run="There is no Spark.")
    campaign = made_up.campaign(tmp_path, [planned(ok), never, lacking], [ok])
    folder = campaign.folder
    for run, matrix, name, said in (
        (ok.run_id, "made", None, f"{ok.run_id} kept neither its model nor checkpoints: set `save: last`"),
        (never.run_id, "made", None, f"{never.run_id} has not ended yet"),
        (lacking.run_id, "made", None, f"{lacking.run_id} was not run: There is no Spark."),
        ("ddp-w9", "made", None, f"has no run ddp-w9; it has {ok.run_id}, {never.run_id}"),
        ("ddp-w9", "other", None, "There are no results of other"),
        ("ddp-w9", "made", "20200101T000000Z", "There is no campaign 20200101T000000Z of made"),
        ("ddp-w9", None, None, "Name the run"),
        ("", "made", None, "Name the run"),
        (str(folder), None, None, "is a campaign: name one of its runs"),
        (str(folder / "nothing"), None, None, f"There is no folder {folder}/nothing"),
        (str(tmp_path), None, None, "is not a campaign"),
    ):
        with pytest.raises(UserError) as refused:
            find_run(tmp_path, run, matrix, name, newest)
        assert said in str(refused.value)


@pytest.fixture
def kept(workplace: Workplace) -> Path:
    """The folder, in a workplace, of a run that kept its model."""
    workplace.matrix(MATRIX.replace("warmup_steps: 2", "warmup_steps: 2, save: last"))
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0, output
    workplace.forget_calls()
    return workplace.campaigns()[-1] / workplace.records()["plain-w1/01"].run_id


def leftovers(workplace: Workplace) -> list[str]:
    """Names of what is there only while a model is on its way."""
    results = workplace.root / "results"
    return [path.name for path in (*results.rglob(".*exporting"), *results.glob(".prepare-*"))]


def test_a_model_comes_home_once(workplace: Workplace, kept: Path) -> None:
    status, output = workplace.run("export", str(kept.relative_to(workplace.root)))
    assert status == 0, output
    assert workplace.calls() == ["lock held", "export plain-w1", "lock free"]
    record, model = workplace.records()["plain-w1/01"], kept / "01" / "model"
    assert record.weights_digest is not None
    assert f"Wrote {model}: the model after epoch 2 of 2, weights {record.weights_digest[:8]}." in output
    assert "not the weights" not in output and "environment" not in output
    assert sorted(path.name for path in model.iterdir()) == ["model.safetensors", "trainbed.json"]
    note = json.loads((model / "trainbed.json").read_text())
    assert {name: note[name] for name in ("run_id", "matrix", "campaign", "attempt")} == {
        "run_id": record.run_id,
        "matrix": "small",
        "campaign": kept.parent.name,
        "attempt": 1,
    }
    assert note["environment_digest"] == note["exported_with_environment_digest"] == "e" * 64
    assert leftovers(workplace) == [] and len(workplace.faults()) == 3  # runs that were not made

    # The same again asks no cluster; a changed one is not overwritten.
    workplace.forget_calls()
    status, output = workplace.run("export", kept.name, "--matrix", "small")
    assert status == 0 and f"{model} is this run's model already" in output
    (model / "model.safetensors").write_text("other weights")
    status, output = workplace.run("export", kept.name, "--matrix", "small")
    assert status == 2 and f"{model} exists already, and was changed after it was exported" in output
    assert "--out" in output and (model / "model.safetensors").read_text() == "other weights"
    assert not (workplace.cluster_folder / "calls.jsonl").exists()
    elsewhere = workplace.root / "new" / "home"
    assert workplace.run("export", str(kept), "--out", "new/home")[0] == 0
    assert (elsewhere / "model.safetensors").read_text() == "weights"

    note["attempt"] = 7
    (model / "trainbed.json").write_text(json.dumps(note))
    assert "is the model of another run" in workplace.run("export", str(kept))[1]
    shutil.rmtree(model)
    model.mkdir()
    assert "is no model that was exported" in workplace.run("export", str(kept))[1]


def test_other_weights_and_another_environment_are_said(workplace: Workplace, kept: Path) -> None:
    workplace.behaviour(environment="f" * 64, note={"epoch": 1, "weights_digest": "0123" * 16})
    status, output = workplace.run("export", str(kept))
    assert status == 0 and "after epoch 1 of 2, weights 01230123" in output
    assert "These are not the weights that the run ended with" in output
    assert f"The run's environment was {'e' * 12}; " in output and f"now, {'f' * 12}." in output
    note = json.loads((kept / "01" / "model" / "trainbed.json").read_text())
    assert (note["environment_digest"], note["exported_with_environment_digest"]) == ("e" * 64, "f" * 64)


def test_nothing_is_left_of_an_export_that_fails(workplace: Workplace, kept: Path) -> None:
    shutil.rmtree(workplace.cluster_folder / "shared" / "runs")
    status, output = workplace.run("export", str(kept))
    assert status == 2 and f"{kept.name} can't be exported. master: " in output
    assert f"/runs/{kept.name}/{kept.parent.name}-01 is gone (inventory/testbed)." in output
    assert workplace.calls() == ["lock held", "export plain-w1", "lock free"]
    (log,) = (workplace.root / "results").glob(".prepare-*/export.log")
    assert str(log) in output and not (kept / "01" / "model").exists()
    assert not list(kept.rglob(".*exporting"))

    workplace.forget_calls()
    workplace.behaviour(lock_held="The cluster is in use: 'run' by ada.")
    status, output = workplace.run("export", str(kept))
    assert status == 2 and "The cluster is in use: 'run' by ada." in output
    assert workplace.calls() == ["lock held"] and leftovers(workplace) == []

    (kept.parent / "training.zip").write_bytes(b"other code")
    assert "training.zip is missing or was changed" in workplace.run("export", str(kept))[1]


def test_an_interrupted_export_is_ended_on_the_cluster(workplace: Workplace, kept: Path) -> None:
    workplace.behaviour(export_seconds=60)
    process = workplace.start("export", str(kept))
    workplace.wait_for("exporting")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert workplace.calls() == ["lock held", "export plain-w1", "stop", "lock free"]
    assert leftovers(workplace) == [] and not (kept / "01" / "model").exists()
