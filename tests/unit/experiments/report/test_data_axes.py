"""The report of runs that differ in their data: they are never mixed, and every data set is described."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import figures_of
from experiments.analysis.references import check_references
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.campaign.plan import PlannedRun
from experiments.matrix.references import read_references
from experiments.records.record import Record
from experiments.report.frames import load
from experiments.report.sections.conditions import common_facts
from experiments.report.sections.methods import methods
from experiments.report.writer import write_report
from experiments.util.files import write_whole
from tests.unit.experiments.made_up_records import campaign, quick, record, spec
from tests.unit.experiments.report.drawn import rows, tables
from training.spec import RunSpec

SPARK_TAKES = {2000: 1.1, 4000: 1.5}  # times as long as DDP, by samples to train with
LENGTH = 64
SEEDS = (1, 2, 3)


def run_of(stack: str, workers: int, seed: int, data: dict[str, int], digest: str) -> RunSpec:
    fields = spec(stack, workers, seed).model_dump()
    fields["work"] |= {"data_digest": digest, "batch_per_worker": 32 // workers}
    fields["work"]["data"] |= data
    return RunSpec.model_validate(fields)


def with_data(results: Path, name: str, values: tuple[int, ...]) -> Campaign:
    """A campaign with a setting of the data as an axis, on two stacks with one worker and two."""
    plan: list[PlannedRun] = []
    records: list[Record] = []
    digests = {value: f"{at}" * 64 for at, value in enumerate(values, start=1)}
    for stack, workers, value, seed in product(("ddp", "spark"), (1, 2), values, SEEDS):
        made = run_of(stack, workers, seed, {name: value, "max_length": LENGTH}, digests[value])
        axes = {"stack": stack, "workers": workers, "epochs": 2, "seed": seed}
        axes |= {f"data.{name}": value, "data.max_length": LENGTH}
        plan.append(PlannedRun(run_id=made.run_id, axes=axes, specification=made, written=len(plan)))
        took = value / 100 * (1 + seed / 10) / workers
        took *= SPARK_TAKES.get(value, 1.0) if stack == "spark" else 1
        validation = made.work.data.validation
        changes: dict[str, Any] = {"specification": made, "run_id": made.run_id}
        changes |= {"work_digest": made.work.digest, "weights_digest": made.work.digest}
        changes |= {"validation_count": validation, "validation_correct": validation // 2}
        records.append(record(stack, workers, took, took + 10, seed, **changes))
    made_up = campaign(results, plan, records)
    described = [
        {"digest": digest, "spec": {}, "source": {"note": "Made up." if at else "Found."}}
        for at, digest in enumerate(digests.values())
    ]
    identity = made_up.file.identity.model_copy(
        update={"dataset": digests[values[0]], "datasets": list(digests.values())}
    )
    file = made_up.file.model_copy(
        update={"dataset": described[0], "datasets": described, "identity": identity}
    )
    write_whole(made_up.folder / "campaign.json", file.model_dump_json())
    return open_campaign(made_up.folder)


@pytest.fixture
def made(tmp_path: Path) -> Campaign:
    return with_data(tmp_path, "train", (2000, 4000))


def test_a_cell_and_a_comparison_have_one_data_set(made: Campaign) -> None:
    analysis = analyse(made)
    figures = analysis.figures
    assert len(figures.cells) == 8
    for cell in figures.cells:
        works = [each.specification.work for each in cell.records]
        assert {work.data.train for work in works} == {cell.axes["data.train"]}
        assert len({work.data_digest for work in works}) == 1 and len(works) == len(SEEDS)
        assert cell.speed_up is None or cell.speed_up.ratio == pytest.approx(2)
        assert cell.train_s is not None and cell.train_s.sd is not None
        assert cell.train_s.sd == pytest.approx(cell.train_s.mean / 12)  # of 1.1, 1.2, 1.3
    assert [(each.cell.axes["data.train"], round(each.ratio.ratio, 6)) for each in analysis.comparisons] == [
        (2000, 1.1),
        (4000, 1.5),
    ] * 2
    assert [(each.axes, each.first, each.values, each.ratio.n) for each in analysis.settings] == [
        (("data.train",), [2000], [4000], len(SEEDS))
    ] * 4
    # Runs of other data end with other weights, and are not the same work.
    assert len(figures.works) == 2 * 2 * len(SEEDS) and not figures.weights_differ
    # 63 steps of 2,000 samples and 125 of 4,000, on one worker as on two that share the batch.
    assert figures.same_steps is True


def test_every_data_set_is_described(made: Campaign) -> None:
    figures = figures_of(made)
    facts = dict(common_facts(figures))
    assert facts["Data"] == (
        "movie-reviews: 2,000 or 4,000 to train, 1,000 to validate, length 64, 2 data sets: see Data sets"
    )
    text = methods(figures)
    assert "on movie-reviews, 2,000 or 4,000 samples to train and 1,000 to validate" in text
    assert "What varied: data.train 2000 and 4000; workers 1 and 2." in text
    table = tables(made)["Data sets"]
    assert rows(table) == [
        {
            "data": "movie-reviews",
            "data.max_length": "64",
            "train": train,
            "validation": "1,000",
            "tokens of a sample": "64",
            "runs": "12",
            "digest": digit * 12,
        }
        for train, digit in (("2,000", "1"), ("4,000", "2"))
    ]
    assert table.after == ["Found. Made up."]
    write_report(made)
    report = (made.folder / "report.md").read_text(encoding="utf-8")
    assert "## Data sets" in report and "Found. Made up." in report
    times = rows(tables(made)["Times, quality, weights"])
    assert [each["data.train"] for each in times] == ["2000", "4000"] * 4
    runs = load(made.folder).runs
    assert sorted(set(runs["data.train"])) == [2000, 4000]


def test_one_data_set_has_no_table_of_its_own(tmp_path: Path) -> None:
    made = quick(tmp_path)
    assert "Data sets" not in tables(made)
    assert dict(common_facts(figures_of(made)))["Data"] == (
        "movie-reviews: 4,000 to train, 1,000 to validate, length 128, digest dddddddddddd"
    )


def test_an_environment_of_a_stacks_own_is_named(tmp_path: Path) -> None:
    made = quick(tmp_path)
    usual = f"digest {'e' * 12}, lock cpu-py3.11"
    assert dict(common_facts(figures_of(made)))["Environment"] == usual
    identity = made.file.identity.model_copy(update={"environments": {"spark": "f" * 64}})
    own = Campaign(made.folder, made.file.model_copy(update={"identity": identity}))
    said = dict(common_facts(figures_of(own)))["Environment"]
    assert said == f"{usual}; of spark its own, digest {'f' * 12}"
    words = f"; those of spark ran in an environment of its own, digest {'f' * 12}."
    assert words in methods(figures_of(own)) and words not in methods(figures_of(made))


def test_the_newest_libraries_are_named_with_what_is_newer(tmp_path: Path) -> None:
    def made_of(libraries: str, numpy: str) -> Record:
        one = spec("ddp", 1, 1)
        fields = one.model_copy(
            update={"conditions": one.conditions.model_copy(update={"libraries": libraries})}
        )
        digest = fields.conditions.digest
        found = record("ddp", 1, 10, 20, specification=fields, run_id=fields.run_id, conditions_digest=digest)
        ranks = [rank.model_copy(update={"versions": {"torch": "2", "numpy": numpy}}) for rank in found.ranks]
        return found.model_copy(update={"ranks": ranks})

    # Whichever comes first.
    records = [made_of("newest", "2.5"), made_of("locked", "2.4")]
    plan = [
        PlannedRun(
            run_id=each.run_id,
            axes={"stack": "ddp", "workers": 1, "epochs": 2, "seed": 1, "libraries": libraries},
            specification=each.specification,
        )
        for each in records
        for libraries in (each.specification.conditions.libraries,)
    ]
    made = campaign(tmp_path, plan, records)
    identity = made.file.identity.model_copy(update={"environments": {"newest": "f" * 64}})
    figures = figures_of(Campaign(made.folder, made.file.model_copy(update={"identity": identity})))
    facts = dict(common_facts(figures))
    newest = f"with libraries: newest, digest {'f' * 12} (numpy 2.5 for 2.4)"
    assert facts["Environment"].endswith(f"; {newest}") and "numpy 2.4" in facts["Versions"]
    assert f"; those {newest}, ran in another one." in methods(figures)


def test_an_accuracy_is_as_sure_as_its_own_validation_split(tmp_path: Path) -> None:
    made = with_data(tmp_path, "validation", (400, 1600))
    (remark,) = [each for each in tables(made)["Times, quality, weights"].after if "one evaluation" in each]
    # 1.96 * sqrt(0.5 * 0.5 / 400)
    assert "one evaluation of 400 or 1,600 samples is good to ±0.05 or less (95 %)" in remark


def test_a_reference_is_for_cells_of_the_data_that_it_names(made: Campaign) -> None:
    def fitting(entry: dict[str, Any]) -> set[int]:
        (reference,) = read_references([{"train_s": 1.0, "below": 0.5, **entry}])
        file = made.file.model_copy(update={"references": [reference]})
        found = check_references(figures_of(Campaign(made.folder, file)))
        return {each.cell.axes["data.train"] for each in found.checked}

    assert fitting({"data.train": 4000}) == {4000}
    assert fitting({"data.max_length": 64}) == fitting({"data.validation": 1000}) == {2000, 4000}
    assert fitting({"data.max_length": 128}) == fitting({"data.lenght": 64}) == set()
