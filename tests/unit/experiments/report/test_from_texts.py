"""From texts to a trained model: the record of preparing, its table, and the stack that can't do it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import PREPARING, figures_of
from experiments.analysis.from_texts import end_to_end, from_texts
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun, make_plan
from experiments.cluster.description import Cluster
from experiments.matrix.loading import load_matrix
from experiments.records.record import SCHEMA, Record, parse_record, read_record
from experiments.report.export_rows import export_rows
from experiments.report.sections.from_texts import TITLE
from experiments.report.writer import write_report
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from tests.unit.experiments.made_up_workplace import Workplace
from tests.unit.experiments.records.test_records import Left
from tests.unit.experiments.report.drawn import tables
from training.spec import PHASES, RunSpec

ROWS = 5000


def in_run(stack: str, workers: int, seed: int) -> RunSpec:
    one = spec(stack, workers, seed)
    return one.model_copy(update={"conditions": one.conditions.model_copy(update={"tokenizing": "in_run"})})


def made(stack: str, seed: int, train_s: float, preparing_s: float, *, before: bool) -> Record:
    """A run of 2 workers whose stack's command takes 20 s more than training and any preparing within it.

    Args:
        stack: its stack.
        seed: its seed.
        train_s: seconds of training.
        preparing_s: seconds of preparing.
        before: whether preparing ended 3 s before the stack's command began; otherwise it is part of it.
    """
    one = in_run(stack, 2, seed)
    began = 1000.0 if before else 1000.0 + preparing_s + 3.0
    prepared = {"started": began - preparing_s - 3.0, "ended": began - 3.0, "by": "two hands", "rows": ROWS}
    took = train_s + 20.0 + (0.0 if before else preparing_s)
    launch = {"stack": stack, "started": 1000.0, "ended": 1000.0 + took, "exit_code": 0}
    total_s = train_s + preparing_s + 30.0
    phases = dict.fromkeys(PHASES, 0.0) | {"forward": train_s, "other": 30.0}
    changes: dict[str, Any] = {
        "specification": one,
        "run_id": one.run_id,
        "conditions_digest": one.conditions.digest,
        "launch": launch | {"command": ["launch"], "nodes": []},
        "prepared": prepared,
        "phases": phases,
    }
    return record(stack, 2, train_s, total_s, seed, **changes)


def planned_and_made(results: Path, records: list[Record]) -> Campaign:
    """A campaign that planned exactly these runs."""
    plan = [
        PlannedRun(
            run_id=each.run_id,
            axes={"stack": each.specification.stack, "workers": 2, "epochs": 2}
            | {"seed": each.specification.work.seed},
            specification=each.specification,
        )
        for each in records
    ]
    return campaign(results, plan, records)


def etl(results: Path, noise_s: float = 0.5) -> Campaign:
    """A campaign: DDP prepares in 20 s and trains for 60 s, Spark takes 10 s and 66 s."""
    records = []
    for seed in (1, 2, 3):
        more = (seed - 2) * noise_s
        records += [
            made("ddp", seed, 60.0 + more, 20.0, before=True),
            made("spark", seed, 66.0 + 2 * more, 10.0, before=False),
        ]
    return planned_and_made(results, records)


def test_end_to_end_has_preparing_once_and_no_time_between() -> None:
    assert end_to_end(made("ddp", 1, 60.0, 20.0, before=True)) == pytest.approx(20 + 60 + 20)
    assert end_to_end(made("spark", 1, 66.0, 10.0, before=False)) == pytest.approx(10 + 66 + 20)


def test_each_cell_is_taken_apart_and_held_against_the_baseline(tmp_path: Path) -> None:
    ddp, spark = from_texts(figures_of(etl(tmp_path)))
    assert (ddp.cell.stack, ddp.ratio, ddp.preparing_ratio) == ("ddp", None, None)
    assert ddp.preparing_s.mean == pytest.approx(20) and ddp.training_s.mean == pytest.approx(60)
    assert ddp.end_to_end_s.mean == pytest.approx(100) and ddp.end_to_end_s.n == 3
    assert spark.ratio is not None and spark.preparing_ratio is not None
    assert spark.preparing_ratio.ratio == pytest.approx(0.5)
    assert spark.ratio.ratio == pytest.approx(0.96, abs=0.001) and spark.ratio.n == 3
    assert spark.ratio.low is not None and spark.ratio.low < 0.96 < (spark.ratio.high or 0)


def test_no_difference_is_claimed_below_what_repeated_runs_differ_by_from_end_to_end(tmp_path: Path) -> None:
    for spread_s, said in ((0.1, "takes less time"), (8.0, "within the noise")):
        first = etl(tmp_path / f"first-{spread_s}")
        plan, records = [], [read_record(path) for path in first.folder.glob("*/*/record.json")]
        for seed in (1, 2, 3):
            again = made("ddp", seed, 60.0 + (seed - 2) * (0.5 + spread_s), 20.0, before=True)
            conditions = again.specification.conditions.model_copy(update={"repetition": 2})
            specification = again.specification.model_copy(update={"conditions": conditions})
            records.append(again.model_copy(update=of_specification(specification)))
        for each in records:
            one = each.specification
            axes = {"stack": one.stack, "workers": 2, "epochs": 2, "repetition": one.conditions.repetition}
            axes |= {"seed": one.work.seed}
            plan.append(PlannedRun(run_id=each.run_id, axes=axes, specification=one))
        table = tables(campaign(tmp_path / f"again-{spread_s}", plan, records))[TITLE]
        (spark,) = [row for row in table.texts if row[0] == "spark"]
        assert spark[-1].startswith(said)
        assert table.after[-1].startswith(
            "By repeated runs of ddp (A/A), no difference from end to end below"
        )
    remark = "How far apart runs of ddp from texts are that differ in nothing was not measured."
    assert tables(etl(tmp_path / "alone"))[TITLE].after[-1] == remark


def test_a_clock_that_was_set_back_leaves_a_pair_out_and_no_report(tmp_path: Path) -> None:
    records = [
        made(stack, seed, 60.0 + seed, 0.0 if (stack, seed) == ("ddp", 2) else 20.0, before=stack == "ddp")
        for stack in ("ddp", "spark")
        for seed in (1, 2, 3)
    ]
    where = planned_and_made(tmp_path, records)
    _, spark = from_texts(figures_of(where))
    assert spark.preparing_ratio is not None and spark.preparing_ratio.n == 2
    assert spark.ratio is not None and spark.ratio.n == 3
    assert write_report(where)


def test_the_table_says_it_and_every_file_has_it(tmp_path: Path) -> None:
    where = etl(tmp_path)
    table = tables(where)[TITLE]
    assert table.texts[0][:7] == ["ddp", "2", "2", "3", "20.0 ± 0.0", "60.0 ± 1.2", "100.0 ± 1.2"]
    assert table.texts[1][:7] == ["spark", "2", "2", "3", "10.0 ± 0.0", "66.0 ± 2.5", "96.0 ± 2.5"]
    assert table.texts[1][7:10] == ["3", "0.500", "0.960"]
    assert table.texts[1][-1] == "takes less time"
    assert len(table.columns) == len(table.texts[0]) == len(table.texts[1])
    assert "ddp, 2 workers: 5,000 samples, by two hands." in table.after
    names = [path.name for path in write_report(where)]
    for name in ("report.md", "report.html"):
        assert TITLE in (where.folder / name).read_text(encoding="utf-8") and name in names
    exported = (where.folder / "figures.csv").read_text(encoding="utf-8")
    made_rows = [row for row in export_rows(analyse(where)) if row["section"] == "from texts"]
    assert [row["quantity"] for row in made_rows] == [
        *("preparing_s", "train_s", "end_to_end_s"),
        *("preparing_s", "train_s", "end_to_end_s", "preparing_s over ddp", "end_to_end_s over ddp"),
    ]
    assert exported.count('"from texts"') == len(made_rows)
    before = {path.name: path.read_bytes() for path in where.folder.glob("report.*")}
    write_report(where)
    assert {path.name: path.read_bytes() for path in where.folder.glob("report.*")} == before


def test_the_decision_on_data_is_taken_by_it(tmp_path: Path) -> None:
    found = analyse(etl(tmp_path)).favoured["pipeline"]
    assert (found.outcome, found.stacks, found.over) == ("stacks", ("spark",), "ddp")


def test_preparing_is_a_piece_of_its_own_among_the_phases(tmp_path: Path) -> None:
    where = etl(tmp_path)
    names = [column.name for column in tables(where)["Where the time goes"].columns]
    assert names[names.index("launch") + 1] == PREPARING
    for cell in figures_of(where).cells:
        assert cell.phases is not None and cell.total_s is not None
        assert sum(cell.phases.values()) == pytest.approx(cell.total_s.mean)
        assert cell.phases[PREPARING] == pytest.approx(20.0 if cell.stack == "ddp" else 10.0)


def test_a_campaign_without_such_runs_has_neither_table_nor_column(tmp_path: Path) -> None:
    plain = [record("ddp", 1, 50.0, 62.0)]
    plan = [
        PlannedRun(
            run_id=plain[0].run_id,
            axes={"stack": "ddp", "workers": 1, "epochs": 2, "seed": 1},
            specification=plain[0].specification,
        )
    ]
    paths = write_report(campaign(tmp_path, plan, plain))
    text = paths[0].read_text(encoding="utf-8")
    assert f"## {TITLE}" not in text and PREPARING not in text and "| rendezvous |" in text


class Tokenised(Left):
    """The files of a run that made its own tokens."""

    def __init__(self, folder: Path, started: float, ended: float) -> None:
        super().__init__(folder)
        self.request = dataclasses.replace(self.request, specification=in_run("ddp", 2, 1))
        self.note = {"started": started, "ended": ended, "by": "a process", "rows": ROWS, "files": {}}
        self.write("prepared.json", self.note)


@pytest.mark.parametrize(
    ("started", "ended", "launch"),
    [
        (980.0, 995.0, 3.0),  # before the stack was launched: no part of launch
        (1000.5, 1002.0, 1.5),  # between the launch and a rank's first process
    ],
)
def test_preparing_is_no_part_of_launch_and_all_adds_up(
    tmp_path: Path, started: float, ended: float, launch: float
) -> None:
    made = Tokenised(tmp_path, started, ended).compose()
    assert made.ok and made.prepared is not None and made.phases is not None
    assert made.prepared.seconds == ended - started and made.prepared.by == "a process"
    assert made.phases["launch"] == pytest.approx(launch)
    assert sum(made.phases.values()) + made.prepared.seconds == pytest.approx(made.total_s)
    text = made.model_dump_json()
    jsonschema.validate(json.loads(text), json.loads(SCHEMA.read_text()))
    assert parse_record(text.encode(), Path("record.json")) == made


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (None, "The run was to make its tokens itself, but left no prepared.json."),
        ({"rows": 7}, "The run made tokens of 7 samples instead of 5000."),
        ({"ended": 900.0}, "Making the tokens ended before it began (prepared.json): the node's clock"),
        ({"rows": "many"}, "prepared.json, as the run left it, is not valid: rows: "),
    ],
)
def test_a_run_without_a_good_note_does_not_count(
    tmp_path: Path, changes: dict[str, Any] | None, reason: str
) -> None:
    left = Tokenised(tmp_path, 980.0, 995.0)
    if changes is None:
        (left.outputs / "prepared.json").unlink()
    else:
        left.write("prepared.json", left.note | changes)
    made = left.compose()
    assert made.status == "failed" and str(made.reason).startswith(reason)


def test_a_record_from_before_is_still_one() -> None:
    old = json.loads(record("ddp", 2, 30.0, 40.0).model_dump_json())
    del old["prepared"]
    assert parse_record(json.dumps(old).encode(), Path("record.json")).prepared is None


def test_the_matrix_holds_spark_against_ddp_and_determined_says_why_not(
    tmp_path: Path, workplace: Workplace
) -> None:
    content = json.loads((workplace.cluster_folder / "cluster.json").read_bytes())
    content |= {"stacks": ["ddp", "spark", "determined"], "threads": 1}
    cluster = Cluster.model_validate_json(json.dumps(content))
    matrix = load_matrix("etl")
    runs = [run for run in make_plan(matrix, cluster, "a" * 64) if not run.warm_up]
    assert len(runs) == 12 + 3 and all(run.cannot_run is None for run in runs)
    assert matrix.stacks == ["ddp", "spark"]
    assert {run.specification.conditions.tokenizing for run in runs} == {"in_run"}
    assert {run.specification.work.epochs for run in runs} == {1}
    path = tmp_path / "etl.yml"
    text = (Path("experiments") / "matrices" / "etl.yml").read_text(encoding="utf-8")
    path.write_text(text.replace("[ddp, spark]", "[ddp, determined]"), encoding="utf-8")
    reasons = {
        run.cannot_run
        for run in make_plan(load_matrix(str(path)), cluster, "a" * 64)
        if run.specification.stack == "determined"
    }
    (reason,) = reasons
    assert reason is not None
    assert reason.startswith(
        "determined can't have tokenizing in_run: its experiments train on existing data"
    )
