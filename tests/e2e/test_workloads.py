"""Every workload on every stack, wherever its ranks are; scripts of other people, too."""

from __future__ import annotations

import zipfile
from typing import Any

import pytest
import yaml

from experiments.matrix.loading import MATRICES
from tests.e2e.matrices import STACKS, records
from tests.e2e.testbeds import Testbed
from tests.packages import wheel

pytestmark = pytest.mark.wide

#: For each workload: its matrix, and as little data as shows the same.
LITTLE: dict[str, tuple[str, dict[str, Any]]] = {
    "text-classification": ("quick", {"train": 320, "validation": 80, "max_length": 64, "vocabulary": 4000}),
    "causal-lm": ("causal-lm", {"train": 320, "validation": 80}),
    "image-classification": ("image-classification", {"train": 320, "validation": 80}),
}
#: Workers, and slots on each.
PLACES = ((1, 1), (2, 1), (4, 1), (2, 2))


@pytest.mark.parametrize("workload", LITTLE)
def test_equal_work_gives_equal_weights_wherever_its_ranks_are(crowd: Testbed, workload: str) -> None:
    shipped, little = LITTLE[workload]
    matrix = yaml.safe_load((MATRICES / f"{shipped}.yml").read_text(encoding="utf-8"))
    name = f"everywhere-{shipped}"
    matrix |= {"name": name, "data": matrix["data"] | little, "order": {"warm_ups": False}}
    matrix["defaults"] |= {"batch_per_worker": 8, "warmup_steps": 2}
    first, *others = PLACES
    cell = {"stack": STACKS, "epochs": [1], "seed": [1]}
    matrix["axes"] = cell | {"workers": [first[0]], "slots_per_worker": [first[1]]}
    matrix["rows"] = [
        {"stack": STACKS, "workers": workers, "slots_per_worker": slots, "epochs": 1, "seed": 1}
        for workers, slots in others
    ]
    path = crowd.root / f"{name}.yml"
    path.write_text(yaml.safe_dump(matrix), encoding="utf-8")
    crowd.make("matrix", f"MATRIX={path}")

    digests: dict[tuple[int, int], dict[str, str]] = {place: {} for place in PLACES}
    for record in records(crowd, name):
        work = record["specification"]["work"]
        assert record["status"] == "ok", record["reason"]
        place = work["workers"], work["slots_per_worker"]
        digests[place][record["specification"]["stack"]] = record["weights_digest"]
    for place, found in digests.items():
        assert set(found) == set(STACKS), place
        assert len(set(found.values())) == 1, place
    assert digests[2, 2] == digests[4, 1]
    assert len({found[STACKS[0]] for found in digests.values()}) == 3


@pytest.mark.parametrize("script", ["test_sync.py", "test_script.py"])
def test_scripts_that_nobody_here_wrote_run_on_every_stack(crowd: Testbed, script: str) -> None:
    # Those by which the package accelerate is tested.
    folder = crowd.root / "accelerate"
    with zipfile.ZipFile(wheel("accelerate", "1.15.0")) as archive:
        archive.extractall(folder)
    name = script.removesuffix(".py").replace("_", "-")
    matrix = {
        "name": name,
        "script": f"accelerate/test_utils/scripts/{script}",
        "data": {"include": ["accelerate"], "train": 64},
        "defaults": {"batch_per_worker": 8},
        "axes": {"stack": STACKS, "workers": [2], "slots_per_worker": [1], "epochs": [1], "seed": [1]},
        "order": {"warm_ups": False},
    }
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump(matrix), encoding="utf-8")
    crowd.make("matrix", "report", f"MATRIX={path}")

    made = records(crowd, name)
    assert {record["specification"]["stack"]: record["status"] for record in made} == dict.fromkeys(
        STACKS, "ok"
    )
    report = next((crowd.root / "results" / name).glob("*/report.md")).read_text(encoding="utf-8")
    assert "Equal work is not proven" in report
