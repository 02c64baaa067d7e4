"""Every start of a rank leaves a mark, whatever becomes of it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.training.training_helpers import Datasets, Run, data_spec, run_spec


def marks(out: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / f"starts-{rank}.jsonl").read_text().splitlines()]


def test_each_rank_marks_each_of_its_starts(run: Run, datasets: Datasets) -> None:
    prepared, begun = datasets(data_spec()), time.time()
    spec = run_spec(prepared, data_spec(), workers=2)
    out, statuses = run(spec, prepared.path)
    assert statuses == [0, 0]
    first = [marks(out, rank) for rank in (0, 1)]
    assert [[mark["rank"] for mark in each] for each in first] == [[0], [1]]
    assert all(begun - 1 < each[0]["started"] <= time.time() for each in first)
    run(spec, prepared.path, out)
    second = [marks(out, rank) for rank in (0, 1)]
    assert [len(each) for each in second] == [2, 2]
    assert [each[:1] for each in second] == first
    assert second[0][0]["pid"] != second[0][1]["pid"] and second[0][1]["boot"] == first[0][0]["boot"]


def test_a_start_that_fails_at_once_is_marked_with_who_began_it(
    run: Run, datasets: Datasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = datasets(data_spec())
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    out, statuses = run(run_spec(prepared, data_spec()), prepared.path)
    assert statuses == [1]
    assert [mark["by"] for mark in marks(out, 0)] == ["torchrun, restart 2"]
