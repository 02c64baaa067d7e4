"""Fixed costs beside bare starts: runs of an empty program are in that table, and in no other figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.export_rows import export_rows
from experiments.report.frames import load
from experiments.report.sections.fixed_costs import BARE, HOW, TITLE
from experiments.report.writer import write_report
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from tests.unit.experiments.report.drawn import rows, tables
from training.spec import PHASES, RunSpec

AROUND_S = 16.0
LAUNCH_S = {"ddp": 2.0, "spark": 22.0}
BARE_S = {"ddp": 5.0, "spark": 20.0}
NOTHING: dict[str, Any] = {
    **dict.fromkeys(("train_s", "slowest_rank", "phases", "weights_digest")),
    **{"validation_correct": None, "validation_count": None, "epochs": [], "ranks": []},
}
STANDIN = "It ran on a stand-in."


def training(stack: str, seed: int) -> Record:
    """Two workers: 40 s of training, 0.2 of them in no phase, and fixed costs that grow with the seed."""
    around = {"queue": 0.5, "launch": LAUNCH_S[stack] + seed / 10, "imports": 3.0, "rendezvous": 0.5}
    phases = dict.fromkeys(PHASES, 0.0) | around | {"forward": 20.0, "evaluation": 19.8, "shutdown": 1.0}
    phases["other"] = 0.2 + AROUND_S
    return record(stack, 2, 40.0, sum(phases.values()), seed, phases=phases)


def bare(stack: str, seed: int, **changes: Any) -> Record:
    one = spec(stack, 2, seed)
    conditions = one.conditions.model_dump() | {"program": "empty"}
    made = of_specification(RunSpec.model_validate(one.model_dump() | {"conditions": conditions}))
    launch = {"stack": stack, "started": 100.0, "ended": 100.0 + BARE_S[stack] + seed / 20, "exit_code": 0}
    launch |= {"command": ["launch"], "nodes": []}
    changes = made | NOTHING | {"launch": launch, "total_s": 77.0} | changes
    return Record.model_validate(record(stack, 2, 1.0, 77.0, seed).model_dump() | changes)


def with_bare(folder: Path, records: list[Record], planned: int = 3) -> Campaign:
    """A campaign of DDP and Spark whose plan has both programs, and these records."""
    plan = []
    for stack in ("ddp", "spark"):
        for program, make in (("training", training), ("empty", bare)):
            for seed in range(1, planned + 1):
                specification = make(stack, seed).specification
                axes = {"stack": stack, "program": program, "workers": 2, "epochs": 2, "seed": seed}
                run_id = specification.run_id
                plan.append(PlannedRun(run_id=run_id, axes=axes, specification=specification))
    return campaign(folder, plan, records)


def of_both(seeds: tuple[int, ...] = (1, 2, 3)) -> list[Record]:
    return [make(stack, seed) for stack in ("ddp", "spark") for make in (training, bare) for seed in seeds]


def test_fixed_costs_are_set_beside_the_stacks_own_bare_starts(tmp_path: Path) -> None:
    analysis = analyse(with_bare(tmp_path, of_both()))
    ddp, spark = analysis.fixed_costs
    assert ddp.to_first_step_s.mean == pytest.approx(0.5 + 2.2 + 3.0 + 0.5 + 0.2)
    assert ddp.after_last_step_s.mean == pytest.approx(1.0)
    assert ddp.both_s.mean == pytest.approx(7.4) and ddp.around_s.mean == pytest.approx(AROUND_S)
    assert ddp.bare is not None and spark.bare is not None
    assert ddp.bare.start_s.mean == pytest.approx(5.1) and ddp.bare.start_s.n == 3
    assert ddp.bare.more_s.mean == pytest.approx(2.3) and ddp.bare.more_s.n == 3
    assert ddp.bare.more_with_around_s.mean == pytest.approx(2.3 + AROUND_S)
    assert (ddp.bare.within_command, ddp.bare.in_all) == ("within", "beyond")
    assert spark.bare.more_s.mean == pytest.approx(7.3) and spark.bare.within_command == "beyond"
    low, high = ddp.bare.more_s.low, ddp.bare.more_s.high
    # Student's t of two intervals at once, with two degrees of freedom.
    width = 2 * 6.2053 * 0.05 / 3**0.5
    assert low is not None and high is not None and high - low == pytest.approx(width, rel=1e-3)


def test_an_aim_is_not_judged_without_an_interval_or_within_it(tmp_path: Path) -> None:
    alone = analyse(with_bare(tmp_path / "alone", of_both((1,)))).fixed_costs[0].bare
    assert alone is not None and (alone.within_command, alone.in_all) == ("none", "none")
    wide = [each for each in of_both() if each.specification.stack == "ddp"]
    later = wide[0].phases or {}
    phases = later | {"launch": later["launch"] + 9.0}
    wide[0] = wide[0].model_copy(update={"phases": phases, "total_s": sum(phases.values())})
    found = analyse(with_bare(tmp_path / "wide", wide)).fixed_costs[0].bare
    assert found is not None and found.within_command == "open"


def test_empty_programs_are_in_no_other_figure(tmp_path: Path) -> None:
    there = with_bare(tmp_path / "with", of_both())
    without = with_bare(tmp_path / "without", [each for each in of_both() if not each.specification.bare])
    analysis, plain = analyse(there), analyse(without)
    assert analysis.figures.cells == plain.figures.cells and analysis.comparisons == plain.comparisons
    assert analysis.figures.works == plain.figures.works and not analysis.figures.unproven
    assert analysis.noise == plain.noise and analysis.added == plain.added and analysis.settings == []
    assert len(plain.figures.not_run) == 6 and not analysis.figures.not_run
    exported = [row for row in export_rows(analysis) if row not in export_rows(plain)]
    assert {row["section"] for row in exported} == {"fixed costs"} and len(exported) == 2 * 3
    assert {cell["stack"] for cell in rows(tables(there)["Times, quality, weights"])} == {"ddp", "spark"}


def test_the_report_says_whether_the_aim_is_reached(tmp_path: Path) -> None:
    there = with_bare(tmp_path, of_both())
    table = tables(there)[TITLE]
    ddp, spark = rows(table)
    assert ddp["stack"] == "ddp" and ddp["both, s"].startswith("7.4 (") and spark["pairs"] == "3"
    assert ddp["more than it, s"].startswith("+2.3 (+") and ddp["more, with around, s"].startswith("+18.3 (+")
    (said,) = table.after
    assert said == (
        "The aim is at most 5 s more than the bare start. Within the command: at most 5 s of ddp with 2 "
        "workers; more than 5 s of spark with 2 workers. With what is around it: more than 5 s of ddp with 2 "
        "workers and spark with 2 workers."
    )
    report = write_report(there)[0].read_text(encoding="utf-8")
    assert "Another 6 runs of an empty program measured the stacks' bare starts." in report
    assert "ddp, program empty" in report.partition("## Records")[2]
    runs = load(there.folder).runs
    assert len(runs) == 12 and set(runs[runs.counts].program) == {"training"}
    content = json.loads((there.folder / "reframe.json").read_text(encoding="utf-8"))
    cases = content["runs"][0]["testcases"]
    assert len(cases) == 12 and {case["result"] for case in cases} == {"pass"}
    empty = next(case for case in cases if case["program"] == "empty")
    assert [name.rpartition(":")[2] for name in empty["perfvalues"]] == ["bare_total_s"]
    assert empty["tags"] == ["bare"] and empty["time_total"] is None


def test_without_bare_starts_the_table_says_how_to_get_them(tmp_path: Path) -> None:
    made = [each for each in of_both() if not each.specification.bare]
    table = tables(with_bare(tmp_path, made))[TITLE]
    assert table.after == [HOW] and not {column.name for column in table.columns} & {*BARE}
    assert "(Bonferroni)" not in table.before


def test_what_a_stand_in_took_to_start_is_no_bare_start(tmp_path: Path) -> None:
    made = [each for each in of_both() if each.specification.stack == "ddp" or not each.specification.bare]
    made += [bare("spark", seed, standin=STANDIN) for seed in (1, 2, 3)]
    table = tables(with_bare(tmp_path, made))[TITLE]
    assert [cells["pairs"] for cells in rows(table)] == ["3", "\N{EN DASH}"]
    assert table.after[1] == "Without a bare start to be paired with: spark with 2 workers."
