"""What a search submits: the experiment that the role makes of a run and of the search's file."""

from __future__ import annotations

from typing import Any

import yaml
from trainbed_determined.search import PROGRESS, RESULT

from experiments.campaign import searching
from experiments.records.search import SEARCH
from tests.unit.roles.loading import ROOT, value_of

VARS = "roles/determined/vars/main.yml"
GIVEN: dict[str, Any] = {
    "search_label": "adaptive_asha-20261126T100000Z",
    "search_run_id": "ddp-w2-e2-s1-64f1d056",
    "search_spec": {
        "work": {"workers": 2, "slots_per_worker": 3, "seed": 7},
        "conditions": {"threads": 4, "rank_environment": {"NCCL_IB_DISABLE": "0"}},
    },
    "search_dir": "/srv/shared/searches/s",
    "search_out": "/srv/shared/searches/s/out",
    "search_launch_dir": "/var/lib/trainbed/launches/searches/s",
    "search_data": "/var/lib/trainbed/data/d",
    "determined_checkpoints": "/srv/shared/determined",
    "determined_images": {"worker1": "master:5000/trainbed@sha256:abc"},
}


def experiment(wanted: dict[str, Any]) -> Any:
    return value_of("determined_search_experiment", VARS, **GIVEN, search_wanted=wanted)


def test_the_run_decides_what_the_search_leaves_open() -> None:
    wanted = yaml.safe_load((ROOT / "experiments/search/adaptive_asha.yml").read_text(encoding="utf-8"))
    made = experiment(wanted)
    assert made["resources"] == {"slots_per_trial": 6, "max_slots": 2}
    assert made["reproducibility"] == {"experiment_seed": 7}
    assert made["searcher"] == wanted["searcher"] and "max_time" not in made["searcher"]
    assert made["hyperparameters"] == wanted["hyperparameters"] and made["max_restarts"] == 1
    assert made["entrypoint"].split("--spec ")[1] == (
        "/srv/shared/searches/s/spec.json --data /var/lib/trainbed/data/d --out /srv/shared/searches/s/out"
    )
    assert made["environment"]["image"] == "master:5000/trainbed@sha256:abc"
    assert {"OMP_NUM_THREADS=4", "NCCL_IB_DISABLE=0"} <= set(made["environment"]["environment_variables"])


def test_a_search_is_found_by_its_labels_whatever_its_file_says() -> None:
    made = experiment(
        {"labels": ["mine"], "searcher": {"name": "random"}, "resources": {"slots_per_trial": 1}}
    )
    # `stop` ends what has the first; a search that is submitted again is found by the third.
    assert made["labels"] == ["trainbed", "search", GIVEN["search_label"], "mine"]
    assert made["resources"] == {"slots_per_trial": 1}


def test_both_sides_name_the_files_alike() -> None:
    assert (PROGRESS, RESULT) == (searching.PROGRESS, SEARCH)
    follow = (ROOT / "playbooks/trials.yml").read_text(encoding="utf-8")
    assert f"search_out ~ '/{PROGRESS}'" in follow
