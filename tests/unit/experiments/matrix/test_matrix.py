"""Matrices: which are valid, and the messages about those that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.analysis.dissertation import dissertation
from experiments.campaign.plan import PlannedRun, make_plan, why_not
from experiments.cluster.description import Cluster
from experiments.matrix.loading import MATRICES, load_matrix
from experiments.util.errors import UserError
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace
from training.spec import Work


def write(folder: Path, text: str) -> str:
    path = folder / "small.yml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def cluster(workplace: Workplace) -> Cluster:
    return Cluster.model_validate_json((workplace.cluster_folder / "cluster.json").read_bytes())


def test_quick_is_what_the_issue_asks_for(cluster: Cluster) -> None:
    matrix = load_matrix("quick")
    assert [(c["stack"], c["workers"]) for c in matrix.combinations()] == [
        ("ddp", 1),
        ("ddp", 2),
        ("spark", 1),
        ("spark", 2),
        ("determined", 1),
        ("determined", 2),
    ]
    assert matrix.data.train == 4000 and matrix.data.validation == 1000
    plan = make_plan(matrix, cluster, "a" * 64)
    run = next(run for run in plan if run.written == 0)
    assert (
        len(plan) == 6
        and run.specification.work.warmup_steps == 20
        and run.specification.conditions.threads == 1
    )
    assert run.cannot_run == "ddp is not on this cluster."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("description:", "descripton:", "line 3 is not valid: descripton: is not a known setting."),
        ("workers: [1, 2]", "workers: [1, two]", "line 8 is not valid: work.workers: input should be"),
        ("  seed: [1]\n", "", "line 6: axes lacks seed"),
        ("axes:", "axis:", "axes: is missing"),
        ("warmup_steps: 2", "warmup: 2", "line 5: defaults.warmup is not a field"),
        ("1.0e-3", "1e-3", "line 5 is not valid: work.learning_rate: input should be a valid number"),
        ("seed: [1]\n", "seed: [1]\n  seed: [2]\n", "line 11: axes.seed is set twice"),
        ("workers: [1, 2]", "workers: [2, 2]", "line 8: axes.workers has 2 twice"),
        ("workers: [1, 2]", "workers: []", "line 8: axes.workers is empty"),
        ("warmup_steps: 2", "epochs: 2", "line 5: epochs is under both defaults and axes"),
        ("warmup_steps: 2", "data_digest: x", "line 5: defaults.data_digest comes from `data`"),
        ("train: 64", "train: many", "line 4 is not valid: data.train: input should be a valid integer"),
        ("name: small", "name: other", "line 2: the matrix is named other, its file small.yml"),
        ("axes:", "axes: [", "not YAML"),
        ("warmup_steps: 2", "link_rate: 2026-02-30", "line 5: not YAML: '2026-02-30' is not a valid YAML "),
        ("seed: [1]", "seed: [0x_]", "line 10: not YAML: '0x_' is not a valid YAML int; put it in"),
        ("seed: [1]", "seed: [!!bool maybe]", "line 10: not YAML: 'maybe' is not a valid YAML bool"),
        ("seed: [1]", 'seed: [!!int ""]', "line 10: not YAML: '' is not a valid YAML int"),
        ("seed: [1]", "seed: [!!timestamp x]", "line 10: not YAML: 'x' is not a valid YAML timestamp"),
        ("workers: [1, 2]", "workers: 2", "line 8 is not valid: axes.workers: input should be a valid list"),
        ("stack: [plain, slow]", "stack: [Plain]", "line 7 is not valid: stack: "),
        ("warmup_steps: 2", "model: {hidden: 3}", "hidden (3) must be a multiple of heads (2)"),
        ("workers: [1, 2]", "workers: [1, all]", "line 8 is not valid: work.workers: input should be"),
        ("warmup_steps: 2", "global_batch: many", "line 5: global_batch must be a whole number of samples"),
        ("seed: [1]\n", "seed: [1]\n  global_batch: [8, 0]\n", "line 11: global_batch must be a whole"),
        ("warmup_steps: 2", "global_batch: 8, batch_per_worker: 4", "line 5: global_batch decides batch_"),
        ("warmup_steps: 2", "last_batch: drop, batch_per_worker: 50", "(with stack=plain, workers=2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in MATRIX
    with pytest.raises(UserError) as raised:
        load_matrix(write(tmp_path, MATRIX.replace(old, new, 1)))
    assert said in str(raised.value)
    assert "small.yml" in str(raised.value) and "\n" not in str(raised.value)


ROWS = """rows:
  - {stack: slow, workers: 1, epochs: 9, seed: 1}
exclude:
  - {when: {stack: slow, workers: 2}, reason: It takes too long.}
"""


def test_a_list_in_a_row_is_a_run_with_each_value(tmp_path: Path) -> None:
    rows = "rows:\n  - {stack: [plain, slow], workers: 1, epochs: 9, seed: [1, 2]}\n"
    added = load_matrix(write(tmp_path, MATRIX + rows)).combinations()[4:]
    assert [(each["stack"], each["epochs"], each["seed"]) for each in added] == [
        ("plain", 9, 1), ("plain", 9, 2), ("slow", 9, 1), ("slow", 9, 2),
    ]  # fmt: skip


def test_rows_come_after_the_axes_and_what_is_excluded_says_why(tmp_path: Path, cluster: Cluster) -> None:
    plan = make_plan(load_matrix(write(tmp_path, MATRIX + ROWS)), cluster, "a" * 64)
    assert [(run.axes["stack"], run.axes["workers"], run.axes["epochs"]) for run in plan] == [
        ("plain", 1, 2), ("plain", 2, 2), ("slow", 1, 2), ("slow", 2, 2), ("slow", 1, 9),
    ]  # fmt: skip
    assert [run.cannot_run for run in plan] == [None, None, None, "It takes too long.", None]
    assert [list(run.axes) for run in plan] == [["stack", "workers", "epochs", "seed"]] * 5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epochs: 9, ", "", "line 13: a row gives every axis a value (stack, workers, epochs"),
        ("epochs: 9", "epochs: 9, padding: max_length", "line 13: a row gives every axis a value"),
        ("epochs: 9", "epochs: 2", "line 13: this row repeats a run"),
        ("epochs: 9", "epochs: nine", "line 13 is not valid: work.epochs: input should be"),
        ("epochs: 9", "epochs: [9, 2]", "line 13: this row repeats a run"),
        ("epochs: 9", "epochs: []", "line 13: epochs is an empty list; give it a value."),
        ("epochs: 9", "epochs: [9, nine]", "line 13 is not valid: work.epochs: input should be"),
        ("workers: 2}", "workers: 7}", "line 15: this excludes nothing: no run has stack=slow,"),
        ("reason: It takes too long.", "why: no", "is not valid: exclude.0.reason: is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_rows_and_exclusions_is_said(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    text = MATRIX + ROWS
    assert old in text
    with pytest.raises(UserError) as raised:
        load_matrix(write(tmp_path, text.replace(old, new, 1)))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("quick", 6),
        ("dissertation", 41),
        ("dissertation-small", 39),
        ("constant-batch", 21),
        ("scaling", 21),
        ("sync", 36),
        ("why", 100),
        ("why-simulated", 196),
        ("startup-hook", 15),
        ("launch", 170),
        ("null-step", 100),
        ("threads", 95),
        ("threads-simulated", 65),
        ("fingerprint", 110),
        ("spark-releases", 45),
        ("libraries", 45),
        ("unlike", 35),
        ("rank-0", 15),
        ("two-users", 26),
        ("bits", 15),
        ("equal-speed", 40),
        ("growth", 63),
        ("fast", 130),
        ("bare-start", 65),
    ],
)
def test_every_matrix_that_is_shipped_is_valid(name: str, runs: int) -> None:
    assert len(load_matrix(name).on(2).combinations()) == runs


def test_every_shipped_matrix_with_several_seeds_repeats_runs_of_its_first_stack() -> None:
    for path in sorted(MATRICES.glob("*.yml")):
        combinations = load_matrix(path.stem).on(2).combinations()
        if len({each["seed"] for each in combinations}) > 1:
            again = [each for each in combinations if each.get("repetition") == 2]
            assert {each["stack"] for each in again} == {combinations[0]["stack"]}, path.stem


def test_users_have_runs_alone_that_are_repeated(cluster: Cluster) -> None:
    plan = make_plan(load_matrix("two-users"), cluster, "a" * 64)
    again = [run for run in plan if not run.warm_up and run.axes["repetition"] == 2]
    assert sorted(run.axes["seed"] for run in again) == [3, 4]
    assert not any(run.together for run in again)
    text = (MATRICES / "two-users.yml").read_text(encoding="utf-8")
    assert f"With warm-ups, {len(plan)} runs" in text


PROGRAMS = "seed: [1]\n  program: [training, empty]\n"


def test_an_empty_program_stands_beside_training(tmp_path: Path) -> None:
    text = MATRIX.replace("seed: [1]\n", PROGRAMS)
    assert len(load_matrix(write(tmp_path, text)).combinations()) == 8
    for old, new, line in (
        ("[training, empty]", "[empty]", 11),
        ("warmup_steps: 2}", "warmup_steps: 2, program: empty}", 5),
    ):
        alone = text.replace(old, new) if line == 11 else MATRIX.replace(old, new)
        with pytest.raises(UserError) as raised:
            load_matrix(write(tmp_path, alone))
        assert f"line {line}: every run starts an empty program" in str(raised.value)
        assert "make it an axis, program: [training, empty]." in str(raised.value)


def test_what_warms_up_trains_and_users_do(tmp_path: Path, cluster: Cluster) -> None:
    text = MATRIX.replace("seed: [1]\n", "program: [empty, training]\n  seed: [1, 2]\n")
    warmed = make_plan(
        load_matrix(write(tmp_path, text.replace("warm_ups: false", "warm_ups: true"))), cluster, "a" * 64
    )
    assert len(warmed) == 16 + 4
    assert not any(run.specification.bare for run in warmed if run.warm_up)
    there = cluster.model_copy(update={"stacks": ["ddp", "spark"]})
    text = text.replace("[plain, slow]", "[ddp, spark]") + "together: [[1, 2]]\n"
    plan = make_plan(load_matrix(write(tmp_path, text)), there, "a" * 64)
    refused = {run.run_id for run in plan if str(run.cannot_run).endswith("an empty program starts alone.")}
    assert refused == {run.run_id for run in plan if run.specification.bare} and len(refused) == 8


def test_the_newest_libraries_take_an_environment_that_all_nodes_have(cluster: Cluster) -> None:
    def reasons(environments: dict[str, str]) -> dict[tuple[str, str], str | None]:
        there = cluster.model_copy(update={"stacks": ["ddp", "spark"], "environments": environments})
        plan = make_plan(load_matrix("libraries"), there, "a" * 64)
        return {(run.specification.stack, str(run.axes["libraries"])): run.cannot_run for run in plan}

    runs = {(stack, libraries) for stack in ("ddp", "spark") for libraries in ("locked", "newest")}
    assert reasons({"newest": "f" * 64}) == dict.fromkeys(runs)
    lacking = reasons({"spark": "f" * 64})
    assert {run for run in runs if lacking[run] is None} == {("ddp", "locked"), ("spark", "locked")}
    assert lacking["ddp", "newest"] == (
        "The nodes have no environment with the newest libraries, or not all the same one; set "
        "environment_newest: true in the inventory, and run make provision for all nodes."
    )


def test_models_are_compiled_where_every_worker_has_a_compiler(tmp_path: Path, cluster: Cluster) -> None:
    def reasons(*lacking: str) -> dict[str, str | None]:
        nodes = {
            name: node.model_copy(update={"compiles": name not in lacking})
            for name, node in cluster.nodes.items()
        }
        there = cluster.model_copy(update={"nodes": nodes})
        plan = make_plan(load_matrix(write(tmp_path, text)), there, "a" * 64)
        return {str(run.axes["compile"]): run.cannot_run for run in plan}

    text = MATRIX.replace("seed: [1]\n", "compile: [false, default]\n  seed: [1]\n")
    assert reasons() == reasons("master") == {"False": None, "default": None}
    first, second = cluster.workers
    for lacking, said in (([first], f"{first} has"), ([first, second], f"{first} and {second} have")):
        assert reasons(*lacking) == {
            "False": None,
            "default": "For compile: default workers need a C++ compiler and Python's headers, and "
            f"{said} none; set environment_compiler: true in the inventory, and run make provision.",
        }


def test_the_dissertations_matrix_has_its_cells_and_its_settings(cluster: Cluster) -> None:
    matrix = load_matrix("dissertation")
    cells = {(c["stack"], c["workers"], c["epochs"]) for c in matrix.combinations()}
    assert cells == {(run.stack, run.workers, run.epochs) for run in dissertation().runs}
    plan = make_plan(matrix, cluster, "a" * 64)
    work = next(run for run in plan if run.written == 0).specification.work
    assert (work.batch_per_worker, work.learning_rate, work.warmup_steps) == (32, 5e-5, 500)
    assert (work.weight_decay, work.steps_per_epoch, work.precision) == (0.01, 782, "fp32")
    assert not work.keeps_checkpoints


@pytest.mark.parametrize(
    "name",
    [
        *("dissertation", "dissertation-small", "quick", "scaling", "constant-batch"),
        *("why", "launch", "fingerprint", "equal-speed", "bare-start", "spark-releases"),
    ],
)
def test_stacks_are_compared_on_plain_settings(cluster: Cluster, name: str) -> None:
    for run in make_plan(load_matrix(name), cluster, "a" * 64):
        work, conditions = run.specification.work, run.specification.conditions
        assert (work.precision, work.gradient_sync, conditions.compile) == ("fp32", "dense", False)
        assert (work.padding, work.grouping, work.dropout_draws) == ("max_length", "none", "torch")
        model = work.model.model_dump()
        assert (model["last_layer"], model["attention_dropout"]) == ("all_tokens", None)
        assert work.simulated_step_ms is None and not work.activation_checkpointing


def test_a_constant_batch_takes_as_many_steps_with_two_workers(cluster: Cluster) -> None:
    plan = make_plan(load_matrix("constant-batch"), cluster, "a" * 64)
    assert {run.specification.work.global_batch for run in plan} == {32}
    assert len({run.specification.work.steps_per_epoch for run in plan}) == 1


def with_workers(cluster: Cluster, number: int) -> Cluster:
    return cluster.model_copy(update={"workers": [f"worker{at + 1}" for at in range(number)]})


@pytest.mark.parametrize("number", [1, 2, 6])
def test_scaling_takes_all_workers_and_the_same_steps_with_any_number(cluster: Cluster, number: int) -> None:
    planned = make_plan(load_matrix("scaling"), with_workers(cluster, number), "a" * 64)
    counting = [run for run in planned if not run.warm_up and run.axes["repetition"] == 1]
    plan = sorted(counting, key=lambda run: run.written)
    works = [run.specification.work for run in plan if run.specification.stack == "ddp"]
    assert [work.workers for work in works] == [at for at in range(1, number + 1) for _ in range(3)]
    assert [run.axes["workers"] for run in plan[: len(works)]] == [work.workers for work in works]
    assert {work.global_batch for work in plan_works(plan)} == {60}
    assert {(work.steps_per_epoch, work.data.train % 60) for work in works} == {(40, 0)}
    assert len({run.run_id for run in plan}) == 3 * 3 * number


def plan_works(plan: list[PlannedRun]) -> list[Work]:
    return [run.specification.work for run in plan]


def test_a_batch_that_cannot_be_shared_equally_is_a_row_with_its_reason(cluster: Cluster) -> None:
    plan = make_plan(load_matrix("scaling"), with_workers(cluster, 7), "a" * 64)
    (reason,) = {run.cannot_run for run in plan if run.axes["workers"] == 7}
    assert reason == "A global batch of 60 samples can't be shared equally by 7 ranks."
    slots = cluster.model_copy(update={"slots_per_worker": 2})  # the cluster's slots count, too
    assert {
        work.batch_per_worker for work in plan_works(make_plan(load_matrix("scaling"), slots, "a" * 64))
    } == {
        30,
        15,
    }


ALL = MATRIX.replace("workers: [1, 2]", "workers: all")


def test_the_seeds_of_warm_ups_are_free(tmp_path: Path, cluster: Cluster) -> None:
    text = MATRIX.replace("seed: [1]", "seed: [1, 1000001]")
    assert len(load_matrix(write(tmp_path, text)).combinations()) == 8  # no warm-ups, no reserved seeds
    text = text.replace("warm_ups: false", "warm_ups: true")
    with pytest.raises(UserError) as raised:
        load_matrix(write(tmp_path, text))
    assert str(raised.value).endswith(
        "small.yml, line 10: seeds from 1,000,000 on are reserved for warm-ups; take one smaller than "
        "1000001, or set `warm_ups: false` under order."
    )
    row = ROWS.replace("seed: 1", "seed: 1000000")
    with pytest.raises(UserError, match="line 13: seeds from 1,000,000 on"):
        load_matrix(write(tmp_path, MATRIX.replace("warm_ups: false", "warm_ups: true") + row))
    largest = text.replace("1000001", "999999")
    plan = make_plan(load_matrix(write(tmp_path, largest)), cluster, "a" * 64)
    assert max(run.specification.work.seed for run in plan) == 1_999_999
    assert len({run.run_id for run in plan}) == len(plan)


def test_all_workers_go_with_rows_and_exclusions(tmp_path: Path, cluster: Cluster) -> None:
    text = ALL + ROWS.replace("epochs: 9", "epochs: 9, workers: 3").replace("workers: 1, ", "")
    text = text.replace("warmup_steps: 2", "batch_per_worker: 8")
    plan = make_plan(load_matrix(write(tmp_path, text)), cluster, "a" * 64)
    assert [(run.axes["stack"], run.axes["workers"], run.axes["epochs"]) for run in plan] == [
        ("plain", 1, 2), ("plain", 2, 2), ("slow", 1, 2), ("slow", 2, 2), ("slow", 3, 9),
    ]  # fmt: skip
    assert plan[3].cannot_run == "It takes too long."
    assert plan[4].cannot_run == "It takes 3 workers and the inventory has 2."
    with pytest.raises(UserError, match=r"line 13 is not valid: work\.workers"):
        load_matrix(write(tmp_path, ALL + ROWS.replace("workers: 1", "workers: 40000000000")))
    with pytest.raises(UserError, match="line 13: this row repeats a run"):
        load_matrix(write(tmp_path, ALL + ROWS.replace("workers: 1, epochs: 9", "workers: 5, epochs: 2")))


def test_what_only_more_workers_cannot_do_is_said_when_the_cluster_is_known(
    tmp_path: Path, cluster: Cluster
) -> None:
    matrix = load_matrix(write(tmp_path, ALL.replace("warmup_steps: 2", "batch_per_worker: 50")))
    with pytest.raises(UserError) as raised:
        make_plan(matrix, cluster, "a" * 64)
    assert str(raised.value).startswith(
        "On this cluster the matrix small (with stack=plain, workers=2, epochs=2, seed=1) is not valid: "
        "work: a batch of 100 (2 ranks of 50) is larger than the 64 samples"
    )


def test_there_is_no_such_matrix() -> None:
    with pytest.raises(UserError, match=r"There is no matrix 'nothing'.*quick"):
        load_matrix("nothing")


def test_the_plan_is_in_order_and_takes_from_the_cluster_what_is_left_open(
    tmp_path: Path, cluster: Cluster
) -> None:
    plan = make_plan(load_matrix(write(tmp_path, MATRIX)), cluster, "a" * 64)
    assert [(run.axes["stack"], run.axes["workers"]) for run in plan] == [
        ("plain", 1), ("plain", 2), ("slow", 1), ("slow", 2),
    ]  # fmt: skip
    assert {run.specification.conditions.pinning for run in plan} == {"one core per worker"}
    assert len({run.run_id for run in plan}) == 4 and all(run.cannot_run is None for run in plan)
    assert plan[0].specification.work.digest == plan[2].specification.work.digest


def test_a_random_order_is_the_same_each_time_and_stays_within_its_block(
    tmp_path: Path, cluster: Cluster
) -> None:
    text = MATRIX.replace("seed: [1]", "seed: [1, 2, 3]")

    def order(seed: int) -> list[PlannedRun]:
        changed = text.replace("{arrangement: written, ", f"{{seed: {seed}, ")
        return make_plan(load_matrix(write(tmp_path, changed)), cluster, "a" * 64)

    written = make_plan(load_matrix(write(tmp_path, text)), cluster, "a" * 64)
    assert [run.block for run in written] == sorted([1, 2, 3] * 4)
    assert order(1) == order(1)
    assert len({tuple(run.run_id for run in order(seed)) for seed in range(5)}) > 1
    # The order differs between blocks, so that drift falls on no particular stack.
    blocks = [[run.written % 4 for run in order(1) if run.block == block] for block in (1, 2, 3)]
    assert len({str(block) for block in blocks}) > 1
    for plan in (order(1), order(2)):
        assert [run.block for run in plan] == sorted([1, 2, 3] * 4)
        assert sorted(run.run_id for run in plan) == sorted(run.run_id for run in written)


def test_a_warm_up_comes_before_a_stacks_first_run_in_a_block_and_is_no_run_that_counts(
    tmp_path: Path, cluster: Cluster
) -> None:
    text = MATRIX.replace("seed: [1]", "seed: [1, 2]").replace("warm_ups: false", "warm_ups: true")
    plan = make_plan(load_matrix(write(tmp_path, text)), cluster, "a" * 64)
    told = [(run.block, run.axes["stack"], run.axes["workers"], run.warm_up) for run in plan]
    assert told[:6] == [
        (1, "plain", 2, True), (1, "plain", 1, False), (1, "plain", 2, False),
        (1, "slow", 2, True), (1, "slow", 1, False), (1, "slow", 2, False),
    ]  # fmt: skip
    assert [row[1:] for row in told[6:]] == [row[1:] for row in told[:6]]
    assert len({run.run_id for run in plan}) == 12
    assert {run.specification.work.epochs for run in plan if run.warm_up} == {1}
    # A stack that is not on this cluster can't be warmed up either.
    lacking = Cluster.model_validate_json(json.dumps(cluster.model_dump() | {"stacks": ["slow"]}))
    plan = make_plan(load_matrix(write(tmp_path, text)), lacking, "a" * 64)
    assert {run.axes["stack"] for run in plan if run.warm_up and run.cannot_run is None} == {"slow"}


def test_runs_on_another_setting_of_the_cluster_are_blocks_of_their_own(
    tmp_path: Path, cluster: Cluster
) -> None:
    text = MATRIX.replace("  seed: [1]", "  seed: [1, 2]\n  link_rate: [null, 1gbit]")
    plan = make_plan(load_matrix(write(tmp_path, text)), cluster, "a" * 64)
    blocks = {run.block: (run.axes["link_rate"], run.axes["seed"]) for run in plan}
    assert sorted(blocks.values(), key=str) == [("1gbit", 1), ("1gbit", 2), (None, 1), (None, 2)]
    assert all((run.axes["link_rate"], run.axes["seed"]) == blocks[run.block] for run in plan)
    assert all((run.cannot_run is None) == (run.axes["link_rate"] is None) for run in plan)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stacks": [], "stacks_missing": {"plain": "Not had."}}, "plain is not on this cluster: Not had."),
        ({"workers": ["worker1"]}, "It takes 2 workers and the inventory has 1."),
        ({"device": "cuda"}, "The matrix asks for the device cpu, and the cluster's is cuda."),
        (
            {"link": {"configured": "1gbit", "measured_mbit": None, "between": []}},
            "The matrix asks for the link rate not limited, and the cluster's is 1gbit.",
        ),
        ({}, None),
    ],
)  # fmt: skip
def test_why_a_run_cannot_be_made(
    tmp_path: Path, cluster: Cluster, changes: dict[str, object], reason: str | None
) -> None:
    specification = make_plan(load_matrix(write(tmp_path, MATRIX)), cluster, "a" * 64)[1].specification
    changed = Cluster.model_validate_json(json.dumps(cluster.model_dump() | changes))
    assert why_not(specification, changed) == reason


def test_too_many_threads_cannot_be_run(tmp_path: Path, cluster: Cluster) -> None:
    text = MATRIX.replace("warmup_steps: 2", "threads: 8")
    plan = make_plan(load_matrix(write(tmp_path, text)), cluster, "a" * 64)
    assert plan[0].cannot_run == (
        "It takes 8 cores of each worker, and worker1 and worker2 have 1 core; plain may put it on any "
        "worker: its role does not say otherwise."
    )


def test_a_matrix_says_how_many_threads_it_needs(cluster: Cluster) -> None:
    def reasons(threads: int | None) -> set[str | None]:
        there = cluster.model_copy(update={"stacks": ["ddp", "spark", "determined"], "threads": threads})
        return {run.cannot_run for run in make_plan(load_matrix("threads"), there, "a" * 64)}

    assert reasons(1) == {
        "The matrix threads needs 2 threads for each rank, and the inventory gives 1 (worker_threads); take "
        "one with larger workers, such as inventory/one-worker."
    }
    assert not any("The matrix threads needs" in str(each) for each in reasons(2) | reasons(None))
    assert "needs" not in load_matrix("threads").content()


def test_the_clusters_variables_of_ranks_are_a_condition_and_a_matrix_may_replace_them(
    tmp_path: Path, cluster: Cluster
) -> None:
    plain = make_plan(load_matrix(write(tmp_path, MATRIX)), cluster, "a" * 64)
    given = cluster.model_copy(update={"rank_environment": {"NCCL_IB_DISABLE": 0}})
    plan = make_plan(load_matrix(write(tmp_path, MATRIX)), given, "a" * 64)
    assert {run.run_id for run in plan}.isdisjoint(run.run_id for run in plain)
    assert all(
        run.specification.conditions.rank_environment == {"NCCL_IB_DISABLE": "0"} and run.cannot_run is None
        for run in plan
    )
    text = MATRIX.replace("  seed: [1]", "  seed: [1]\n  rank_environment: [{}, {NCCL_DEBUG: INFO}]")
    plan = make_plan(load_matrix(write(tmp_path, text)), given, "a" * 64)
    assert {run.run_id for run in plain} < {run.run_id for run in plan}
    assert len(plan) == 2 * len(plain) and all(run.cannot_run is None for run in plan)


def test_users_who_start_together_have_no_slow_worker(tmp_path: Path, cluster: Cluster) -> None:
    text = (
        MATRIX.replace("  seed: [1]", "  seed: [1, 2]\n  slow_worker: [null, 0.5]") + "together: [[1, 2]]\n"
    )
    plan = make_plan(load_matrix(write(tmp_path, text)), cluster, "a" * 64)
    reasons = {(run.axes["workers"], run.axes["slow_worker"]): run.cannot_run for run in plan}
    assert reasons[1, None] is None and reasons[2, None] is None
    assert reasons[2, 0.5] == "Runs that start together can't have a slow worker (slow_worker)."
    assert "must take all 2 workers" in str(reasons[1, 0.5])
