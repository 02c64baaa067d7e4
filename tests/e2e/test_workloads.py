"""Every workload on every stack, wherever its ranks are; scripts of other people, too."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from experiments.cluster.abilities import takes_some_slots
from experiments.matrix.loading import MATRICES
from tests.e2e.matrices import STACKS, records
from tests.e2e.testbeds import Testbed
from tests.packages import copy_of_installed

pytestmark = pytest.mark.wide

#: For each workload: its matrix, and as little data as shows the same.
LITTLE: dict[str, tuple[str, dict[str, Any]]] = {
    "text-classification": ("quick", {"train": 320, "validation": 80, "max_length": 64, "vocabulary": 4000}),
    "causal-lm": ("causal-lm", {"train": 320, "validation": 80}),
    "image-classification": ("image-classification", {"train": 320, "validation": 80}),
}
SLOTS = 2  # of each worker of the crowd
#: Workers, and slots on each; and the stacks that can be there.
PLACES = {
    (workers, slots): [each for each in STACKS if workers == 1 or slots == SLOTS or takes_some_slots(each)]
    for workers, slots in ((1, 1), (2, 1), (4, 1), (2, 2))
}


@pytest.mark.parametrize("workload", LITTLE)
def test_equal_work_gives_equal_weights_wherever_its_ranks_are(crowd: Testbed, workload: str) -> None:
    shipped, little = LITTLE[workload]
    matrix = yaml.safe_load((MATRICES / f"{shipped}.yml").read_text(encoding="utf-8"))
    name = f"everywhere-{shipped}"
    matrix |= {"name": name, "data": matrix["data"] | little, "order": {"warm_ups": False}}
    matrix["defaults"] |= {"batch_per_worker": 8, "warmup_steps": 2}
    alone = {"workers": [1], "slots_per_worker": [1]}
    matrix["axes"] = alone | {"stack": PLACES[1, 1], "epochs": [1], "seed": [1]}
    matrix["rows"] = [
        {"stack": stacks, "workers": workers, "slots_per_worker": slots, "epochs": 1, "seed": 1}
        for (workers, slots), stacks in PLACES.items()
        if workers > 1
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
        assert set(found) == set(PLACES[place]), place
    assert set(digests[2, 2]) == set(digests[1, 1]) == set(STACKS)
    weights = {place: set(found.values()) for place, found in digests.items()}
    assert weights[2, 2] == weights[4, 1]
    assert {len(found) for found in weights.values()} == {1}
    assert len(set.union(*weights.values())) == 3, "one rank, two and four"


@pytest.mark.parametrize("script", ["test_sync.py", "test_script.py"])
def test_scripts_that_nobody_here_wrote_run_on_every_stack(crowd: Testbed, script: str) -> None:
    # Those by which the package accelerate is tested.
    folder = crowd.root / f"accelerate-{script}"
    copy_of_installed("accelerate", folder)
    name = script.removesuffix(".py").replace("_", "-")
    matrix = {
        "name": name,
        "script": f"accelerate/test_utils/scripts/{script}",
        "data": {"include": ["accelerate"], "train": 64},
        "defaults": {"batch_per_worker": 8},
        "axes": {"stack": STACKS, "workers": [2], "slots_per_worker": [SLOTS], "epochs": [1], "seed": [1]},
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
