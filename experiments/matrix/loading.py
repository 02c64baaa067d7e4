"""Reading a matrix's file; its faults are reported with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from experiments.matrix.ladders import ladder_faults
from experiments.matrix.model import FIELDS, FROM_DATA, OF_DATA, Matrix
from experiments.matrix.recipes import RecipeError, Recipes, expanded
from experiments.matrix.seeds import WARM_UP_SEEDS, seed_faults
from experiments.matrix.specification import make_specification
from experiments.matrix.target import target_fault
from experiments.matrix.workers import GLOBAL_BATCH, batch_fault, most_workers
from experiments.util.errors import UserError
from experiments.util.numbered_yaml import NumberedYaml, Place, read_mapping
from experiments.util.paths import EXPERIMENTS
from training.errors import WorkloadError
from training.registry import Outside, register
from training.spec import explain

MATRICES: Final = EXPERIMENTS / "matrices"
SCRIPT: Final = "script"  # the workload
SIMULATED: Final = "simulated_step_ms"
PROGRAM: Final = "program"
EMPTY: Final = "empty"
REQUIRED_AXES: Final = ("stack", "workers", "epochs", "seed")
WHAT: Final = "a matrix is a mapping with name, data and axes; see experiments/matrices/quick.yml."


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
    file = read_mapping(text, path, WHAT)
    outside = _outside_workload(file, path.parent)
    known = {} if outside is None else {"workload": outside.name, "workload_digest": outside.digest}
    try:
        matrix = Matrix.model_validate(_with_recipes(_with_script(file) | known, file))
    except ValidationError as error:
        raise UserError(explain(error, file.where(*_places(error)))) from error
    if matrix.name != path.stem:
        # Results are in results/<name>/: two matrices with the same name would share a folder.
        raise UserError(
            f"{file.where(('name',))}: the matrix is named {matrix.name}, its file {path.name}; "
            "give both the same name."
        )
    _check_fields(matrix, file)
    _check_rows(matrix, file)
    on_one = matrix.on(1)  # faults that only more workers have are found once the cluster is known
    combinations = on_one.combinations()
    _check_values(on_one, combinations, file)
    for place, fault in ladder_faults(matrix.ladders, list(matrix.axes), matrix.combinations()):
        raise UserError(f"{file.where(place)}: {fault}")
    for at, fault in seed_faults(matrix.together, combinations):
        raise UserError(f"{file.where(('together', at))}: {fault}")
    if matrix.target is not None:
        wrong_way = target_fault(matrix.target, [spec.data for spec in on_one.data_specs])
        if wrong_way is not None:
            raise UserError(f"{file.where(('target',))}: {wrong_way}")
    return matrix.lying_in(path.parent, None if outside is None else outside.folder)


def _with_script(file: NumberedYaml) -> dict[str, Any]:
    """The content; `script: train.py` is short for the workload of that name, with its `data.script`."""
    content = dict(file.content)
    if "script" not in content:
        return content
    script, data = content.pop("script"), content.setdefault("data", {})
    where = file.where(("script",))
    if "workload" in content or (isinstance(data, dict) and "script" in data):
        raise UserError(
            f"{where}: script stands for workload: script with its data.script; keep one of them."
        )
    if isinstance(data, dict):
        content["data"] = data | {"script": script}
    return content | {"workload": SCRIPT}


def _with_recipes(content: dict[str, Any], file: NumberedYaml) -> dict[str, Any]:
    """The content; `recipes` and `design` are short for axes and rows."""
    if content.keys().isdisjoint(Recipes.model_fields):
        return content
    try:
        return expanded(content)
    except RecipeError as error:
        raise UserError(f"{file.where(error.place)}: {error}") from error


def _outside_workload(file: NumberedYaml, folder: Path) -> Outside | None:
    """The user's own workload that the matrix in `folder` names by its path; None = it names none."""
    if "workload_digest" in file.content:
        raise UserError(
            f"{file.where(('workload_digest',))}: workload_digest is found out, not given; remove it."
        )
    named = file.content.get("workload")
    if not (isinstance(named, str) and named.startswith((".", "/"))):
        return None
    try:
        return register(folder / named)
    except WorkloadError as error:
        raise UserError(f"{file.where(('workload',))}: {error}") from error


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


def _check_fields(matrix: Matrix, file: NumberedYaml) -> None:
    missing = [axis for axis in REQUIRED_AXES if axis not in matrix.axes]
    if missing:
        raise UserError(
            f"{file.where(('axes',))}: axes lacks {', '.join(missing)}; "
            f"every matrix has {', '.join(REQUIRED_AXES)}, even if only with one value."
        )
    of_data = frozenset(type(matrix.data).model_fields)
    for part, allowed in (("axes", FIELDS | {"stack"}), ("defaults", FIELDS)):
        for name in getattr(matrix, part):
            written = _written(file, (part, name))
            where = file.where(written)
            if name.startswith(OF_DATA) and part == "axes":
                if name.removeprefix(OF_DATA) not in of_data:
                    raise UserError(
                        f"{where}: axes.{name} is not a setting of the data of {matrix.workload}; "
                        f"its settings are {_list(of_data)}."
                    )
                continue
            if name in FROM_DATA or name.startswith(OF_DATA):
                top = "workload" if name.startswith("workload") else "data"
                axis = "; an axis names a setting, as data.train does" if name == "data" else ""
                raise UserError(f"{where}: {part}.{name} comes from `{top}` at the top; remove it{axis}.")
            if name not in allowed:
                raise UserError(
                    f"{where}: {written[0]}.{name} is not a field of the work or the conditions; "
                    f"the fields are {_list(allowed)}."
                )
            if part == "defaults" and name in matrix.axes:
                raise UserError(f"{where}: {name} is under both defaults and axes; keep one.")
    for axis, values in matrix.axes.items():
        where = file.where(("axes", axis))
        if not values:
            raise UserError(f"{where}: axes.{axis} is empty; give at least one value.")
        texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
        double = next((text for text in texts if texts.count(text) > 1), None)
        if double is not None:
            raise UserError(f"{where}: axes.{axis} has {double} twice; each run is made once.")


def _check_rows(matrix: Matrix, file: NumberedYaml) -> None:
    for at, row in enumerate(matrix.rows):
        if set(row) != set(matrix.axes):
            raise UserError(
                f"{file.where(('rows', at))}: a row gives every axis a value "
                f"({', '.join(matrix.axes)}), but this one has {', '.join(row)}; to vary a field only "
                "here, make it an axis with one value."
            )
        empty = next((axis for axis, value in row.items() if value == []), None)
        if empty is not None:
            where = file.where(("rows", at, empty))
            raise UserError(f"{where}: {empty} is an empty list; give it a value.")
    matrix = matrix.on(most_workers([*matrix.rows, *(exclusion.when for exclusion in matrix.exclude)]))
    combinations = matrix.combinations()
    for at, combination in matrix.from_rows():
        if combinations.count(combination) > 1:
            raise UserError(
                f"{file.where(('rows', at))}: this row repeats a run of the axes or of another "
                "row; each run is made once."
            )
    for at, exclusion in enumerate(matrix.exclude):
        if not any(matrix.excluded(combination) == exclusion.reason for combination in combinations):
            raise UserError(
                f"{file.where(('exclude', at))}: this excludes nothing: no run has "
                f"{', '.join(f'{name}={value}' for name, value in exclusion.when.items())}."
            )


def _check_values(matrix: Matrix, combinations: list[dict[str, Any]], file: NumberedYaml) -> None:
    real = {matrix.fields_of(combination).get(SIMULATED) is None for combination in combinations}
    if len(real) > 1:
        raise UserError(
            f"{file.where(('axes', SIMULATED))}: {SIMULATED} has null beside a time, but simulated runs and "
            "real training are never in one campaign; make two matrices."
        )
    programs = {matrix.fields_of(combination).get(PROGRAM) for combination in combinations}
    if programs == {EMPTY}:
        where = file.where(_origin(matrix, combinations[0], (PROGRAM,), file))
        raise UserError(
            f"{where}: every run starts an empty program, and a bare start stands beside training; make it "
            f"an axis, {PROGRAM}: [training, {EMPTY}]."
        )
    for combination in combinations:
        fault = batch_fault(matrix.fields_of(combination))
        if fault is not None:
            where = file.where(_origin(matrix, combination, (GLOBAL_BATCH,), file))
            raise UserError(f"{where}: {fault}")
        try:
            specification = make_specification(matrix, combination)
        except ValidationError as error:
            raise UserError(explain(error, _where(matrix, combination, error, file))) from error
        seed = specification.work.seed
        if matrix.order.warm_ups and seed >= WARM_UP_SEEDS:
            where = file.where(_origin(matrix, combination, ("seed",), file))
            raise UserError(
                f"{where}: seeds from {WARM_UP_SEEDS:,} on are reserved for warm-ups; take one smaller than "
                f"{seed}, or set `warm_ups: false` under order."
            )


def _where(matrix: Matrix, combination: dict[str, Any], error: ValidationError, file: NumberedYaml) -> str:
    """The lines of the values that are at fault, or else the values of the run."""
    faults, named = _places(error), dict[str, Any]()
    if ("data",) in faults:  # values that are good by themselves contradict one another
        named = {axis: combination[axis] for axis in matrix.data_axes}
        faults += [(axis,) for axis in named]
    places = [_origin(matrix, combination, place, file) for place in faults]
    named = named if any(places) else combination
    told = f" (with {', '.join(f'{name}={value}' for name, value in named.items())})" if named else ""
    return file.where(*places) + told


def _origin(matrix: Matrix, combination: dict[str, Any], place: Place, file: NumberedYaml) -> Place:
    """Where the file sets the value that the specification has at `place`."""
    inner = place[1:] if place and place[0] in ("work", "conditions") else place
    if inner[:1] == ("data",):
        axis = OF_DATA + ".".join(map(str, inner[1:2]))
        if axis not in matrix.data_axes:
            return inner[1:] and inner
        inner = (axis, *inner[2:])
    if not inner:
        return ()
    name = str(inner[0])
    row = next((at for at, made in matrix.from_rows() if made == combination), None)
    if name not in combination:
        return ("defaults", *inner)
    value = combination[name]
    if row is not None and value not in matrix.axes[name]:
        return _written(file, ("rows", row, name, *inner[1:]), value)
    return _written(file, ("axes", name, matrix.axes[name].index(value), *inner[1:]), value)


def _written(file: NumberedYaml, place: Place, *values: Any) -> Place:
    """`place`; if nothing is written there, what stands for it in a recipe, if possible with such a value."""
    if "recipes" not in file.content or place[:2] in file.lines:
        return place
    name = place[2] if place[0] == "rows" else place[1]
    named = [at for at in file.lines if at[:1] == ("recipes",) and at[2:] == (name,)]
    having = [at for at in named if file.content["recipes"][at[1]][name] in values]
    return next(iter(having or named), ("recipes",))


def _places(error: ValidationError) -> list[Place]:
    return [fault["loc"] for fault in error.errors(include_url=False)]


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
