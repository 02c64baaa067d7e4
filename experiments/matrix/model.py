"""Matrices: the runs of a campaign, as a user writes them in YAML.

A matrix has `data`, which is prepared once, `defaults` (fields of the work and the conditions that are the
same in every run) and `axes`, whose combinations are the runs. An axis `data.max_length` varies a setting of
the data; each combination of such values is a data set of its own. `rows` adds runs; `exclude` leaves some
out and gives the reason. `order` sets their order, `ladders` the cells that the report compares to find where
an overhead comes from, `target` the quality whose time the report tells, and `together` the runs that start
at the same moment. `workers: all` means 1, 2 and so on, up to the cluster's number of workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, field_validator

from experiments.matrix.ladders import Ladder
from experiments.matrix.target import Target
from experiments.matrix.workers import GLOBAL_BATCH, Axes, on_workers
from training.registry import DEFAULT
from training.settings import AnyData, Sha256
from training.spec import Conditions, DataSpec, Work, as_the_workload_says, known_workload

#: Fields of the work that the matrix's `workload` and `data` decide.
FROM_DATA: Final = frozenset({*DataSpec.model_fields, "data_digest"})
CONDITION_FIELDS: Final = frozenset(Conditions.model_fields)
WORK_FIELDS: Final = frozenset(Work.model_fields) - FROM_DATA - CONDITION_FIELDS
FIELDS: Final = WORK_FIELDS | CONDITION_FIELDS | {GLOBAL_BATCH}
OF_DATA: Final = "data."  # how axes begin that vary a setting of the data
FROM_CLUSTER: Final = "cluster"  # as a value of threads: as many as the inventory sets


class Exclusion(BaseModel):
    """Runs that are left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    when: Annotated[dict[str, Any], Field(min_length=1)]  # the run has all of these values
    reason: Annotated[str, StringConstraints(min_length=3)]


class Order(BaseModel):
    """The order of runs. A block is the runs of one seed, which are compared with one another."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    arrangement: Literal["random", "written"] = "random"  # within a block
    seed: Annotated[int, Field(ge=0)] = 1  # of the random arrangement
    warm_ups: bool = True  # one for each stack and block, recorded but not counted


class Needs(BaseModel):
    """What a cluster must have for the matrix to say anything."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    threads: Annotated[int, Field(ge=1)] = 1  # of each rank, at least, as the inventory sets them


class Matrix(BaseModel):
    """One matrix file, validated."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)]
    description: str = ""
    workload_digest: Sha256 | None = None  # of the content of a user's own workload; None = it is built in
    workload: str = DEFAULT
    data: AnyData  # the workload's own; values of axes replace them
    defaults: dict[str, Any] = Field(default_factory=dict)
    axes: Axes
    rows: list[dict[str, Any]] = Field(default_factory=list)
    exclude: list[Exclusion] = Field(default_factory=list)
    order: Order = Order()
    needs: Needs = Needs()
    ladders: list[Ladder] = Field(default_factory=list)
    target: Target | None = None
    together: list[list[int]] = Field(default_factory=list)  # seeds whose runs start together, all else equal

    _folder: Path = PrivateAttr(default=Path())
    _workload_folder: Path | None = PrivateAttr(default=None)

    _there_is_one = field_validator("workload")(known_workload)
    _valid = field_validator("data", mode="wrap")(as_the_workload_says)

    @property
    def folder(self) -> Path:
        """The folder of its file; file names in the matrix are relative to it."""
        return self._folder

    @property
    def workload_folder(self) -> Path | None:
        """The folder of the user's own workload; None = it is built in."""
        return self._workload_folder

    @property
    def data_axes(self) -> dict[str, str]:
        """The axes that vary a setting of the data, each with the setting's name."""
        return {axis: axis.removeprefix(OF_DATA) for axis in self.axes if axis.startswith(OF_DATA)}

    def data_spec(self, combination: Mapping[str, Any]) -> DataSpec:
        """Which data a run takes, for which workload: what `prepare` needs.

        Raises:
            pydantic.ValidationError: its settings of the data are not valid.
        """
        values = {name: combination[axis] for axis, name in self.data_axes.items()}
        # As the user gave them: a workload may tell what was given from what was left out.
        data: Any = self.data.model_dump(exclude_unset=True) | values if values else self.data
        return DataSpec(workload_digest=self.workload_digest, workload=self.workload, data=data)

    @property
    def data_specs(self) -> list[DataSpec]:
        """The data sets of all runs that are not excluded (of the first, if all are), each once."""
        return list({spec.digest: spec for spec in map(self.data_spec, self._taken())}.values())

    def data_places(self, spec: DataSpec) -> list[str]:
        """Where the runs that take a data set read it, each place once; see `Conditions.data_place`."""
        usual = Conditions().data_place
        runs = [each for each in self._taken() if self.data_spec(each).digest == spec.digest]
        return sorted({self.fields_of(run).get("data_place", usual) for run in runs})

    def _taken(self) -> list[dict[str, Any]]:
        """The combinations that are not excluded; the first, if all are."""
        combinations = self.combinations()
        return [each for each in combinations if self.excluded(each) is None] or combinations[:1]

    def lying_in(self, folder: Path, workload_folder: Path | None = None) -> Matrix:
        """A copy of the matrix whose file is in `folder`, and its workload in a folder of its own."""
        matrix = self.model_copy()
        matrix._folder, matrix._workload_folder = folder, workload_folder
        return matrix

    @property
    def stacks(self) -> list[str]:
        """The stacks in the order of the file; the first is the baseline of comparisons."""
        return list(self.axes["stack"])

    def on(self, workers: int) -> Matrix:
        """The matrix on a cluster of `workers` workers: `workers: all` is 1 to that number."""
        return self.model_copy(update={"axes": on_workers(self.axes, workers)})

    def combinations(self) -> list[dict[str, Any]]:
        """One mapping from axis to value for each run, in the order of the file."""
        product = [
            dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())
        ]
        return [*product, *(combination for _, combination in self.from_rows())]

    def from_rows(self) -> list[tuple[int, dict[str, Any]]]:
        """The runs of `rows`, each with its row's index; a list in a row means one run for each value."""
        found = []
        for at, row in enumerate(self.rows):
            values = [row[axis] if isinstance(row[axis], list) else [row[axis]] for axis in self.axes]
            found += [(at, dict(zip(self.axes, each, strict=True))) for each in itertools.product(*values)]
        return found

    def fields_of(self, combination: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a run's work and conditions that the matrix sets."""
        return {**self.defaults, **combination}

    def global_batch(self, combination: Mapping[str, Any]) -> int | None:
        """How many samples a run's ranks share in a step; None if each rank's batch is set instead."""
        batch: int | None = self.fields_of(combination).get(GLOBAL_BATCH)
        return batch

    def excluded(self, combination: Mapping[str, Any]) -> str | None:
        """Why a combination is not run; None if it is."""
        given = self.fields_of(combination)
        for exclusion in self.exclude:
            if all(name in given and given[name] == value for name, value in exclusion.when.items()):
                return exclusion.reason
        return None

    def content(self) -> dict[str, Any]:
        """Everything that decides the runs: all but the description, its needs and what only reports use."""
        return self.model_dump(mode="json", exclude={"description", "needs", "ladders", "target"})
