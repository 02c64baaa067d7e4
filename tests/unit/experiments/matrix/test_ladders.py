"""Ladders in a matrix, conditions that a stack can have, and runs that are the same on a cluster."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from yaml import YAMLError

from experiments.campaign.plan import PlannedRun, make_plan, why_not
from experiments.campaign.presentation import read_presentation
from experiments.cluster.abilities import why_no_conditions
from experiments.cluster.description import Cluster
from experiments.matrix.loading import load_matrix
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from experiments.util.paths import ROLES
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace
from training.spec import Conditions

LADDERS = """ladders:
  - name: A stack
    rungs:
      - {label: slow, when: {stack: slow, workers: 1}}
      - {label: plain, when: {stack: plain, workers: 1}}
"""


def cluster(workplace: Workplace, **changes: Any) -> Cluster:
    content = json.loads((workplace.cluster_folder / "cluster.json").read_bytes())
    return Cluster.model_validate_json(json.dumps(content | changes))


def load(folder: Path, text: str) -> Matrix:
    path = folder / "small.yml"
    path.write_text(text)
    return load_matrix(str(path))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "name: A stack",
            "title: A stack",
            ("line 13 ", "ladders.0.name: ", "ladders.0.title: "),
        ),
        (
            "workers: 1}}\n      - {label: plain",
            "seed: 1}}\n      - {label: plain",
            ("line 15: ", "(stack, workers, epochs)", "not seed."),
        ),
        ("when: {stack: slow, workers: 1}", "when: {stack: slow, colour: 1}", ("line 15: ", "not colour.")),
        ("when: {stack: plain, workers: 1}", "when: {stack: plain}", ("line 16: ", "(stack, workers)")),
        (
            "{stack: plain, workers: 1}",
            "{stack: slow, workers: 1}",
            ("line 16: ", "already"),
        ),
        (
            "{stack: plain, workers: 1}",
            "{stack: plain, workers: 7}",
            ("line 16: ", "(stack=plain, workers=7)"),
        ),
        ("{stack: plain, workers: 1}", "{}", ("ladders.0.rungs.1.when: ",)),
        ("      - {label: plain, when: {stack: plain, workers: 1}}\n", "", ("ladders.0.rungs: ",)),
    ],
)
def test_what_is_wrong_with_a_ladder_is_said(
    tmp_path: Path, old: str, new: str, said: tuple[str, ...]
) -> None:
    text = MATRIX + LADDERS
    assert text.count(old) == 1
    with pytest.raises(UserError) as raised:
        load(tmp_path, text.replace(old, new))
    assert [each for each in said if each not in str(raised.value)] == []
    assert "small.yml" in str(raised.value) and "\n" not in str(raised.value)


def test_ladders_of_one_name_and_rungs_that_cannot_be_compared(tmp_path: Path) -> None:
    twice = MATRIX + LADDERS + LADDERS.removeprefix("ladders:\n")
    with pytest.raises(UserError) as raised:
        load(tmp_path, twice)
    assert "line 17: " in str(raised.value) and " A stack;" in str(raised.value)
    rows = "rows:\n  - {stack: other, workers: 1, epochs: 9, seed: 1}\n"
    apart = LADDERS.replace("stack: plain", "stack: other")
    with pytest.raises(UserError) as raised:
        load(tmp_path, MATRIX + rows + apart)
    assert "line 18: " in str(raised.value) and "(slow): " in str(raised.value)


def test_ladders_are_no_part_of_what_decides_the_runs(tmp_path: Path) -> None:
    with_ladders, without = load(tmp_path, MATRIX + LADDERS), load(tmp_path, MATRIX)
    assert [rung.label for rung in with_ladders.ladders[0].rungs] == ["slow", "plain"]
    assert with_ladders.content() == without.content()


def test_a_campaigns_report_follows_the_ladders_and_the_description_of_now(workplace: Workplace) -> None:
    assert workplace.run("run", "small")[0] == 0
    (campaign,) = workplace.campaigns()
    begun = (campaign / "campaign.json").read_bytes()
    workplace.matrix(MATRIX.replace("Two stacks", "Both") + LADDERS)
    status, output = workplace.run("run", "small")
    assert status == 0 and len(workplace.campaigns()) == 1, output
    assert "have changed" in " ".join(output.split())
    presentation = read_presentation(campaign)
    assert presentation is not None and presentation.description.startswith("Both, ")
    assert [each.name for each in presentation.ladders] == ["A stack"]
    assert workplace.run("report", "small")[0] == 0
    report = (campaign / "report.md").read_text()
    assert f"\n{presentation.description}\n" in report
    with (campaign / "figures.csv").open(newline="") as file:
        steps = [row["quantity"] for row in csv.DictReader(file) if row["section"] == "why"]
    assert "A stack: slow > plain, s" in steps
    assert (campaign / "campaign.json").read_bytes() == begun
    # The change is reported only once.
    assert "have changed" not in workplace.run("run", "small")[1]
    assert workplace.run("check", str(campaign))[0] == 0

    (campaign / "reading.json").write_text("{}")
    status, output = workplace.run("report", "small")
    assert status == 2 and f"{campaign / 'reading.json'} is" in output and "Delete it" in output


THREADS = MATRIX.replace("  seed: [1]", "  seed: [1]\n  threads: [cluster, 1]")


def test_the_clusters_threads_written_out_are_the_same_run(tmp_path: Path, workplace: Workplace) -> None:
    matrix = load(tmp_path, THREADS)
    small = make_plan(matrix, cluster(workplace, threads=1), "a" * 64)
    assert len(small) == 4 == len({run.run_id for run in small})
    assert {run.axes["threads"] for run in small} == {"cluster"}
    assert [[axes["threads"] for axes in run.also] for run in small] == [[1]] * 4
    nodes = {name: node.model_dump() | {"cores": 4} for name, node in cluster(workplace).nodes.items()}
    large = make_plan(matrix, cluster(workplace, threads=4, nodes=nodes), "a" * 64)
    assert len(large) == 8 and not any(run.also or run.cannot_run for run in large)
    threads = {(run.axes["threads"], run.specification.conditions.threads) for run in large}
    assert threads == {("cluster", 4), (1, 1)}


def test_of_the_same_run_that_is_kept_which_is_not_excluded(tmp_path: Path, workplace: Workplace) -> None:
    excluded = "exclude:\n  - {when: {threads: cluster}, reason: Not these.}\n"
    plan = make_plan(load(tmp_path, THREADS + excluded), cluster(workplace, threads=1), "a" * 64)
    assert [run.cannot_run for run in plan] == [None] * 4 and {run.axes["threads"] for run in plan} == {1}


def test_a_warm_up_stands_on_no_rung(tmp_path: Path, workplace: Workplace) -> None:
    text = THREADS.replace("warm_ups: false", "warm_ups: true")
    plan = make_plan(load(tmp_path, text), cluster(workplace, threads=1), "a" * 64)
    assert [run.also for run in plan if run.warm_up] == [[], []]


def declared(roles: Path, text: str) -> None:
    (roles / "some" / "meta").mkdir(parents=True, exist_ok=True)
    (roles / "some" / "meta" / "conditions.yml").write_text(text)


def test_a_stack_says_itself_what_it_can(tmp_path: Path) -> None:
    native, alone = Conditions(runtime="native"), Conditions(launcher="none")
    assert why_no_conditions("some", Conditions(), tmp_path) == []
    (unsaid,) = why_no_conditions("some", native, tmp_path)
    assert unsaid.startswith("some ") and " runtime native: " in unsaid
    why = "it always has one"
    declared(tmp_path, f"runtime: {{native: true}}\nlauncher: {{none: {why}.}}\n")
    assert why_no_conditions("some", native, tmp_path) == []
    (said,) = why_no_conditions("some", alone, tmp_path)
    assert said.endswith(f" launcher none: {why}")
    assert why_no_conditions("some", Conditions(tokenizing="in_loop"), tmp_path) == []
    (other,) = why_no_conditions("some", Conditions(tokenizing="in_run"), tmp_path)
    assert other == unsaid.replace("runtime native", "tokenizing in_run")
    declared(tmp_path, "runtime: {native: false}\n")
    with pytest.raises(UserError, match=r"meta/conditions\.yml") as raised:
        why_no_conditions("some", native, tmp_path)
    assert isinstance(raised.value.__cause__, ValidationError)
    declared(tmp_path, "runtime: [")
    with pytest.raises(UserError, match=r"meta/conditions\.yml") as raised:
        why_no_conditions("some", native, tmp_path)
    assert isinstance(raised.value.__cause__, YAMLError)


def test_every_declaration_in_the_repository_can_be_read() -> None:
    files = sorted(ROLES.glob("*/meta/conditions.yml"))
    assert len(files) == 4
    unusual = Conditions(runtime="native", launcher="none")
    can = {path.parts[-3]: not why_no_conditions(path.parts[-3], unusual) for path in files}
    assert sorted(can.values()) == [False, False, False, True]


def test_the_plan_says_why_a_stack_cannot_and_that_without_a_launcher_there_is_one_rank(
    tmp_path: Path, workplace: Workplace
) -> None:
    text = MATRIX.replace("warmup_steps: 2", "launcher: none")
    plan = make_plan(load(tmp_path, text), cluster(workplace), "a" * 64)
    (unsaid,) = why_no_conditions("plain", Conditions(launcher="none"))
    assert plan[0].cannot_run == f"{unsaid}."
    smaller = text.replace("launcher: none", "launcher: none, batch_per_worker: 8")
    two = make_plan(load(tmp_path, smaller), cluster(workplace, slots_per_worker=2), "a" * 64)[0]
    usual = two.specification.conditions.model_copy(update={"launcher": Conditions().launcher})
    launched = two.specification.model_copy(update={"conditions": usual})
    without, reason = (
        why_not(each, cluster(workplace, slots_per_worker=2)) for each in (two.specification, launched)
    )
    assert without is not None and "one rank" in without and "2 slots" in without
    assert reason is None or "slots" not in reason


def test_the_kept_ladders_on_a_testbed(workplace: Workplace) -> None:
    stacks = ["ddp", "spark", "determined"]
    matrix = load_matrix("docs/why/ladders/why-ladders.yml")
    plan = make_plan(matrix, cluster(workplace, stacks=stacks, threads=1), "a" * 64)
    runs = [run for run in plan if not run.warm_up]
    assert len(runs) == 35 and all(run.cannot_run is None for run in runs)

    def standing(rung: int, of: int) -> list[PlannedRun]:
        return [
            run
            for run in runs
            if any(matrix.ladders[of].rungs[rung].holds(axes) for axes in (run.axes, *run.also))
        ]

    # Five seeds on each; with one core, both thread counts are the same run.
    assert {len(standing(0, of)) for of in range(3)} == {5}
    assert standing(0, 0) == standing(1, 0) != standing(2, 0)
    ends = [run.specification for run in standing(3, 0)]
    assert {end.stack for end in ends} == {"ddp"} and {end.conditions.tokenizing for end in ends} == {
        "before"
    }
