"""Matrices: which runs a campaign consists of, as a person writes them in YAML.

A matrix has the data that is prepared once, `defaults` (fields of the work and of the conditions that are the
same in every run), and `axes`, whose combinations are the runs; `rows` are runs besides, and `exclude` says
which of all these are not made, and why. `order` says how they follow one another, `ladders` which cells the
report holds against one another to say where an overhead comes from, `together` which runs begin at once.
`workers: all` is 1, 2 and so on up to as many as the cluster has.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, ValidationError

from experiments.errors import UserError
from experiments.rungs import Ladder, ladder_faults
from experiments.seeds import seed_faults
from experiments.workers import GLOBAL_BATCH, Axes, batch_fault, most_workers, on_workers, with_share
from training.spec import Conditions, DataSpec, RunSpec, Work, explain

MATRICES: Final = Path(__file__).parent / "matrices"
REQUIRED_AXES: Final = ("stack", "workers", "epochs", "seed")
FROM_DATA: Final = frozenset({"data", "data_digest"})  # of the work, but the matrix's `data` decides them
WORK_FIELDS: Final = frozenset(Work.model_fields) - FROM_DATA
CONDITION_FIELDS: Final = frozenset(Conditions.model_fields)
FIELDS: Final = WORK_FIELDS | CONDITION_FIELDS | {GLOBAL_BATCH}
FROM_CLUSTER: Final = "cluster"  # as a value of threads: as many as the cluster's inventory says
NO_DIGEST: Final = "0" * 64  # stands in for the data set's digest while a matrix is only validated

Place = tuple[str | int, ...]


class Exclusion(BaseModel):
    """Runs that are not made."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    when: Annotated[dict[str, Any], Field(min_length=1)]  # all of these values
    reason: Annotated[str, StringConstraints(min_length=3)]


class Order(BaseModel):
    """How runs follow one another. A block is the runs of one seed, which are compared with one another."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    arrangement: Literal["random", "written"] = "random"  # within a block
    seed: Annotated[int, Field(ge=0)] = 1  # of the random arrangement
    warm_ups: bool = True  # one for each stack and block, recorded and not counted


class Matrix(BaseModel):
    """One matrix file, validated."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=60)]
    description: str = ""
    data: DataSpec
    defaults: dict[str, Any] = Field(default_factory=dict)
    axes: Axes
    rows: list[dict[str, Any]] = Field(default_factory=list)
    exclude: list[Exclusion] = Field(default_factory=list)
    order: Order = Order()
    ladders: list[Ladder] = Field(default_factory=list)
    together: list[list[int]] = Field(default_factory=list)  # seeds whose runs, all else equal, begin at once

    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """Where its file lies: names of files in it are relative to this."""
        return self._folder

    @property
    def stacks(self) -> list[str]:
        """The stacks in the order of the file; the first is the baseline of comparisons."""
        return list(self.axes["stack"])

    def on(self, workers: int) -> Matrix:
        """The matrix on a cluster of so many workers: `workers: all` is 1 to that number."""
        return self.model_copy(update={"axes": on_workers(self.axes, workers)})

    def combinations(self) -> list[dict[str, Any]]:
        """One mapping from axis to value for each run, in the order in which they are written."""
        product = [
            dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())
        ]
        return [*product, *(combination for _, combination in self.from_rows())]

    def from_rows(self) -> list[tuple[int, dict[str, Any]]]:
        """The runs of `rows`, each with its row's place: a list in a row stands for a run with each value."""
        found = []
        for at, row in enumerate(self.rows):
            values = [row[axis] if isinstance(row[axis], list) else [row[axis]] for axis in self.axes]
            found += [(at, dict(zip(self.axes, each, strict=True))) for each in itertools.product(*values)]
        return found

    def excluded(self, combination: dict[str, Any]) -> str | None:
        """Why a combination is not run; None if it is."""
        given = {**self.defaults, **combination}
        for exclusion in self.exclude:
            if all(name in given and given[name] == value for name, value in exclusion.when.items()):
                return exclusion.reason
        return None

    def content(self) -> dict[str, Any]:
        """What decides the runs: everything but the description and how the report reads them."""
        # A matrix that says nothing of users is the same as before there were any.
        without = {"description", "ladders"} | ({"together"} if not self.together else set())
        return self.model_dump(mode="json", exclude=without)


def load_matrix(name_or_path: str) -> Matrix:
    """The matrix of that name in experiments/matrices/, or at that path.

    Raises:
        UserError: there is none, or it is not valid.
    """
    path = _find(name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"The matrix {path} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"The matrix {path} is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from error
    content, lines = _parse(text, path)
    try:
        matrix = Matrix.model_validate(content)
    except ValidationError as error:
        raise UserError(explain(error, _where(path, lines, _places(error)))) from error
    if matrix.name != path.stem:
        # Results lie in results/<name>/: two files of one name would share a folder.
        raise UserError(
            f"{_where(path, lines, [('name',)])}: the matrix is named {matrix.name}, its file {path.name}; "
            "name both alike."
        )
    _check_fields(matrix, path, lines)
    _check_rows(matrix, path, lines)
    _check_values(matrix, path, lines)
    for place, said in ladder_faults(matrix.ladders, list(matrix.axes), matrix.combinations()):
        raise UserError(f"{_where(path, lines, [place])}: {said}")
    for at, said in seed_faults(matrix.together, matrix.on(1).combinations()):
        raise UserError(f"{_where(path, lines, [('together', at)])}: {said}")
    matrix._folder = path.parent
    return matrix


def run_fields(matrix: Matrix, combination: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the work (a global batch as it stands) and of the conditions for one combination."""
    given = {**matrix.defaults, **combination}
    work = {name: value for name, value in given.items() if name in WORK_FIELDS | {GLOBAL_BATCH}}
    conditions = {
        name: value
        for name, value in given.items()
        if name in CONDITION_FIELDS and (name, value) != ("threads", FROM_CLUSTER)
    }
    return work, conditions


def _find(name_or_path: str) -> Path:
    named = MATRICES / f"{name_or_path}.yml"
    if "/" not in name_or_path and named.is_file():
        return named
    path = Path(name_or_path)
    if path.is_file():
        return path
    known = ", ".join(sorted(file.stem for file in MATRICES.glob("*.yml")))
    raise UserError(
        f"There is no matrix {name_or_path!r}: it is neither a file "
        f"nor the name of one in experiments/matrices/ ({known})."
    )


def _parse(text: str, path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """The file's content, and the line on which each of its entries stands."""
    lines: dict[Place, int] = {}
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{path}{line}: not YAML: {error.problem}.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {error}.") from error
    if not isinstance(content, dict) or node is None:
        raise UserError(
            f"{path}: a matrix is a mapping with name, data and axes; see experiments/matrices/quick.yml."
        )
    _walk(node, (), lines, path)
    return content, lines


def _walk(node: yaml.Node, place: Place, lines: dict[Place, int], path: Path) -> None:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*place, str(key.value))
            if inner in lines:
                # YAML would silently take the last one.
                line = key.start_mark.line + 1
                raise UserError(f"{path}, line {line}: {_dotted(inner)} is there twice; keep one.")
            lines[inner] = key.start_mark.line + 1
            _walk(value, inner, lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*place, index), lines, path)


def _check_fields(matrix: Matrix, path: Path, lines: dict[Place, int]) -> None:
    missing = [axis for axis in REQUIRED_AXES if axis not in matrix.axes]
    if missing:
        raise UserError(
            f"{_where(path, lines, [('axes',)])}: axes lacks {', '.join(missing)}; "
            f"every matrix has {', '.join(REQUIRED_AXES)}, if only with one value."
        )
    for part, allowed in (("axes", FIELDS | {"stack"}), ("defaults", FIELDS)):
        for name in getattr(matrix, part):
            where = _where(path, lines, [(part, name)])
            if name in FROM_DATA:
                raise UserError(f"{where}: {part}.{name} comes from `data` at the top; take it out.")
            if name not in allowed:
                raise UserError(
                    f"{where}: {part}.{name} is no field of the work or the conditions; "
                    f"there are {_list(allowed)}."
                )
            if part == "defaults" and name in matrix.axes:
                raise UserError(f"{where}: {name} stands under defaults and under axes; keep one.")
    for axis, values in matrix.axes.items():
        where = _where(path, lines, [("axes", axis)])
        if not values:
            raise UserError(f"{where}: axes.{axis} is empty; give at least one value.")
        texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
        double = next((text for text in texts if texts.count(text) > 1), None)
        if double is not None:
            raise UserError(f"{where}: axes.{axis} has {double} twice; each run is made once.")


def _check_rows(matrix: Matrix, path: Path, lines: dict[Place, int]) -> None:
    for at, row in enumerate(matrix.rows):
        if set(row) != set(matrix.axes):
            raise UserError(
                f"{_where(path, lines, [('rows', at)])}: a row gives each axis its value "
                f"({', '.join(matrix.axes)}), and this one has {', '.join(row)}; a field that differs only "
                "here is made an axis with one value."
            )
        empty = next((axis for axis, value in row.items() if value == []), None)
        if empty is not None:
            where = _where(path, lines, [("rows", at, empty)])
            raise UserError(f"{where}: {empty} is an empty list; give it a value.")
    matrix = matrix.on(most_workers([*matrix.rows, *(exclusion.when for exclusion in matrix.exclude)]))
    combinations = matrix.combinations()
    for at, combination in matrix.from_rows():
        if combinations.count(combination) > 1:
            raise UserError(
                f"{_where(path, lines, [('rows', at)])}: this row is there already, in the axes or among the "
                "rows; each run is made once."
            )
    for at, exclusion in enumerate(matrix.exclude):
        if not any(matrix.excluded(combination) == exclusion.reason for combination in combinations):
            raise UserError(
                f"{_where(path, lines, [('exclude', at)])}: nothing is excluded by this: no run has "
                f"{', '.join(f'{name}={value}' for name, value in exclusion.when.items())}."
            )


def _check_values(matrix: Matrix, path: Path, lines: dict[Place, int]) -> None:
    matrix = matrix.on(1)  # what only more workers can't do is found when the cluster is known
    for combination in matrix.combinations():
        fault = batch_fault({**matrix.defaults, **combination})
        if fault is not None:
            where = _where(path, lines, [_origin(matrix, combination, (GLOBAL_BATCH,))])
            raise UserError(f"{where}: {fault}")
        work, conditions = run_fields(matrix, combination)
        content = {
            "stack": combination["stack"],
            "work": {**with_share(work), "data": matrix.data, "data_digest": NO_DIGEST},
            "conditions": conditions,
        }
        try:
            RunSpec.model_validate(content)
        except ValidationError as error:
            places = [_origin(matrix, combination, place) for place in _places(error)]
            where = _where(path, lines, places)
            if not any(places):
                where += f" (with {', '.join(f'{name}={value}' for name, value in combination.items())})"
            raise UserError(explain(error, where)) from error


def _origin(matrix: Matrix, combination: dict[str, Any], place: Place) -> Place:
    """Where in the file the value stands that the specification has at `place`."""
    inner = place[1:] if place and place[0] in ("work", "conditions") else place
    if not inner:
        return ()
    name = str(inner[0])
    row = next((at for at, made in matrix.from_rows() if made == combination), None)
    if row is not None and name in combination and combination[name] not in matrix.axes[name]:
        return ("rows", row, name, *inner[1:])
    if name in combination:
        return ("axes", name, matrix.axes[name].index(combination[name]), *inner[1:])
    return ("defaults", *inner)


def _places(error: ValidationError) -> list[Place]:
    return [fault["loc"] for fault in error.errors(include_url=False)]


def _where(path: Path, lines: dict[Place, int], places: list[Place]) -> str:
    """`path`, and the lines on which `places` stand, or the entries around those that are missing."""
    found = sorted({_line(lines, place) for place in places if place})
    if not found:
        return str(path)
    return f"{path}, line{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def _line(lines: dict[Place, int], place: Place) -> int:
    while place and place not in lines:
        place = place[:-1]
    return lines.get(place, 1)


def _dotted(place: Place) -> str:
    return ".".join(map(str, place))


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
