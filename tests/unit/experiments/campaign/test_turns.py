"""Workers take turns from seed to seed: in the plan, side by side, in repeats, and in what is adopted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.campaign import open_campaign
from experiments.campaign.concurrent import Group, groups_of
from experiments.campaign.estimates import Estimates
from experiments.campaign.plan import PlannedRun, make_plan
from experiments.cluster.description import Cluster
from experiments.console.tables import plan_as_json
from experiments.matrix.loading import load_matrix
from experiments.matrix.model import Needs
from experiments.records.record import read_record
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace

# Ranks of plain go where the plan puts them; slow says nothing, so it chooses itself.
PLAIN = MATRIX.replace("stack: [plain, slow]", "stack: [plain]").replace("workers: [1, 2]", "workers: [1]")
SEEDS = "  seed: [1, 2, 3, 4]\n"


@pytest.fixture
def given(workplace: Workplace) -> Workplace:
    """A workplace where ranks of `plain` go where the plan puts them."""
    declared = workplace.root / "roles" / "plain" / "meta" / "conditions.yml"
    declared.parent.mkdir(parents=True)
    declared.write_text("placement:\n  given: true\n", encoding="utf-8")
    return workplace


@pytest.fixture
def cluster(workplace: Workplace) -> Cluster:
    return Cluster.model_validate_json((workplace.cluster_folder / "cluster.json").read_bytes())


def planned(folder: Path, cluster: Cluster, text: str) -> list[PlannedRun]:
    """The plan of a matrix whose stack `ddp` is in this checkout, as is its role."""
    path = folder / "small.yml"
    path.write_text(text.replace("plain", "ddp"), encoding="utf-8")
    return make_plan(load_matrix(str(path)), cluster, "a" * 64)


def nodes(plan: list[PlannedRun], *names: str) -> dict[tuple[Any, ...], list[str] | None]:
    """The nodes of all runs, warm-ups left out, by their values of these axes."""
    return {tuple(run.axes[name] for name in names): run.nodes for run in plan if not run.warm_up}


def told(workplace: Workplace) -> list[tuple[str, list[str] | None]]:
    """The runs that were made, in order, and the nodes that each playbook was told."""
    calls = map(json.loads, (workplace.cluster_folder / "calls.jsonl").read_text().splitlines())
    return [(c["run"].rpartition("-")[0], c["told"].get("run_nodes")) for c in calls if c["run"]]


def test_all_runs_of_a_seed_begin_with_the_same_worker_and_seeds_take_turns(
    tmp_path: Path, cluster: Cluster
) -> None:
    plan = planned(
        tmp_path, cluster, MATRIX.replace("  seed: [1]\n", SEEDS).replace("warm_ups: false", "warm_ups: true")
    )
    found = nodes(plan, "stack", "workers", "seed")
    assert [found["ddp", 1, seed] for seed in (1, 2, 3, 4)] == [["worker1"], ["worker2"]] * 2
    assert {tuple(found["ddp", 2, seed] or ()) for seed in (1, 2, 3, 4)} == {("worker1", "worker2")}
    assert {len(found["slow", workers, 1] or ()) for workers in (1, 2)} == {0}
    for block in (1, 2, 3, 4):
        runs = [run for run in plan if run.block == block and run.specification.stack == "ddp"]
        assert [run.nodes for run in runs if run.warm_up] == [["worker1", "worker2"]]
    # The same each time, and whatever is run of it.
    assert plan == planned(tmp_path, cluster, (tmp_path / "small.yml").read_text())


def test_a_seed_keeps_its_worker_on_other_settings_of_the_cluster(tmp_path: Path, cluster: Cluster) -> None:
    text = PLAIN.replace("  seed: [1]\n", f"{SEEDS}  link_rate: [null, 1gbit]\n")
    plan = planned(tmp_path, cluster, text)
    assert len({run.block for run in plan}) == 8
    found = nodes(plan, "link_rate", "seed")
    for seed in (1, 2, 3, 4):
        assert found[None, seed] == found["1gbit", seed] == [f"worker{2 - seed % 2}"]


def test_users_who_begin_at_once_have_the_same_workers(tmp_path: Path, cluster: Cluster) -> None:
    text = PLAIN.replace("  seed: [1]\n", SEEDS) + "together: [[2, 3]]\n"
    plan = planned(tmp_path, cluster, text)
    assert list(nodes(plan, "seed").values()) == [["worker1"], ["worker2"], ["worker2"], ["worker1"]]


def test_workers_that_differ_take_no_turns(tmp_path: Path, cluster: Cluster) -> None:
    slower = cluster.nodes["worker2"].model_copy(update={"cpu": "Another CPU"})
    unlike = cluster.model_copy(update={"nodes": cluster.nodes | {"worker2": slower}})
    plan = planned(tmp_path, unlike, PLAIN.replace("  seed: [1]\n", SEEDS))
    assert {tuple(run.nodes or ()) for run in plan} == {("worker1",)}


def test_each_place_of_rank_0_has_its_warm_up(tmp_path: Path, cluster: Cluster) -> None:
    master = cluster.nodes["master"].model_copy(update={"groups": ["cluster", "master", "workers"]})
    works = cluster.model_copy(
        update={
            "nodes": cluster.nodes | {"master": master},
            "workers": [*cluster.workers, "master"],
            "stacks": ["ddp", "slow"],
        }
    )
    text = MATRIX.replace("workers: [1, 2]", "workers: [2]\n  rank_0: [worker, master]")
    plan = planned(tmp_path, works, text.replace("warm_ups: false", "warm_ups: true"))
    ours = [run for run in plan if run.specification.stack == "ddp"]
    assert [(run.axes["rank_0"], run.warm_up, run.nodes) for run in ours] == [
        ("worker", True, ["worker1", "worker2"]),
        ("worker", False, ["worker1", "worker2"]),
        ("master", True, ["master", "worker1"]),
        ("master", False, ["master", "worker1"]),
    ]
    assert len({run.run_id for run in ours}) == 4 and all(run.cannot_run is None for run in ours)
    others = [run for run in plan if run.specification.stack == "slow"]
    assert [run.cannot_run for run in others] == [
        f"slow can't have rank_0 {place}: its role does not say otherwise."
        for place in ("worker", "worker", "master", "master")
    ]


def sides(groups: list[Group]) -> list[list[tuple[Any, ...]]]:
    """Stack, epochs and nodes of the runs of each group."""
    return [[(run.axes["stack"], run.axes["epochs"], run.nodes) for run in group.runs] for group in groups]


def test_side_by_side_stacks_are_compared_on_one_worker_and_settings_trade_places(
    tmp_path: Path, cluster: Cluster
) -> None:
    text = MATRIX.replace("workers: [1, 2]", "workers: [1]").replace("epochs: [2]", "epochs: [1, 2, 3]")
    plan = planned(tmp_path, cluster, text.replace("seed: [1]\norder", "seed: [1, 2]\norder"))
    groups = groups_of(plan, plan, cluster.workers, side_by_side=True)
    ours = [group for group in groups if group.runs[0].specification.stack == "ddp"]
    first, second = ["worker1"], ["worker2"]
    assert sides(ours) == [
        [("ddp", 1, first), ("ddp", 2, second)],
        [("ddp", 3, first)],
        [("ddp", 1, second), ("ddp", 2, first)],
        [("ddp", 3, second)],
    ]
    assert [group.why for group in ours] == ["side by side", None] * 2
    # Whatever is left of it, and in whichever order.
    shuffled = [plan[at] for at in (2, 0)]
    assert sides(groups_of(shuffled, plan, cluster.workers, side_by_side=True)) == [
        [("ddp", 3, first)],
        [("ddp", 1, first)],
    ]
    # Who chooses workers itself is only told how many run.
    others = [group for group in groups if group.runs[0].specification.stack == "slow"]
    assert [group.variables(0).get("run_nodes") for group in others] == [None] * 4
    alone = groups_of(plan, plan, cluster.workers, side_by_side=False)
    assert {group.why for group in alone} == {None} and len(alone) == len(plan)


def test_playbooks_are_told_and_repeats_go_where_the_first_attempt_was(given: Workplace) -> None:
    given.matrix(PLAIN.replace("  seed: [1]\n", SEEDS))
    given.behaviour(runs={"plain-w1-e2-s2": {"starts": [2, 1]}, "plain-w1-e2-s4": {"fails": "rank"}})
    status, output = given.run("run", "small")
    assert status == 1 and "Disturbed, and made once more: plain-w1-e2-s2" in output
    runs = [(f"plain-w1-e2-s{seed}", [f"worker{2 - seed % 2}"]) for seed in (1, 2, 2, 3, 4)]
    assert told(given) == runs
    given.behaviour()
    given.forget_calls()
    assert given.run("run", "small")[0] == 0
    assert told(given) == runs[-1:]
    there = open_campaign(given.campaigns()[-1])
    records = [there.counting(run.run_id) for run in there.file.measured]
    assert Counter(rank.node for record in records if record for rank in record.ranks) == {
        "worker1": 2,
        "worker2": 2,
    }


def test_a_record_is_adopted_only_from_where_the_plan_has_the_run(given: Workplace) -> None:
    given.matrix(PLAIN.replace("seed: [1]\norder", "seed: [1, 2]\norder"))
    assert given.run("run", "small")[0] == 0
    given.forget_calls()
    # Seed 2 comes first now, so its turn is another one; seed 3 has the other worker.
    given.matrix(PLAIN.replace("seed: [1]\norder", "seed: [2, 3]\norder"))
    status, output = given.run("run", "small")
    assert status == 0 and "Adopted" not in output
    assert told(given) == [("plain-w1-e2-s2", ["worker1"]), ("plain-w1-e2-s3", ["worker2"])]
    given.forget_calls()
    given.matrix(PLAIN.replace("seed: [1]\norder", "seed: [1, 2, 3]\norder"))
    status, output = given.run("run", "small")
    assert status == 0 and output.count("Adopted from campaign") == 1
    assert told(given) == [("plain-w1-e2-s3", ["worker1"])]


def test_what_was_side_by_side_is_adopted_where_it_would_be_again(given: Workplace) -> None:
    given.matrix(PLAIN.replace("epochs: [2]", "epochs: [1, 2]"))
    assert given.run("run", "small", "--side-by-side")[0] == 0
    assert sorted(told(given)) == [("plain-w1-e1-s1", ["worker1"]), ("plain-w1-e2-s1", ["worker2"])]
    given.forget_calls()
    given.matrix(PLAIN.replace("epochs: [2]", "epochs: [1, 2, 3]"))
    assert given.run("run", "small")[0] == 0
    assert told(given) == [("plain-w1-e3-s1", ["worker1"])]
    records = [read_record(path) for path in given.campaigns()[-1].glob("*/01/record.json")]
    assert sum(record.together is not None for record in records) == 2 and len(records) == 3


def test_the_plan_says_whose_runs_take_turns(given: Workplace) -> None:
    status, output = given.run("plan", "small", "--json")
    said = (
        "Of the runs on fewer than all 2 workers, those of plain take turns over the workers, seed by seed; "
        "those of slow go where the stack puts them."
    )
    content = json.loads(output[output.index("{\n") :])
    assert status == 0 and said in content["notes"]
    assert [run["nodes"] for run in content["runs"]] == [["worker1"], ["worker1", "worker2"], [], []]


def test_on_one_core_the_plan_says_which_runs_of_threads_are_the_same(
    tmp_path: Path, cluster: Cluster
) -> None:
    def notes(threads: int) -> list[str]:
        nodes = {name: node.model_copy(update={"cores": threads}) for name, node in cluster.nodes.items()}
        there = cluster.model_copy(update={"threads": threads, "nodes": nodes})
        matrix = load_matrix("threads").model_copy(update={"needs": Needs()})
        plan = make_plan(matrix, there, "a" * 64)
        workers = {name: nodes[name] for name in cluster.workers}
        return list(plan_as_json(plan, "threads", Estimates(tmp_path, {}), workers)["notes"])

    # Three stacks, two numbers of the tokenizer's threads, five seeds.
    same = "The same on this cluster, so each is made once: 30 runs with threads 1 and threads cluster."
    assert same in notes(1) and any("tokenizer_threads all is one thread here" in each for each in notes(1))
    assert not any("same" in each or "tokenizer" in each for each in notes(2))
