"""The campaign as a file store of MLflow: every file is read back by MLflow's rules."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments import cli
from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.records.record import Record
from experiments.report.frames import load
from experiments.report.mlflow_store import key_text, write_mlflow
from experiments.util.errors import UserError
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import NAME, campaign, planned, quick, record
from tests.unit.experiments.report.test_simulated import simulated
from tests.unit.experiments.report.test_standins import SECONDS, STANDIN, with_standins
from tests.unit.experiments.report.test_traced import with_traces

KEY = re.compile(r"[/\w.\- ]{1,250}")  # as MLflow has it
RUN_ID = re.compile(r"[0-9a-f]{32}")
EXPERIMENT_ID = re.compile(r"[1-9][0-9]{0,17}")
LINE = re.compile(r"(\d+) (\S+) (\d+)\n")
FINISHED, FAILED, KILLED = 3, 4, 5


@dataclass
class Run:
    meta: dict[str, Any]
    params: dict[str, str]
    metrics: dict[str, dict[int, float]]  # by step
    tags: dict[str, str]

    @property
    def seconds(self) -> set[str]:
        return {name for name in self.metrics if name.endswith("_s")}


def keys(folder: Path) -> dict[str, str]:
    """The files in a folder of keys, by their keys."""
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    for name in found:
        assert KEY.fullmatch(name) and posixpath.normpath(name) == name
    return found


def values(text: str) -> dict[int, float]:
    """A metric's values by step; no other line may be there."""
    lines = LINE.findall(text)
    assert "".join(f"{' '.join(line)}\n" for line in lines) == text and lines
    assert {moment for moment, _, _ in lines} == {lines[0][0]} and len(lines[0][0]) == 13
    return {int(step): float(value) for _, value, step in lines}


def read(store: Path) -> tuple[dict[str, Any], dict[str, Run]]:
    """The experiment's description, and its runs by name; whatever else lies in the store is a fault."""
    (place,) = store.iterdir()
    experiment: dict[str, Any] = yaml.safe_load((place / "meta.yaml").read_bytes())
    assert EXPERIMENT_ID.fullmatch(place.name) and experiment["experiment_id"] == place.name
    assert experiment["lifecycle_stage"] == "active" and "campaign" in keys(place / "tags")
    runs = {}
    for folder in place.iterdir():
        if folder.name in ("meta.yaml", "tags"):
            continue
        assert RUN_ID.fullmatch(folder.name)
        assert {each.name for each in folder.iterdir()} == {
            *("meta.yaml", "params", "metrics", "tags", "artifacts")
        }
        meta: dict[str, Any] = yaml.safe_load((folder / "meta.yaml").read_bytes())
        assert meta["run_id"] == meta["run_uuid"] == folder.name
        assert meta["experiment_id"] == place.name and meta["source_type"] == 4
        assert meta["artifact_uri"] == f"{place.name}/{folder.name}/artifacts"
        assert not any((folder / "artifacts").iterdir())
        metrics = {name: values(text) for name, text in keys(folder / "metrics").items()}
        run = Run(meta, keys(folder / "params"), metrics, keys(folder / "tags"))
        runs[f"{meta['run_name']}/{run.tags['attempt']}"] = run
    return experiment, runs


def export(made: Campaign, store: Path) -> dict[str, Run]:
    number = write_mlflow(analyse(made), store)
    _, runs = read(store)
    assert len(runs) == number
    return runs


def content(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_every_run_has_its_settings_figures_and_tags(tmp_path: Path) -> None:
    made = quick(tmp_path)
    runs = export(made, tmp_path / "mlruns")
    experiment, _ = read(tmp_path / "mlruns")
    assert experiment["name"] == f"made {NAME}" and experiment["creation_time"] == 1795261500000
    assert len(runs) == 4
    (run,) = (run for run in runs.values() if (run.tags["stack"], run.params["work.workers"]) == ("ddp", "1"))
    assert (run.meta["status"], run.meta["end_time"] - run.meta["start_time"]) == (FINISHED, 62_000)
    assert {name: run.params[name] for name in ("stack", "work.learning_rate", "work.data.train")} == {
        "stack": "ddp",
        "work.learning_rate": "5e-05",
        "work.data.train": "4000",
    }
    assert (run.params["conditions.link_rate"], run.params["conditions.trace"]) == ("1gbit", "none")
    assert run.metrics["train_loss"] == {1: 0.6, 2: 0.6}
    assert run.metrics["validation_accuracy"] == {1: 0.78, 2: 0.78}
    assert run.metrics["epoch_s"] == {1: 25.0, 2: 25.0}
    assert (run.metrics["train_s"], run.metrics["total_s"]) == ({0: 50.0}, {0: 62.0})
    phases = [found[0] for name, found in run.metrics.items() if name.startswith("phase_")]
    assert len(phases) == 13 and sum(phases) == pytest.approx(62.0)
    run_id = run.meta["run_name"]
    expected = {
        "mlflow.runName": run_id,
        "mlflow.source.git.commit": "0123456789abcdef",
        "git": "0123456789ab with uncommitted changes",
        "status": "ok",
        "campaign": NAME,
        "weights_digest": "11" * 32,
        "record": f"{run_id}/01/record.json",
    }
    assert run.tags.items() >= expected.items() and "marks" not in run.tags


def test_a_kept_campaign_is_read_back_whole(tmp_path: Path) -> None:
    runs = export(open_campaign(THREE_STACKS), tmp_path / "mlruns")
    frames = load(THREE_STACKS)
    counting = frames.runs[frames.runs.counts]
    assert {run.meta["run_name"]: run.metrics["train_s"][0] for run in runs.values()} == dict(
        zip(counting.run_id, counting.train_s, strict=True)
    )
    for run in runs.values():
        of_run = frames.epochs[frames.epochs.run_id == run.meta["run_name"]]
        assert run.metrics["train_loss"] == dict(zip(of_run.epoch, of_run.train_loss, strict=True))
        assert run.metrics["lr"] == dict(zip(of_run.epoch, of_run.lr, strict=True))
        assert (THREE_STACKS / run.tags["record"]).is_file()


def test_attempts_that_do_not_count_are_there_without_seconds(tmp_path: Path) -> None:
    plan = [planned("ddp", 1, seed) for seed in (1, 2)]
    warm_up = planned("ddp", 1, 1_000_001).model_copy(update={"warm_up": True})
    records = [
        record("ddp", 1, 50.0, 60.0, 1, attempt=1, status="failed", reason="It broke."),
        record("ddp", 1, 51.0, 61.0, 1, attempt=2),
        record("ddp", 1, 52.0, 62.0, 2, status="interrupted", reason="Ctrl-C."),
        record("ddp", 1, 53.0, 63.0, 1_000_001, status="failed", reason="It was cold."),
    ]
    runs = export(campaign(tmp_path, [*plan, warm_up], records), tmp_path / "mlruns")
    one, two = (run.run_id for run in plan)
    assert {name: run.meta["status"] for name, run in runs.items()} == {
        f"{one}/1": FAILED,
        f"{one}/2": FINISHED,
        f"{two}/1": KILLED,
    }
    failed = runs[f"{one}/1"]
    assert (failed.tags["status"], failed.tags["mlflow.note.content"]) == ("failed", "It broke.")
    assert "record" not in failed.tags and failed.metrics["train_loss"] == {1: 0.6, 2: 0.6}
    assert (failed.seconds, failed.meta["end_time"]) == (set(), None)


def test_seconds_of_stand_ins_are_nowhere(tmp_path: Path) -> None:
    runs = export(with_standins(tmp_path / "made"), tmp_path / "mlruns")
    for run in runs.values():
        by_standin = run.tags["stack"] == "spark"
        assert (run.meta["end_time"] is None, not run.seconds) == (by_standin, by_standin)
        assert run.tags.get("marks") == ("stand-in" if by_standin else None)
        assert run.tags.get("not_timed") == (STANDIN if by_standin else None)
        assert run.metrics["validation_accuracy"] == {1: 0.78, 2: 0.78} and run.tags["weights_digest"]
    (place,) = (tmp_path / "mlruns").iterdir()
    for path in (path for path in place.glob("*/*/*") if path.is_file()):
        text = re.sub(r"[0-9a-f]{8,}", "", path.read_text(encoding="utf-8"))
        assert not SECONDS.search(text), path


def test_seconds_of_traced_runs_are_not_there(tmp_path: Path) -> None:
    runs = export(with_traces(tmp_path / "made"), tmp_path / "mlruns")
    found = {
        (run.tags.get("marks"), bool(run.seconds), run.meta["end_time"] is None) for run in runs.values()
    }
    assert found == {("traced", False, True), (None, True, False)}


def test_seconds_of_simulated_runs_have_names_of_their_own(tmp_path: Path) -> None:
    plan, made = simulated("ddp", 1, 30.0)
    (run,) = export(campaign(tmp_path, [plan], [made]), tmp_path / "mlruns").values()
    assert run.metrics["simulated_train_s"] == {0: 30.0} and len(run.metrics["simulated_epoch_s"]) == 20
    assert all(name.startswith("simulated_") for name in run.seconds)
    assert (run.tags["marks"], run.meta["end_time"]) == ("simulated", None)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("validation_f1", "validation_f1"),
        ("top 5.accuracy-2", "top 5.accuracy-2"),
        ("f1@5", "f1-40-5"),
        ("a/b:c\n", "a-2f-b-3a-c-a-"),
        ("Größe", "Größe"),
    ],
)
def test_names_become_keys_that_mlflow_takes(name: str, key: str) -> None:
    assert key_text(name) == key and KEY.fullmatch(key)


def with_metric(folder: Path, *names: str) -> Campaign:
    made = record("ddp", 1, 50.0, 60.0)
    epochs = [
        epoch.model_dump() | {"metrics": dict.fromkeys(names, 0.5), "test": {"loss": 0.4, "count": 100.0}}
        for epoch in made.epochs
    ]
    return campaign(
        folder, [planned("ddp", 1)], [Record.model_validate(made.model_dump() | {"epochs": epochs})]
    )


def test_metrics_of_any_name_are_kept_apart(tmp_path: Path) -> None:
    (run,) = export(with_metric(tmp_path, "f1@5", "f1/5", "../5"), tmp_path / "mlruns").values()
    names = {"validation_f1-40-5", "validation_f1-2f-5", "validation_..-2f-5"}
    assert names <= set(run.metrics) and run.metrics["test_loss"] == {1: 0.4, 2: 0.4}
    assert "test_count" not in run.metrics


def test_the_same_records_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    stores = [tmp_path / "one" / "mlruns", tmp_path / "another place"]
    for number, store in enumerate(stores):
        export(quick(tmp_path / str(number)), store)
    one, other = map(content, stores)
    assert one == other and not any(str(tmp_path).encode() in text for text in one.values())
    # Runs of the same id in another campaign are others.
    analysis = analyse(quick(tmp_path / "again"))
    later = analysis.figures.campaign.model_copy(update={"name": "20261122T000000Z"})
    write_mlflow(replace(analysis, figures=replace(analysis.figures, campaign=later)), tmp_path / "third")
    names = [{Path(name).parts[1] for name in each} for each in (one, content(tmp_path / "third"))]
    assert names[0] & names[1] == {"meta.yaml", "tags"}


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    analysis = analyse(quick(tmp_path / "made"))
    store = tmp_path / "mlruns"
    store.mkdir()
    write_mlflow(analysis, store)
    before = content(store)
    file = tmp_path / "file"
    file.touch()
    for there in (store, file):
        with pytest.raises(
            UserError, match=r"is not an empty folder: give another one to --mlflow\."
        ) as raised:
            write_mlflow(analysis, there)
        assert str(there) in str(raised.value) and "\n" not in str(raised.value)
    assert content(store) == before and sorted(each.name for each in tmp_path.iterdir()) == [
        *("file", "made", "mlruns")
    ]


def test_what_can_not_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    analysis = analyse(with_metric(tmp_path / "made", "m" * 300))  # longer than the name of a file may be
    draft = tmp_path / ".mlruns.writing"
    (draft / "of a killed command").mkdir(parents=True)
    with pytest.raises(OSError):
        write_mlflow(analysis, tmp_path / "mlruns")
    assert [each.name for each in tmp_path.iterdir()] == ["made"]


def test_the_command_writes_a_store_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = quick(tmp_path / "results")
    monkeypatch.setattr(cli, "RESULTS", tmp_path / "results")
    report = ["report", "made", "--campaign", NAME]
    assert cli.main(report) == 0
    assert "MLflow" not in capsys.readouterr().out
    assert not list(tmp_path.rglob("meta.yaml"))

    (made.folder / "report.md").unlink()
    store = tmp_path / "a new" / "mlruns"
    assert cli.main([*report, "--mlflow", str(store)]) == 0
    assert "4 runs for MLflow" in " ".join(capsys.readouterr().out.split())
    assert len(read(store)[1]) == 4 and (made.folder / "report.md").exists()

    (made.folder / "report.md").unlink()
    assert cli.main([*report, "--mlflow", str(store)]) == cli.USAGE_ERROR
    assert "Nothing was written." in capsys.readouterr().err
    assert not (made.folder / "report.md").exists()
