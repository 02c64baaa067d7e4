"""The JSON schema of matrices, by which editors check them: as the code is, and right about every matrix."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from experiments.matrix.loading import MATRICES
from experiments.matrix.schema import schema

FILE = MATRICES / "schema.json"
POINTS = Path(__file__).parents[2] / "training/workloads/points.yml"
SHIPPED = sorted(MATRICES.glob("*.yml"))

Matrix = dict[str, Any]


def faults(matrix: Matrix) -> list[str]:
    validator = jsonschema.Draft202012Validator(json.loads(FILE.read_text(encoding="utf-8")))
    return [error.message for error in validator.iter_errors(matrix)]


def read(path: Path) -> Matrix:
    content: Matrix = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def test_the_kept_schema_is_the_codes() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    assert json.loads(FILE.read_text(encoding="utf-8")) == schema(), (
        "python -m experiments.matrix.schema > experiments/matrices/schema.json"
    )


@pytest.mark.parametrize("path", [*SHIPPED, POINTS], ids=lambda path: path.stem)
def test_every_matrix_is_valid(path: Path) -> None:
    assert faults(read(path)) == []


def test_a_script_at_the_top_needs_no_workload() -> None:
    axes = {"stack": ["ddp"], "workers": [1], "epochs": [1], "seed": [1]}
    matrix: Matrix = {"name": "mine", "script": "train.py", "data": {"train": 64}, "axes": axes}
    assert faults(matrix) == []
    assert "Additional properties are not allowed ('max_length' was unexpected)" in faults(
        matrix | {"data": {"train": 64, "max_length": 64}}
    )


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_matrix_names_it(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[1] == "# yaml-language-server: $schema=schema.json"


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("quick", {"data.max_length": [64, 128], "data.seed": [1, 2], "data.classes": [None, ["a", "b"]]}),
        ("causal-lm", {"data.block": [64, 128]}),
    ],
)
def test_settings_of_the_data_may_be_axes(name: str, axes: dict[str, Any]) -> None:
    matrix = read(MATRICES / f"{name}.yml")
    assert faults({**matrix, "axes": matrix["axes"] | axes}) == []
    own = read(POINTS)
    assert faults({**own, "axes": own["axes"] | {"data.whatever": [1]}}) == []


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("quick", lambda matrix: matrix.pop("axes"), "'axes' is a required property"),
        ("quick", lambda matrix: matrix["axes"].pop("seed"), "'seed' is a required property"),
        ("quick", lambda matrix: matrix["data"].update(block=64), "'block' was unexpected"),
        ("quick", lambda matrix: matrix["defaults"].update(epoch=3), "'epoch' was unexpected"),
        (
            "quick",
            lambda matrix: matrix["defaults"].update(model={"layers": "two"}),
            "is not valid under any",
        ),
        ("quick", lambda matrix: matrix["axes"].update(schedule=["steep"]), "'steep' is not one of"),
        ("quick", lambda matrix: matrix["axes"].update(threads=["all"]), "is not valid under any"),
        ("quick", lambda matrix: matrix["axes"].update({"data.block": [64]}), "is not valid under any"),
        ("quick", lambda matrix: matrix["axes"].update({"data.max_length": [4]}), "less than the minimum"),
        ("quick", lambda matrix: matrix["axes"].update({"data.max_length": 64}), "is not of type 'array'"),
        (
            "quick",
            lambda matrix: matrix["defaults"].update({"data.train": 64}),
            "'data.train' was unexpected",
        ),
        ("quick", lambda matrix: matrix.update(workload="absent"), "is not valid under any"),
        ("causal-lm", lambda matrix: matrix["data"].update(block=4), "4 is less than the minimum of 8"),
        ("image-classification", lambda matrix: matrix["data"].pop("size"), "'size' is a required property"),
    ],
)
def test_what_is_wrong_is_said(name: str, change: Callable[[Matrix], Any], said: str) -> None:
    matrix = copy.deepcopy(read(MATRICES / f"{name}.yml"))
    change(matrix)
    found = faults(matrix)
    assert any(said in fault for fault in found), found
