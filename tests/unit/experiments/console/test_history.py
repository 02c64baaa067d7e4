"""The history of a matrix: all of its campaigns, cell by cell, on hand-made records."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.cli import main
from experiments.console.history import NOT_SEARCHED, show_history
from experiments.util.errors import UserError
from experiments.util.screen import Screen
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.console.test_screens import kept
from tests.unit.experiments.made_up_records import ENVIRONMENT, campaign, planned, record, spec

STACKS = {"ddp": 30.0, "spark": 36.0}
HERE, THERE = (dict.fromkeys(ENVIRONMENT.nodes, digit * 64) for digit in "12")
STANDIN = "The master is a stand-in for Spark 1.0, made for tests."


def made(
    results: Path,
    day: int,
    factor: float = 1.0,
    seeds: int = 5,
    standins: tuple[str, ...] = (),
    **changed: Any,
) -> Campaign:
    """A campaign of one day, whose runs take `factor` times as long, give or take a hundredth.

    `changed`: `kernel` and `revision` of its environment, its `code`, its `machines`, and its `spec`s.
    """
    chance, name = random.Random(day), f"202611{day:02d}T120000Z"
    environment = ENVIRONMENT.model_dump()
    for node in environment["nodes"].values():
        node["kernel"] = changed.get("kernel", node["kernel"])
    environment["git"]["revision"] = changed.get("revision", environment["git"]["revision"])
    plan, records = [], []
    for stack, seconds in STACKS.items():
        for seed in range(1, seeds + 1):
            one = changed.get("spec", spec)(stack, 2, seed)
            axes = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed}
            plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
            train_s = seconds * factor * (1 + chance.gauss(0, 0.01))
            more: dict[str, Any] = of_specification(one) | {"campaign": name, "environment": environment}
            more |= {"standin": STANDIN} if stack in standins else {}
            records.append(record(stack, 2, train_s, train_s + 9, seed, **more))
    identity: dict[str, Any] = {"machines": changed.get("machines", HERE), "standins": list(standins)}
    identity |= {"code": changed["code"]} if "code" in changed else {}
    return campaign(
        results,
        plan,
        records,
        name,
        identity,
        environment=records[0].environment,
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two campaigns, two slower ones with another kernel and code, one elsewhere, one with a stand-in."""
    made(tmp_path, 1)
    made(tmp_path, 2)
    made(tmp_path, 3, 1.1, kernel="6.12.1-amd64", code="c" * 64, revision="fedcba9876543210")
    made(tmp_path, 4, 1.1, kernel="6.12.1-amd64", code="c" * 64, revision="fedcba9876543210")
    made(tmp_path, 5, 2.0, machines=THERE)
    made(tmp_path, 6, 1.1, standins=("spark",), kernel="6.12.1-amd64", code="c" * 64)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], results: Path, matrix: str = "made") -> str:
    show_history(Screen(), results, matrix)
    return capsys.readouterr().out


def tables(text: str) -> dict[str, dict[str, str]]:
    """The last column of each line by campaign, by title."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("stack "):
            found[line] = of = {}
        elif line.startswith("  2026"):
            of[line.split()[0]] = line
    return found


def test_the_screen(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, results) == kept("history.txt")


def test_a_change_point_names_what_changed_with_it(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, results)
    changes = [line for line in text.splitlines() if "  changed by " in line]
    assert [line.split()[0] for line in changes] == ["20261103T120000Z"] * 2
    for line in changes:
        assert line.endswith(
            ", with kernel (6.1.0-28-amd64 to 6.12.1-amd64), the training code and the checkout "
            "(0123456789ab and fedcba987654)"
        )
    assert "2 change points found." in text


def test_without_a_change_none_is_found_and_none_has_a_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(1, 7):
        made(tmp_path, day, kernel=f"6.{day}")
    assert shown(capsys, tmp_path).splitlines()[-1] == "No change point found."
    made(tmp_path, 7, 1.1, kernel="6.6")
    text = shown(capsys, tmp_path)
    assert text.count(", with nothing that is recorded\n") == 2


def test_other_machines_stand_ins_and_other_work_have_lines_of_their_own(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def batches(stack: str, workers: int, seed: int) -> Any:
        one = spec(stack, workers, seed)
        return one.model_copy(update={"work": one.work.model_copy(update={"batch_per_worker": 64})})

    made(results, 7, 3.0, spec=batches)
    nodes = "(testbed: master, worker1 and worker2)"
    lines = {
        title.removeprefix("stack ").replace(", workers 2, epochs 2; ", "; "): [name[6:8] for name in found]
        for title, found in tables(shown(capsys, results)).items()
    }
    assert lines == {
        f"ddp; machines {nodes}": ["01", "02", "03", "04", "06"],
        f"ddp; other machines {nodes}": ["05"],
        f"ddp; machines {nodes}; other work (batch_per_worker)": ["07"],
        f"spark; machines {nodes}": ["01", "02", "03", "04"],
        f"spark; other machines {nodes}": ["05"],
        f"spark; machines {nodes}; stand-in: not measured": ["06"],
        f"spark; machines {nodes}; other work (batch_per_worker)": ["07"],
    }


def test_seconds_of_stand_ins_are_not_shown(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [found for title, found in tables(shown(capsys, results)).items() if "stand-in" in title]
    assert line["20261106T120000Z"].split()[-5:] == ["2.10GHz", "5", "stand-in:", "not", "measured"]


def test_simulated_runs_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def simulated(stack: str, workers: int, seed: int) -> Any:
        one = spec(stack, workers, seed)
        return one.model_copy(update={"work": one.work.model_copy(update={"simulated_step_ms": 40.0})})

    made(tmp_path, 1)
    made(tmp_path, 2, spec=simulated)
    titles = list(tables(shown(capsys, tmp_path)))
    assert titles[:2] == [
        "stack ddp, workers 2, epochs 2",
        "stack ddp, workers 2, epochs 2; other work (simulated_step_ms); simulated: nothing was trained",
    ]


def test_adopted_runs_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made(tmp_path, 1), made(tmp_path, 2)
    taken = first.file.plan[0].run_id
    attempt = second.folder / taken / "01"
    (attempt / "record.json").write_bytes((first.folder / taken / "01" / "record.json").read_bytes())
    (attempt / "adopted.json").write_text(json.dumps({"campaign": first.file.name, "attempt": 1}))
    line = tables(shown(capsys, tmp_path))["stack ddp, workers 2, epochs 2"]["20261102T120000Z"]
    assert "2.10GHz  4  " in line.replace("  4   ", "  4  ")
    assert line.endswith("1 adopted run left to the campaign that made it")


@pytest.mark.parametrize(("again", "marked"), [(1.0, 2), (1.1, 0)])
def test_a_change_within_the_noise_floor_is_not_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: float, marked: int
) -> None:
    for day, factor in ((1, 1.0), (2, 1.06)):
        chance, name, plan, records = random.Random(day), f"202611{day:02d}T120000Z", [], []
        for repetition in (1, 2):
            for seed in range(1, 6):
                one = spec("ddp", 2, seed)
                conditions = one.conditions.model_copy(update={"repetition": repetition})
                one = one.model_copy(update={"conditions": conditions})
                axes = {"stack": "ddp", "workers": 2, "epochs": 2, "repetition": repetition, "seed": seed}
                plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
                train_s = 30 * factor * (again if repetition == 2 else 1) * (1 + chance.gauss(0, 0.005))
                changed = of_specification(one) | {"campaign": name}
                records.append(record("ddp", 2, train_s, train_s + 9, seed, **changed))
        campaign(tmp_path, plan, records, name)
    assert shown(capsys, tmp_path).count("  changed by +") == marked


def test_single_runs_are_listed_and_not_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, 1, seeds=1)
    made(tmp_path, 2, 2.0, seeds=1)
    text = shown(capsys, tmp_path)
    assert [len(found) for found in tables(text).values()] == [2, 2]
    assert text.splitlines()[-1] == NOT_SEARCHED


def test_a_line_that_is_not_searched_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in (1, 2):
        name = f"202611{day:02d}T120000Z"
        plan = [planned("ddp", 2, 1), planned("ddp", 2, 2), planned("spark", 2)]
        times = [("ddp", 30.0, 1), ("ddp", 31.0, 2), ("spark", 36.0, 1)]
        records = [record(stack, 2, train_s, 60.0, seed, campaign=name) for stack, train_s, seed in times]
        campaign(tmp_path, plan, records, name)
    assert shown(capsys, tmp_path).splitlines()[-2:] == [
        "Not searched, as no campaign has several runs that differ: stack spark, workers 2, epochs 2.",
        "No change point found.",
    ]


def test_csv_has_the_same_in_full(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.cli.RESULTS", results)
    path = results / "history.csv"
    assert main(["history", "made", "--csv", str(path)]) == 0
    assert f"Written: {path}." in capsys.readouterr().out
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    (changed,) = [row for row in rows if row["stack"] == "spark" and row["change"]]
    assert changed["campaign"] == "20261103T120000Z" and changed["kernel"] == "6.12.1-amd64"
    assert float(changed["change_low"]) < 1.1 < float(changed["change_high"])
    assert float(changed["change_p"]) < 0.05 and "the training code" in changed["changed_with"]
    assert float(changed["over_first_stack_low"]) < 1.2 < float(changed["over_first_stack_high"])
    assert float(changed["train_s_low"]) < 39.6 < float(changed["train_s_high"])
    (standin,) = [row for row in rows if "stand-in" in row["line"]]
    assert (standin["train_s"], standin["over_first_stack"], standin["runs"]) == ("", "", "5")
    assert main(["history", "made", "--csv", str(results / "absent" / "history.csv")]) == 2
    assert "There is no folder " in capsys.readouterr().err


def test_a_history_needs_two_campaigns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"There are no campaigns of nothing in .*; `make campaigns` lists"):
        show_history(Screen(), tmp_path, "nothing")
    made(tmp_path, 1)
    with pytest.raises(UserError, match="only one campaign of made, 20261101T120000Z: a history needs two"):
        show_history(Screen(), tmp_path, "made")
    second = made(tmp_path, 2)
    (second.folder / "campaign.json").write_text("{")
    with pytest.raises(UserError, match="Fewer than two campaigns of made can be read"):
        show_history(Screen(), tmp_path, "made")
    assert "Left out: campaign 20261102T120000Z." in capsys.readouterr().out
    made(tmp_path, 3)
    made(tmp_path, 4).folder.rename(tmp_path / "made" / "20261105T120000Z")
    text = shown(capsys, tmp_path)
    assert "Left out: campaign 20261105T120000Z. It holds the campaign 20261104T120000Z" in text
    assert [list(found) for found in tables(text).values()] == [["20261101T120000Z", "20261103T120000Z"]] * 2


def test_a_cell_that_no_cluster_could_run_has_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in (1, 2):
        name = f"202611{day:02d}T120000Z"
        plan = [planned("ddp", 2), planned("spark", 2), planned("determined", 2, cannot_run="Not there.")]
        campaign(tmp_path, plan, [record("ddp", 2, 30.0, 40.0, campaign=name)], name)
    found = tables(shown(capsys, tmp_path))
    assert list(found) == ["stack ddp, workers 2, epochs 2", "stack spark, workers 2, epochs 2"]
    assert all(line.endswith("no run counts") for line in found["stack spark, workers 2, epochs 2"].values())
