"""The JSON schema of matrices, by which editors complete and check them.

`python -m experiments.matrix.schema` prints it (kept in experiments/matrices/schema.json). It knows the
fields, their types and limits, and the settings of the workloads that are built in; what belongs together is
checked when a matrix is loaded.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from experiments.matrix.loading import REQUIRED_AXES, SCRIPT
from experiments.matrix.model import CONDITION_FIELDS, FROM_CLUSTER, OF_DATA, WORK_FIELDS, Matrix
from experiments.matrix.recipes import NOT_IN_RECIPES, Recipes
from experiments.matrix.workers import ALL, GLOBAL_BATCH
from training.registry import DEFAULT, built_in, settings_of
from training.settings import ModelSettings
from training.spec import Conditions, Work

Schema = dict[str, Any]

FIELD_OF_MODELS: Final = "model"


def schema() -> Schema:
    """The schema."""
    found = Matrix.model_json_schema()
    properties = found["properties"]
    del properties["workload_digest"]  # found out, not given
    known = built_in()
    properties["workload"] = {
        "description": "Its name, or the folder of your own, relative to the matrix.",
        "anyOf": [{"enum": known}, {"type": "string", "pattern": r"^[./]"}],
        "default": DEFAULT,
    }
    properties[SCRIPT] = {
        "type": "string",
        "minLength": 1,
        "description": "Of a script that runs under torchrun, relative to the matrix: short for workload: "
        "script with its data.script.",
    }
    properties["data"].pop("required")  # which is for each workload to say
    fields = _fields()
    properties["defaults"] = {"type": "object", "properties": fields, "additionalProperties": False}
    properties |= Recipes.model_json_schema()["properties"]
    of_recipe = {name: each for name, each in fields.items() if name not in NOT_IN_RECIPES}
    properties["recipes"]["additionalProperties"] |= {
        "properties": of_recipe,
        "patternProperties": {f"^{re.escape(OF_DATA)}": {}},
        "additionalProperties": False,
    }
    several = {name: _several(each) for name, each in fields.items()}
    several["stack"] = _several({"type": "string"})
    several["workers"] = {"anyOf": [{"const": ALL}, several["workers"]]}
    found["$defs"] = Conditions.model_json_schema().get("$defs", {}) | found["$defs"]
    properties["axes"] = {
        "type": "object",
        "properties": several,
        "patternProperties": {f"^{re.escape(OF_DATA)}": _several({})},
        "required": list(REQUIRED_AXES),
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "A matrix of trainbed",
        "allOf": [_of_workload(name) for name in known],
    }


def _fields() -> Schema:
    """The schema of each field that a matrix may set, by name."""
    fields: Schema = {}
    for kind, names in ((Work, WORK_FIELDS), (Conditions, CONDITION_FIELDS)):
        known = kind.model_json_schema()["properties"]
        fields |= {name: known[name] for name in known if name in names}
    fields["threads"] = {"anyOf": [{"const": FROM_CLUSTER}, fields["threads"]]}
    fields[GLOBAL_BATCH] = {"type": "integer", "minimum": 1}
    return fields


def _several(value: Schema) -> Schema:
    """The schema of an axis with such values."""
    return {"type": "array", "items": value, "minItems": 1}


def _of_workload(name: str) -> Schema:
    """What a built-in workload's own settings must be, if the matrix is for it."""
    data, model = settings_of(name, None)
    named: Schema = {"properties": {"workload": {"const": name}}}
    if name == DEFAULT:
        named["not"] = {"required": [SCRIPT]}
    else:
        named["required"] = ["workload"]
    of_data = data.model_json_schema()
    if name == SCRIPT:
        named = {"anyOf": [named, {"required": [SCRIPT]}]}
        of_data["required"].remove(SCRIPT)  # it may be at the top instead
    models = {"anyOf": [kind.model_json_schema() for kind in _kinds(model)]}
    axes = {f"{OF_DATA}{setting}": _several(each) for setting, each in of_data["properties"].items()}
    others = {"not": {"pattern": f"^{re.escape(OF_DATA)}"}}
    return {
        "if": named,
        "then": {
            "properties": {
                "data": of_data,
                "defaults": {"properties": {FIELD_OF_MODELS: models}},
                "axes": {
                    "properties": {FIELD_OF_MODELS: {"items": models}, **axes},
                    "propertyNames": {"anyOf": [{"enum": list(axes)}, others]},
                },
            }
        },
    }


def _kinds(model: type[ModelSettings]) -> list[type[ModelSettings]]:
    return model.__subclasses__() or [model]


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
