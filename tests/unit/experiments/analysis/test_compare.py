"""Two campaigns compared, on hand-made records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.compare import comparison
from experiments.analysis.verdicts import Outcome, outcome
from experiments.campaign.plan import PlannedRun
from experiments.cli import main
from experiments.console.comparison import change_verdict, differences
from experiments.util.errors import UserError
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.documented_json import documented, fields
from tests.unit.experiments.made_up_records import ENVIRONMENT, STARTED, campaign, planned, record, spec
from tests.unit.experiments.report.test_programs import script_run


def made(folder: Path, factor: float, **changed: Any) -> Any:
    """A campaign of five seeds that takes `factor` times as long as another, with the same drift."""
    plan = [planned("ddp", 2, seed) for seed in range(1, 6)]
    # No two days' times are alike: campaign a's runs are a little faster than usual, or slower, seed by seed.
    jitter = [(seed - 3) / 1000 if folder.name == "a" else 0.0 for seed in range(1, 6)]
    times = [30 * (1 + 0.1 * seed) * factor * math.exp(more) for seed, more in enumerate(jitter, 1)]
    return campaign(
        folder,
        plan,
        [record("ddp", 2, time, time + 9, seed, **changed) for seed, time in enumerate(times, 1)],
    )


@pytest.mark.parametrize(("factor", "shown"), [(1.1, "longer"), (0.9, "shorter"), (1.0, "same")])
def test_cells_are_paired_by_seed(tmp_path: Path, factor: float, shown: Outcome) -> None:
    first, second = made(tmp_path / "a", 1.0), made(tmp_path / "b", factor)
    (change,) = comparison(first, second).changes
    assert change.ratio.ratio == pytest.approx(factor) and change.ratio.n == 5
    assert outcome(change.ratio) == shown
    assert change.same_weights
    assert differences(first, second) == []


def test_other_weights_are_said(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a", 1.0), made(tmp_path / "b", 1.0, weights_digest="f" * 64)
    assert not comparison(first, second).changes[0].same_weights


def test_other_weights_of_another_processor_are_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path / "a", 1.0)
    environment = ENVIRONMENT.model_dump()
    for node in environment["nodes"].values():
        node["cpu"] = "Another processor"
    second = made(tmp_path / "b", 1.0, weights_digest="f" * 64, environment=environment)
    (change,) = comparison(first, second).changes
    assert (change.same_weights, change.why_unproven) == (None, "other arithmetic")
    folders = [str(first.folder), str(second.folder)]
    assert main(["compare", *folders]) == 0
    said = " ".join(capsys.readouterr().out.split())
    processor = ENVIRONMENT.nodes["worker1"].cpu
    assert "weights can't be equal: see below" in said
    assert (
        "A and B did not compute alike, so last bits can't be compared: "
        f"{processor} (A) and Another processor (B)."
    ) in said
    assert main(["compare", *folders, "--equal-weights"]) == 1
    assert (
        f"equal weights can't be expected: {processor} (A) and Another processor (B) (bits: portable makes "
        "processors alike)."
    ) in " ".join(capsys.readouterr().out.split())


def test_other_threads_are_told_from_other_processors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = spec("ddp", 2)
    two = one.model_copy(update={"conditions": one.conditions.model_copy(update={"threads": 2})})
    folders = []
    for name, made_of, digest in (("a", one, "e" * 64), ("b", two, "f" * 64)):
        axes = {"stack": "ddp", "workers": 2, "epochs": 2, "seed": 1}
        plan = [PlannedRun(run_id=made_of.run_id, axes=axes, specification=made_of)]
        changed = of_specification(made_of) | {"weights_digest": digest}
        folders.append(str(campaign(tmp_path / name, plan, [record("ddp", 2, 30, 39, **changed)]).folder))
    assert main(["compare", *folders]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "so last bits can't be compared: 1 thread (A) and 2 threads (B)." in said
    assert "processor" not in said.partition("can't be compared:")[2].partition(".")[0]


def test_a_verdict_on_other_work_says_so(tmp_path: Path) -> None:
    one = spec("ddp", 2)
    work = one.work.model_copy(update={"learning_rate": 0.5})
    other = one.model_copy(update={"work": work})
    changed: dict[str, Any] = {"specification": other, "run_id": other.run_id, "work_digest": work.digest}
    axes = {"stack": "ddp", "workers": 2, "epochs": 2, "seed": 1}
    plan = [PlannedRun(run_id=other.run_id, axes=axes, specification=other)]
    second = campaign(tmp_path / "b", plan, [record("ddp", 2, 50.0, 60.0, **changed)])
    (change,) = comparison(made(tmp_path / "a", 1.0), second).changes
    assert (outcome(change.ratio), change.unlike) == ("none", "work")
    assert change_verdict(change).endswith("; different work")


def test_a_verdict_on_runs_side_by_side_against_runs_that_were_alone_says_so(tmp_path: Path) -> None:
    runs = [(workers, seed) for workers in (1, 2) for seed in (1, 2, 3)]

    def cells(folder: str, factor: float, **company: Any) -> Any:
        records = [
            record("ddp", workers, (30 + seed) * factor * (1 + seed * (factor - 1) / 100), 60.0, seed)
            for workers, seed in runs
        ]
        if company:
            together = {"runs": [records[0].run_id, "another"], "place": 0} | company
            records[0] = record("ddp", 1, 34.0, 60.0, 1, together=together)
        return campaign(tmp_path / folder, [planned("ddp", *run) for run in runs], records)

    second = cells("b", 1.1, why="side by side", begun=STARTED)
    beside, alone = comparison(cells("a", 1.0), second).changes
    assert outcome(beside.ratio) == outcome(alone.ratio) == "longer"
    assert (beside.unlike, alone.unlike) == ("side by side", None)


def test_campaigns_without_a_run_in_common_are_refused(tmp_path: Path) -> None:
    other = campaign(tmp_path / "b", [planned("spark", 1)], [record("spark", 1, 5.0, 6.0)])
    with pytest.raises(UserError, match="have no run in common"):
        comparison(made(tmp_path / "a", 1.0), other)


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made(tmp_path / "a", 1.0), made(tmp_path / "b", 1.1)
    assert main(["compare", str(first.folder), str(second.folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Not the same: nothing." in said
    assert "1.100" in said and "slower" in said
    assert "A and B ran at different times" in said
    assert main(["compare", str(tmp_path / "none"), str(second.folder)]) == 2
    assert "There is no campaign in" in capsys.readouterr().err


def test_the_command_says_what_launches_differ_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def noting(folder: str, **environment: str) -> Any:
        ranks = record("ddp", 2, 30, 39).model_dump()["ranks"]
        return made(
            tmp_path / folder, 1.0, ranks=[rank | {"census": {"environment": environment}} for rank in ranks]
        )

    first, second = noting("a", LANG="C", HOME="/"), noting("b", LANG="C.UTF-8", HOME="/")
    folders = [str(first.folder), str(second.folder)]
    assert main(["compare", *folders]) == 0
    said = capsys.readouterr().out
    assert "What launches on ddp differ in (the same: 1 thing that its ranks noted)" in said
    assert "environment: LANG" in said and "C.UTF-8" in said
    assert main(["compare", *folders, "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["launches"]
    wanted = {"stack": "ddp", "group": "environment", "name": "LANG", "in_a": ["C"], "in_b": ["C.UTF-8"]}
    assert only == wanted
    assert main(["compare", folders[0], folders[0]]) == 0
    assert (
        "Launches on ddp differ in nothing (the same: 2 things that its ranks noted)."
        in capsys.readouterr().out
    )


def test_the_command_says_what_launches_differ_in_between_stacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = []
    for stack, language in (("ddp", "C"), ("spark", "C.UTF-8")):
        made_up = record(stack, 2, 30.0, 45.0)
        census = {"environment": {"LANG": language, "HOME": "/"}}
        ranks = [rank.model_copy(update={"census": census}) for rank in made_up.ranks]
        records.append(made_up.model_copy(update={"ranks": ranks}))
    plan = [planned(stack, 2, 1) for stack in ("ddp", "spark")]
    folder = str(campaign(tmp_path / "a", plan, records).folder)
    assert main(["compare", folder, folder]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for side in ("A", "B"):
        assert (
            f"Within {side}, launches on ddp and spark differ in 1 thing that ranks noted (the same: 1). "
            "The report and --json have their values. environment: LANG"
        ) in said
    assert main(["compare", folder, folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["launches_between_stacks"]
    assert [(each["campaign"], each["stack"], each["values"]) for each in found] == [
        ("a", "ddp", ["C"]),
        ("a", "spark", ["C.UTF-8"]),
        ("b", "ddp", ["C"]),
        ("b", "spark", ["C.UTF-8"]),
    ]


def test_groups_that_an_earlier_version_did_not_note_are_named_and_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def noting(folder: str, census: dict[str, dict[str, str]]) -> str:
        ranks = [rank | {"census": census} for rank in record("ddp", 2, 30, 39).model_dump()["ranks"]]
        return str(made(tmp_path / folder, 1.0, ranks=ranks).folder)

    kernel = {"kernel": {"swappiness": "60"}}
    folders = [noting("a", kernel), noting("b", kernel | {"network": {"busy polling": "0"}})]
    assert main(["compare", *folders]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Launches on ddp differ in nothing (the same: 1 thing that its ranks noted)." in said
    assert (
        "Not compared, because not every rank on ddp noted it, as earlier versions did not: network." in said
    )
    assert main(["compare", *folders, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["launches"] == []
    assert content["launches_not_compared"] == [{"stack": "ddp", "group": "network"}]


def test_the_command_can_be_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = made(tmp_path / "a", 1.0), made(tmp_path / "b", 1.1, weights_digest="f" * 64)
    folders = [str(first.folder), str(second.folder)]
    assert main(["compare", *folders, "--max-slower", "15"]) == 0
    assert "Beyond the limit" not in capsys.readouterr().out
    assert main(["compare", *folders, "--max-slower", "5"]) == 1
    said = capsys.readouterr().out
    assert "Beyond the limit: stack ddp, workers 2, epochs 2: 1.100 times as long (at least 1." in said
    assert main(["compare", *reversed(folders), "--max-slower", "0"]) == 0
    assert main(["compare", *folders, "--equal-weights"]) == 1
    assert "stack ddp, workers 2, epochs 2: other weights." in capsys.readouterr().out

    assert main(["compare", *folders, "--json", "--max-slower", "5"]) == 1
    printed = capsys.readouterr()
    content = json.loads(printed.out)
    of_launches = {f"launches[].{name}" for name in ("stack", "group", "name", "in_a", "in_b")}
    of_launches |= {f"launches_not_compared[].{name}" for name in ("stack", "group")}
    between = ("campaign", "stack", "group", "name", "values")
    of_launches |= {f"launches_between_stacks[].{name}" for name in between}
    assert (
        documented("compare") - fields(content)
        == {f"without_pairs[].{name}" for name in ("axes", "reason")} | of_launches
    )
    assert fields(content) <= documented("compare")
    (cell,) = content["cells"]
    assert cell["axes"] == {"stack": "ddp", "workers": 2, "epochs": 2}
    assert cell["train_s_ratio"]["n"] == 5 and cell["train_s_ratio"]["ratio"] == pytest.approx(1.1)
    assert (cell["equal_weights"], len(cell["beyond_limits"])) == (False, 1)
    assert "A and B ran at different times" in printed.err
    with pytest.raises(SystemExit):
        main(["compare", *folders, "--max-slower", "-3"])
    assert "'-3' is not a percentage" in capsys.readouterr().err


def test_weights_without_digests_are_not_proven_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for name in ("a", "b"):
        made_up = script_run("ddp", 1)
        changed: dict[str, Any] = of_specification(made_up) | {"validation_correct": None}
        new = record("ddp", 2, 30.0, 45.0, **changed | {"weights_digest": None})
        axes = {"stack": "ddp", "workers": 2, "epochs": 2, "seed": 1}
        plan = [PlannedRun(run_id=made_up.run_id, axes=axes, specification=made_up)]
        folders.append(str(campaign(tmp_path / name, plan, [new]).folder))
    assert main(["compare", *folders]) == 0
    said = capsys.readouterr().out
    assert "not proven" in said and "equal weights" not in said
    assert main(["compare", *folders, "--json", "--equal-weights"]) == 1
    printed = capsys.readouterr()
    (cell,) = json.loads(printed.out)["cells"]
    assert cell["equal_weights"] is None
    assert "equal weights are not proven, because a run has no digest of its weights." in printed.err


def test_a_cell_without_pairs_is_said_and_no_gate_passes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = [planned("ddp", 2), planned("spark", 2), planned("determined", 2, cannot_run="It is not there.")]
    good, other = record("ddp", 2, 30.0, 45.0), record("spark", 2, 30.0, 45.0)
    failed: dict[str, Any] = {"status": "failed", "reason": "It broke."}
    first = campaign(tmp_path / "a", plan, [good, other])
    second = campaign(tmp_path / "b", plan, [good, record("spark", 2, 30.0, 45.0, **failed)])
    third = campaign(tmp_path / "c", plan[:1], [good])
    seeds = campaign(tmp_path / "d", [plan[0], planned("spark", 2, 2)], [good, record("spark", 2, 3, 4, 2)])

    def lacks(one: Any, two: Any) -> list[tuple[str, str]]:
        return [(each.axes["stack"], each.lacks) for each in comparison(one, two).unpaired]

    assert lacks(first, first) == []  # what neither could run is not missing
    assert lacks(first, second) == [("spark", "runs of B")]
    assert lacks(second, first) == [("spark", "runs of A")]
    assert lacks(second, second) == [("spark", "runs of both")]
    assert lacks(first, third) == [("spark", "cell of B")]
    assert lacks(third, first) == [("spark", "cell of A")]
    assert lacks(first, seeds) == [("spark", "seeds")]

    folders = [str(first.folder), str(second.folder)]
    assert main(["compare", *folders, "--json"]) == 0
    printed = capsys.readouterr()
    assert "Not compared: stack spark, workers 2, epochs 2: no run of B counts." in printed.err
    content = json.loads(printed.out)
    assert fields(content) <= documented("compare")
    (cell,) = content["without_pairs"]
    assert cell == {
        "axes": {"stack": "spark", "workers": 2, "epochs": 2},
        "reason": "no run of B counts",
    }
    for gate in (["--max-slower", "50"], ["--equal-weights"]):
        assert main(["compare", *folders, *gate]) == 1
        said = capsys.readouterr().out
        assert "can't be judged: stack spark, workers 2, epochs 2: no run of B counts." in " ".join(
            said.split()
        )
