"""What launches differ in: node by node, and without what changes anyway."""

from __future__ import annotations

from pathlib import Path

from experiments.analysis.analysis import analyse
from experiments.analysis.census import CHANGES, NOT_SET, Differing, launch_differences
from experiments.records.record import Record
from experiments.report.sections.launch import launch_table
from tests.unit.experiments import made_up_records as made_up

Census = dict[str, dict[str, str]]


def record(stack: str, *censuses: Census | None, seed: int = 1) -> Record:
    """A record whose ranks noted these, the first on worker1."""
    whole = made_up.record(stack, len(censuses), 50.0, 60.0, seed)
    ranks = [
        rank.model_copy(update={"census": census}) for rank, census in zip(whole.ranks, censuses, strict=True)
    ]
    return whole.model_copy(update={"ranks": ranks})


def noted(model: str = "fast", **environment: str) -> Census:
    """A census."""
    return {"processor": {"model": model}, "environment": environment}


def test_what_is_the_same_on_every_node_is_no_difference_though_nodes_differ() -> None:
    found = launch_differences(
        {
            "ddp": [record("ddp", noted("fast", OMP="1"), noted("slow", OMP="1"))],
            "spark": [record("spark", noted("fast", OMP="1", LANG="C"), noted("slow", OMP="1", LANG="C"))],
        }
    )
    assert found.differing == [Differing("environment", "LANG", {"ddp": [NOT_SET], "spark": ["C"]})]
    assert found.same == 2 and found.changing == [] and found.compared


def test_nodes_that_only_one_side_used_are_not_compared() -> None:
    found = launch_differences(
        {
            "ddp": [record("ddp", noted("fast"), noted("slow"))],
            "spark": [record("spark", noted("fast"), None)],
        }
    )
    assert found.compared and found.differing == [] and found.same == 1
    assert launch_table(found, []).texts == [["nothing", "", "the same", "the same"]]
    elsewhere = launch_differences(
        {"ddp": [record("ddp", noted(), None)], "spark": [record("spark", None, noted())]}
    )
    assert not elsewhere.compared and launch_table(elsewhere, []).rows == []


def test_runs_under_other_conditions_are_not_mixed() -> None:
    sides = {}
    for stack in ("ddp", "spark"):
        runs = []
        for threads in ("1", "2"):
            one = record(stack, noted(OMP=threads, LANG="C" if stack == "ddp" else "POSIX"))
            runs.append(one.model_copy(update={"conditions_digest": threads * 64}))
        sides[stack] = runs
    found = launch_differences(sides)
    assert found.changing == []
    assert found.differing == [Differing("environment", "LANG", {"ddp": ["C"], "spark": ["POSIX"]})]


def test_what_changes_from_run_to_run_is_named_unless_one_side_does_not_have_it() -> None:
    sides = {
        "ddp": [record("ddp", noted(PORT=f"{seed}"), seed=seed) for seed in (1, 2)],
        "spark": [record("spark", noted(PORT=f"{seed}", SECOND=f"{seed}"), seed=seed) for seed in (1, 2)],
    }
    found = launch_differences(sides)
    assert found.changing == ["environment: PORT"]
    assert found.differing == [Differing("environment", "SECOND", {"ddp": [NOT_SET], "spark": [CHANGES]})]


def test_a_runs_own_names_are_no_difference() -> None:
    runs = [record("ddp", None), record("spark", None)]
    sides = {
        run.specification.stack: [
            record(
                run.specification.stack,
                noted(
                    OUT=f"/shared/runs/{run.run_id}/01",
                    SIMULATED=f"/shared/{run.run_id.replace('-w', '-simulated-w')}/01",
                    ID=f"{at}" * 64,
                ),
            )
        ]
        for at, run in enumerate(runs)
    }
    found = launch_differences(sides)
    assert found.differing == [] and found.same == 4


def test_modules_of_pythons_packages_among_the_libraries_of_earlier_records_are_no_difference() -> None:
    module = {"_C": "/env/4aa8/lib/python3.11/site-packages/torch/_C.cpython-311-x86_64-linux-gnu.so"}
    library = {"libtcmalloc": "/usr/lib/libtcmalloc.so.4"}
    found = launch_differences(
        {
            "ddp": [record("ddp", {"shared libraries": {}})],
            "spark": [record("spark", {"shared libraries": module | library})],
        }
    )
    (only,) = found.differing
    assert only == Differing(
        "shared libraries", "libtcmalloc", {"ddp": [NOT_SET], "spark": ["/usr/lib/libtcmalloc.so.4"]}
    )


def test_categories_that_tell_containers_apart_are_no_difference() -> None:
    label = "system_u:system_r:container_t:s0:{}"
    sides = {
        stack: [record(stack, {"security": {"label": label.format(drawn)}})]
        for stack, drawn in (("ddp", "c1,c900"), ("spark", "c17,c34"))
    }
    assert launch_differences(sides).differing == []
    sides["spark"] = [record("spark", {"security": {"label": "system_u:system_r:spc_t:s0"}})]
    (found,) = launch_differences(sides).differing
    assert found.name == "label"


def test_groups_that_only_some_ranks_noted_are_named_and_not_compared() -> None:
    newer = noted() | {"security": {"AppArmor": "on"}, "network": {}}
    found = launch_differences(
        {"ddp": [record("ddp", noted(), newer)], "spark": [record("spark", newer, newer)]}
    )
    assert (found.differing, found.unnoted, found.same) == ([], ["network", "security"], 1)
    assert launch_table(found, []).after == [
        "Not every rank noted these, as earlier versions did not, and they are not compared: network and "
        "security."
    ]
    # A group in which there is nothing to note is compared.
    outside, inside = noted() | {"security": {"AppArmor": "on"}}, noted() | {"security": {}}
    found = launch_differences({"ddp": [record("ddp", outside)], "spark": [record("spark", inside)]})
    assert found.unnoted == []
    assert found.differing == [Differing("security", "AppArmor", {"ddp": ["on"], "spark": [NOT_SET]})]


def test_records_without_a_census_and_those_of_a_stand_in_are_not_compared(tmp_path: Path) -> None:
    older = record("spark", None)
    assert not launch_differences({"ddp": [record("ddp", noted())], "spark": [older]}).compared
    standin = record("determined", noted("toy")).model_copy(update={"standin": "It is a toy."})
    plan = [made_up.planned(stack, 1) for stack in ("ddp", "spark", "determined")]
    records = [record("ddp", noted(OMP="1")), record("spark", noted(OMP="2")), standin]
    analysis = analyse(made_up.campaign(tmp_path, plan, records))
    assert analysis.launches.sides == ["ddp", "spark"]
    assert launch_table(analysis.launches, analysis.placements).texts == [["environment", "OMP", "1", "2"]]
