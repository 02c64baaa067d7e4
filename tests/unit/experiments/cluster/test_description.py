"""What prepare.yml left is checked before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.cluster.description import read_prepared
from experiments.util.errors import UserError
from tests.unit.experiments.made_up_workplace import Workplace
from training.settings import canonical
from training.spec import DataSpec

DATA = {"train": 64, "validation": 100, "seed": 1, "max_length": 16}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MASTER_ADDR": "10.0.0.1"}, "rank_environment: MASTER_ADDR is set by launching or training itself"),
        ({"NCCL_DEBUG": True}, "rank_environment.NCCL_DEBUG: input should be a valid string, not True"),
    ],
)
def test_variables_of_ranks_that_cannot_be_are_refused(
    workplace: Workplace, variables: dict[str, Any], said: str
) -> None:
    spec = DataSpec.model_validate({"data": DATA})
    dataset = {"digest": "d" * 64, "spec": canonical(spec.data)}
    (workplace.cluster_folder / "dataset-1.json").write_text(json.dumps(dataset))
    workplace.cluster(rank_environment={"NCCL_DEBUG": "INFO"})
    assert read_prepared(workplace.cluster_folder, [spec]).cluster.rank_environment == {"NCCL_DEBUG": "INFO"}

    workplace.cluster(rank_environment=variables)
    with pytest.raises(UserError) as raised:
        read_prepared(workplace.cluster_folder, [spec])
    assert str(raised.value).startswith("What the inventory sets is not valid: ") and said in str(
        raised.value
    )


def test_every_data_set_must_be_the_one_that_was_asked_for(workplace: Workplace) -> None:
    specs = [DataSpec.model_validate({"data": DATA | {"max_length": length}}) for length in (16, 8)]
    for number, spec in enumerate(specs, start=1):
        dataset = {"digest": f"{number}" * 64, "spec": canonical(spec.data)}
        (workplace.cluster_folder / f"dataset-{number}.json").write_text(json.dumps(dataset))
    prepared = read_prepared(workplace.cluster_folder, specs)
    assert prepared.data_digests == {spec.digest: f"{number}" * 64 for number, spec in enumerate(specs, 1)}
    with pytest.raises(UserError, match=r"did not prepare the matrix's data set, but another one: .*16"):
        read_prepared(workplace.cluster_folder, specs[::-1])
    with pytest.raises(UserError, match=r"left no readable dataset-3\.json"):
        read_prepared(workplace.cluster_folder, [*specs, specs[0]])
