"""The specification of a run, made from its matrix and what the cluster decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from experiments.matrix.model import CONDITION_FIELDS, FROM_CLUSTER, WORK_FIELDS, Matrix
from experiments.matrix.workers import share_of
from training.spec import RunSpec

NO_DIGEST: Final = "0" * 64  # stands in for the data set's digest while a matrix is only validated


@dataclass(frozen=True)
class ClusterDefaults:
    """Values for fields that a matrix leaves open."""

    slots_per_worker: int = 1
    conditions: Mapping[str, Any] = field(default_factory=dict)


def make_specification(
    matrix: Matrix,
    combination: Mapping[str, Any],
    data_digest: str = NO_DIGEST,
    defaults: ClusterDefaults = ClusterDefaults(),
) -> RunSpec:
    """The specification of one run.

    Each rank's share of a global batch is rounded down if need be; `why_not_shared` tells when.

    Args:
        matrix: the run's matrix.
        combination: the values of its axes.
        data_digest: of the run's data set.
        defaults: what the cluster decides.

    Raises:
        pydantic.ValidationError: the run is not valid; locations are those in the specification.
    """
    given = matrix.fields_of(combination)
    work = {"slots_per_worker": defaults.slots_per_worker} | {
        name: value for name, value in given.items() if name in WORK_FIELDS
    }
    conditions = dict(defaults.conditions) | {
        name: value
        for name, value in given.items()
        if name in CONDITION_FIELDS and (name, value) != ("threads", FROM_CLUSTER)
    }
    batch = matrix.global_batch(combination)
    if batch is not None:
        work["batch_per_worker"] = share_of(batch, work)
    return RunSpec.model_validate(
        {
            "stack": combination["stack"],
            "work": {**work, **dict(matrix.data_spec(combination)), "data_digest": data_digest},
            "conditions": conditions,
        }
    )
