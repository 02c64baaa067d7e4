"""Every workload on every stack, wherever its ranks are; scripts of other people, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import parquet

from experiments.cluster.abilities import takes_some_slots
from experiments.matrix.loading import MATRICES
from tests.e2e.matrices import STACKS, newest_records
from tests.e2e.testbeds import Testbed
from tests.packages import copy_of_installed
from tests.stacks import ROOT
from training.evaluation import PREDICTIONS

pytestmark = pytest.mark.wide

OWN = "tests/unit/training/workloads/points"  # a user's workload
#: For each workload: its matrix, and what makes its data little.
LITTLE: dict[str, tuple[Path, dict[str, Any]]] = {
    "text-classification": (MATRICES / "quick.yml", {"max_length": 64, "vocabulary": 4000}),
    "causal-lm": (MATRICES / "causal-lm.yml", {}),
    "image-classification": (MATRICES / "image-classification.yml", {}),
    "points": (ROOT / f"{OWN}.yml", {}),
}
SIZES = {"train": 320, "validation": 80, "test": 40}
#: What else is asked of each run, so that it is seen on every stack.
KEPT = {"save": "best", "predictions": True, "loader_workers": 1}
SLOTS = 2  # of each worker of the crowd
#: Workers, and slots on each; and the stacks that can be there.
PLACES = {
    (workers, slots): [each for each in STACKS if workers == 1 or slots == SLOTS or takes_some_slots(each)]
    for workers, slots in ((1, 1), (2, 1), (4, 1), (2, 2))
}


@pytest.mark.parametrize("workload", LITTLE)
def test_equal_work_gives_equal_weights_wherever_its_ranks_are(crowd: Testbed, workload: str) -> None:
    shipped, little = LITTLE[workload]
    matrix = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    name = f"everywhere-{workload}"
    matrix |= {"name": name, "data": matrix["data"] | SIZES | little, "order": {"warm_ups": False}}
    matrix["defaults"] |= {"batch_per_worker": 8, "warmup_steps": 2} | KEPT
    if shipped.stem == Path(OWN).stem:
        matrix["workload"] = f"./{OWN}"
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
    for record in newest_records(crowd, name):
        work = record["specification"]["work"]
        assert record["status"] == "ok", record["reason"]
        place = work["workers"], work["slots_per_worker"]
        digests[place][record["specification"]["stack"]] = record["weights_digest"]
        for split in ("validation", "test"):
            predictions = parquet.read_table(outputs(crowd, record) / PREDICTIONS.format(split=split))
            assert predictions.num_rows == SIZES[split]
        last = record["epochs"][-1]
        counted = {"validation": last["validation_count"], "test": last["test"]["count"]}
        assert counted == {split: SIZES[split] for split in counted}
    for place, found in digests.items():
        assert set(found) == set(PLACES[place]), place
    assert set(digests[2, 2]) == set(digests[1, 1]) == set(STACKS)
    weights = {place: set(found.values()) for place, found in digests.items()}
    assert weights[2, 2] == weights[4, 1]
    assert {len(found) for found in weights.values()} == {1}
    assert len(set.union(*weights.values())) == 3, "one rank, two and four"


@pytest.mark.parametrize(
    ("script", "said"),
    [("test_sync.py", "Test Distributed `no_sync` context manager"), ("test_script.py", "Num processes: 2")],
)
def test_scripts_that_nobody_here_wrote_run_on_every_stack(crowd: Testbed, script: str, said: str) -> None:
    # Those by which the package accelerate is tested; test_script.py fails on four ranks wherever it is run.
    folder = crowd.root / f"accelerate-{script}"
    copy_of_installed("accelerate", folder)
    name = script.removesuffix(".py").replace("_", "-")
    matrix = {
        "name": name,
        "script": f"accelerate/test_utils/scripts/{script}",
        "data": {"include": ["accelerate"], "train": 64},
        # Without it accelerate joins ranks only on GPUs.
        "defaults": {"batch_per_worker": 8, "rank_environment": {"ACCELERATE_USE_CPU": "true"}},
        "axes": {"stack": STACKS, "workers": [1], "slots_per_worker": [SLOTS], "epochs": [1], "seed": [1]},
        "rows": [{"stack": PLACES[2, 1], "workers": 2, "slots_per_worker": 1, "epochs": 1, "seed": 1}],
        "order": {"warm_ups": False},
    }
    path = folder / f"{name}.yml"
    path.write_text(yaml.safe_dump(matrix), encoding="utf-8")
    crowd.make("matrix", "report", f"MATRIX={path}")

    made = newest_records(crowd, name)
    assert len(made) == len(STACKS) + len(PLACES[2, 1])
    assert {record["status"] for record in made} == {"ok"}
    for record in made:
        logs = outputs(crowd, record).rglob("*.log")
        assert said in "".join(path.read_text(encoding="utf-8") for path in logs), record["run_id"]
    campaign = crowd.root / "results" / name / made[0]["campaign"]
    assert "Equal work is not proven" in (campaign / "report.md").read_text(encoding="utf-8")


def outputs(testbed: Testbed, record: dict[str, Any]) -> Path:
    """The folder of what a run left behind."""
    run = f"{record['matrix']}/{record['campaign']}/{record['run_id']}/{record['attempt']:02d}"
    return testbed.root / "results" / run / "outputs"
