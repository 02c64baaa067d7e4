"""References with tolerances: what an inventory may set, what left its band, and where both are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from experiments.analysis.figures import figures_of
from experiments.analysis.references import CheckedFigure, check_references
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.matrix.references import FILE, read_references, store_references
from experiments.report.sections.references import UNMATCHED
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from tests.unit.experiments.made_up_records import campaign, planned, quick, record
from tests.unit.experiments.made_up_workplace import Workplace
from tests.unit.experiments.report.drawn import tables

DDP_1 = {"matrix": "made", "stack": "ddp", "workers": 1, "epochs": 2}


def with_references(made: Campaign, *references: dict[str, Any]) -> Campaign:
    """`made`, as if its inventory had set these references when it began."""
    path = made.folder / "campaign.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"references": references}))
    return open_campaign(made.folder)


def checked(made: Campaign, *references: dict[str, Any]) -> list[CheckedFigure]:
    return check_references(figures_of(with_references(made, *references))).checked


@pytest.mark.parametrize(
    ("entry", "place", "named"),
    [
        (5, "references: ", ", not 5."),
        ([5], "references.0: ", ", not 5."),
        ([{"stack": "ddp", "above": 0.1}], "references.0: ", "no quantity"),
        ([{"train": 5, "above": 0.1}], "references.0: train ", "axis (stack, workers, epochs "),
        ([{"train_s": None, "above": 0.1}], "references.0: train_s ", "no value"),
        ([{"train_s": 5, "total_s": 6, "above": 0.1}], "references.0: train_s ", " total_s "),
        ([{"train_s": 5}], "references.0: ", "band is open"),
        ([{"train_s": 5, "below": None, "above": None}], "references.0: ", "band is open"),
        ([{"train_s": 5, "above": -0.1}], "references.0.above: ", " 0, not -0.1"),
        ([{"train_s": 5, "below": 10}], "references.0: below: 10 ", "0.1"),
        ([{"train_s": 0, "above": 0.1}], "references.0: train_s is 0; ", "tolerance"),
        ([{"train_s": "5", "above": 0.1}], "references.0.train_s: ", "number, not '5'"),
        ([{"train_s": 5, "above": 0.1, "seed": 1}], "references.0: ", "remove seed"),
        ([{"train_s": 5, "above": 0.1}, {}], "references.1: ", "no quantity"),
    ],
)  # fmt: skip
def test_a_reference_that_says_nothing_is_refused_in_one_sentence(entry: Any, place: str, named: str) -> None:
    with pytest.raises(UserError) as raised:
        read_references(entry)
    where, _, fault = str(raised.value).partition(": ")
    assert "inventory" in where
    assert fault.startswith(place) and named in fault
    assert "\n" not in str(raised.value)


def test_what_was_said_is_kept_as_it_was_said() -> None:
    entry = {"stack": "ddp", "link_rate": None, "train_s": 5.0, "above": 0.1}
    (reference,) = read_references([entry | {"below": None}])
    assert reference.model_dump(mode="json") == entry  # an axis may have the value null
    assert reference.low is None and reference.high == pytest.approx(5.5)
    assert read_references([reference.model_dump(mode="json")]) == [reference]


@pytest.mark.parametrize(
    ("reference", "here", "deviation"),
    [
        (DDP_1 | {"train_s": 48.0, "below": 0.05, "above": 0.05}, 50.0, None),
        (DDP_1 | {"train_s": 47.5, "below": 0.05, "above": 0.05}, 50.0, 0.053),
        (DDP_1 | {"train_s": 60, "below": 0.1, "above": 0.1}, 50.0, -0.167),
        (DDP_1 | {"train_s": 60, "above": 0.1}, 50.0, None),  # quicker is not a fault
        (DDP_1 | {"train_s": 40, "below": 0.1}, 50.0, None),
        (DDP_1 | {"total_s": 50, "above": 0.1}, 62.0, 0.24),
        (DDP_1 | {"accuracy": 0.8, "below": 0.02}, 0.78, -0.025),
        ({"stack": "spark", "workers": 2, "speed_up": 1.5, "below": 0.1}, 55 / 40, None),
        ({"stack": "ddp", "efficiency": 0.9, "below": 0.1}, 50 / 32 / 2, -0.132),
        ({"stack": "spark", "workers": 1, "overhead_train": 0.05, "above": 0.5}, 0.1, 1),
        ({"stack": "spark", "workers": 2, "overhead_total": 0.3, "above": 0.5}, 61.5 / 45 - 1, None),
        ({"stack": "spark", "workers": 1, "overhead_train": -0.1, "above": 1}, 0.1, 2),
    ],
)  # fmt: skip
def test_a_figure_is_within_its_band_or_left_it(
    tmp_path: Path, reference: dict[str, Any], here: float, deviation: float | None
) -> None:
    (band,) = checked(quick(tmp_path), reference)
    assert band.here == pytest.approx(here) and band.n == 1
    assert band.outcome == ("within" if deviation is None else "outside")
    assert deviation is None or band.deviation == pytest.approx(deviation, abs=0.0005)


def test_what_is_not_named_fits_any_cell_and_what_is_no_axis_is_looked_up_in_the_work(tmp_path: Path) -> None:
    made = quick(tmp_path)
    open_side = {"train_s": 1000, "above": 0}

    def fitting(**axes: Any) -> list[tuple[str, int]]:
        return [(band.cell.stack, band.cell.workers) for band in checked(made, open_side | axes)]

    everything = [("ddp", 1), ("ddp", 2), ("spark", 1), ("spark", 2)]
    assert fitting() == everything
    assert fitting(workers=2) == [("ddp", 2), ("spark", 2)]
    assert fitting(batch_per_worker=32, link_rate="1gbit", model={"layers": 2}) == everything
    assert fitting(batch_per_worker=16) == [] and fitting(model={"layers": 4}) == []
    assert fitting(link_rate=None) == []
    # One worker has no efficiency and the baseline no overhead: these are not gaps.
    assert [band.cell.workers for band in checked(made, {"efficiency": 1, "below": 0.9})] == [2, 2]
    assert {band.cell.stack for band in checked(made, {"overhead_train": 1, "above": 9})} == {"spark"}


def test_the_mean_over_the_runs_is_compared_and_ratios_count_the_seeds_of_both(tmp_path: Path) -> None:
    plan = [planned(stack, 1, seed) for stack in ("ddp", "spark") for seed in (1, 2, 3)]
    records = [record("ddp", 1, seconds, 80.0, seed) for seed, seconds in ((1, 40.0), (2, 60.0))]
    records += [record("spark", 1, 66.0, 90.0, seed) for seed in (2, 3)]
    made = campaign(tmp_path, plan, records)
    train, overhead = checked(
        made,
        {"stack": "ddp", "train_s": 50, "below": 0.01, "above": 0.01},
        {"stack": "spark", "overhead_train": 0.1, "below": 0.01, "above": 0.01},
    )
    assert (train.here, train.n, train.outcome) == (50.0, 2, "within")
    assert (overhead.n, overhead.outcome) == (1, "within")


def test_a_cell_that_was_not_run_is_no_failure_and_other_matrices_are_not_judged(tmp_path: Path) -> None:
    plan = [planned("ddp", 1), planned("spark", 1), planned("spark", 2)]
    made = with_references(
        campaign(tmp_path, plan, [record("spark", 1, 50.0, 60.0)]),
        {"stack": "ddp", "train_s": 5, "above": 0.1},
        {"stack": "spark", "workers": 1, "overhead_train": 0.1, "above": 0.1},
        {"stack": "spark", "workers": 7, "train_s": 5, "above": 0.1},
        {"matrix": "other", "train_s": 5, "above": 0.1},
    )
    found = check_references(figures_of(made))
    assert [(each.outcome, each.n) for each in found.checked] == [
        ("not run", 0),
        ("nothing to compare with", 0),
    ]
    assert found.exit_status == 0 and not found.outside
    assert [each.axes for each in found.unmatched] == [{"stack": "spark", "workers": 7}]
    assert found.other_matrices == ["other"]


def test_the_report_marks_what_left_its_band_and_is_the_same_again(tmp_path: Path) -> None:
    references = [
        DDP_1 | {"train_s": 40, "above": 0.1},
        {"stack": "spark", "overhead_train": 0.2, "below": 0.9, "above": 0.9},
        {"stack": "spark", "workers": 7, "accuracy": 0.8, "below": 0.1},
    ]
    made = [with_references(quick(tmp_path / folder), *references) for folder in ("one", "two")]
    written = [write_report(each) for each in made]
    assert [[path.read_bytes() for path in paths] for paths in written[:1]] == [
        [path.read_bytes() for path in paths] for paths in written[1:]
    ]
    table = tables(made[0])["References"]
    assert table.marked == [0]
    cell, _, _, _, band, _, verdict = table.cells[0]
    assert table.texts[0][1:4] == ["train_s", "50.00", "40.00"] and table.texts[0][5] == "1"
    assert cell.text == "stack ddp, workers 1, epochs 2"
    assert band.value is None and band.low is None and band.high == pytest.approx(44.0)
    assert verdict.text.startswith("outside: 25.0 ") and "above" in verdict.text
    _, _, overhead, _, both, _, verdict = table.cells[1]
    assert table.texts[1][2:4] == ["+10.0 %", "+20.0 %"] and both.format == overhead.format
    assert both.low == pytest.approx(0.02) and both.high == pytest.approx(0.38)
    assert verdict.text == "within"
    assert table.texts[3][-1] == UNMATCHED
    markdown, page = (path.read_text(encoding="utf-8") for path in written[0][:2])
    assert f"| **{table.texts[0][-1]}** |" in markdown and f"| {verdict.text} |" in markdown
    assert page.count('<tr class="marked">') == 1
    rows = [
        row
        for row in parquet.read_table(made[0].folder / "figures.parquet").to_pylist()
        if row["section"] == "references"
    ]
    assert [(row["stack"], row["value"], row["reference"], row["band_low"]) for row in rows] == [
        ("ddp", 50.0, 40.0, None),
        ("spark", pytest.approx(0.1), 0.2, pytest.approx(0.02)),
        ("spark", pytest.approx(0.25), 0.2, pytest.approx(0.02)),
    ]
    assert rows[0]["band_high"] == pytest.approx(44.0)


def test_without_references_the_report_says_nothing_of_them(tmp_path: Path) -> None:
    assert "References" not in write_report(quick(tmp_path))[0].read_text(encoding="utf-8")


def test_changed_references_are_kept_beside_the_campaign(tmp_path: Path) -> None:
    made = quick(tmp_path)
    begun = read_references([DDP_1 | {"train_s": 50, "above": 0.1}])
    newer = read_references([DDP_1 | {"train_s": 40, "above": 0.1}])
    store_references(made.folder, begun, begun)
    assert not (made.folder / FILE).exists()
    store_references(made.folder, begun, newer)
    assert figures_of(made).references == newer
    store_references(made.folder, begun, begun)  # reverted
    assert figures_of(made).references == begun
    (made.folder / FILE).write_text('{"references": [{"train_s": 5}]}')
    with pytest.raises(UserError) as raised:
        figures_of(made)
    assert str(raised.value).startswith(str(made.folder / FILE))
    assert ": references.0: " in str(raised.value) and "Delete it" in str(raised.value)


def line_with(output: str, words: str) -> str:
    """The one line that contains these words."""
    (line,) = (line for line in output.splitlines() if words in line)
    return line


def numbers(line: str) -> list[float]:
    """The numbers in a line, in their order."""
    return [float(each) for each in re.findall(r"\d+(?:\.\d+)?", line)]


PLAIN_1 = {"matrix": "small", "stack": "plain", "workers": 1, "train_s": 10.0, "below": 0.1, "above": 0.1}


def test_run_report_and_check_say_what_left_its_band_and_so_does_their_status(workplace: Workplace) -> None:
    slow = {"stack": "slow", "workers": 1, "train_s": 10.0, "below": 0.1, "above": 0.1}
    nowhere = {"stack": "plain", "workers": 9, "accuracy": 0.7, "below": 0.1}
    workplace.cluster(references=[PLAIN_1, slow, nowhere, {"matrix": "quik", "train_s": 1, "above": 0}])
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0, output
    assert numbers(line_with(output, "within")) == [1, 2, 1]  # of 2, and 1 is not known yet
    status, output = workplace.run("run", "small")
    assert status == 1 and "failed" not in output, output
    outside = line_with(output, "Outside")
    assert "stack slow" in outside and "train_s" in outside and "above" in outside
    # Workers, epochs, what it is, n, the reference, its band, and by how many percent it is above it.
    assert numbers(outside) == [1, 2, 15.0, 1, 10.0, 9.0, 11.0, 50.0]
    assert numbers(line_with(output, "exit code")) == [1, 2, 1]
    unmatched = line_with(output, "0.7000")
    assert "accuracy" in unmatched and "stack plain" in unmatched and "workers 9" in unmatched
    assert line_with(output, "other matrices").endswith(": quik.")
    for command in (("report", "small"), ("check", "results")):
        status, output = workplace.run(*command)
        assert status == 1 and line_with(output, "Outside") == outside, command
    assert line_with(output, "no fault").endswith(": no fault")  # of the campaign, whose figures are not well


def test_changing_a_reference_begins_no_new_campaign_and_counts_at_once(workplace: Workplace) -> None:
    workplace.cluster(references=[PLAIN_1 | {"train_s": 5.0}])
    assert workplace.run("run", "small")[0] == 1
    assert open_campaign(workplace.campaigns()[0]).file.references[0].value == 5.0
    workplace.cluster(references=[PLAIN_1])
    workplace.forget_calls()
    assert workplace.run("run", "small")[0] == 0
    assert not any(call.startswith("run ") for call in workplace.calls())  # everything is done already
    assert len(workplace.campaigns()) == 1 and (workplace.campaigns()[0] / FILE).exists()
    assert workplace.run("report", "small")[0] == 0
    status, output = workplace.run("check", "results")
    assert status == 0 and "all is well" in output
    (workplace.campaigns()[0] / FILE).write_text("{")
    status, output = workplace.run("check", "results")
    assert status == 1 and "1 fault" in output and f"{FILE} is not" in output
    assert workplace.run("run", "small")[0] == 0  # rewrites it
    assert not workplace.faults()


def test_a_reference_that_is_not_valid_stops_a_command_before_anything_is_run(workplace: Workplace) -> None:
    workplace.cluster(references=[{"stack": "plain", "train": 5}])
    for command in ("plan", "run"):
        status, output = workplace.run(command, "small")
        assert status == 2 and "references.0: train " in output
        assert "Traceback" not in output
    assert not workplace.campaigns()
