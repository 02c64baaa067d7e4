"""The script of the matrix null-step waits as long as told, and says what its steps took beyond that."""

from __future__ import annotations

import ast
import subprocess
import sys

from experiments.matrix.loading import load_matrix
from experiments.util.paths import REPOSITORY

SCRIPT = REPOSITORY / "experiments" / "matrices" / "null_step.py"


def test_it_waits_prints_and_says_what_was_beyond() -> None:
    command = [
        sys.executable,
        str(SCRIPT),
        "--steps",
        "20",
        "--step-ms",
        "5",
        "--lines",
        "2",
        "--epochs",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("epoch 2, step 20:")] == [
        "epoch 2, step 20: line 1 of 2",
        "epoch 2, step 20: line 2 of 2",
    ]
    assert len(lines) == 2 * (20 * 2 + 1)
    figures = ast.literal_eval(lines[-1].partition(": ")[2])
    assert 0 <= figures["beyond_ms_median"] <= figures["beyond_ms_most"]
    assert 0 < figures["beyond_ms"] <= figures["beyond_ms_most"]


def test_its_matrix_crosses_every_stack_with_what_is_printed() -> None:
    matrix = load_matrix("null-step")
    cells = {(run["stack"], run["model"]["arguments"][-1]) for run in matrix.combinations()}
    assert len(cells) == 3 * len(matrix.stacks) and {lines for _, lines in cells} == {"0", "1", "100"}
