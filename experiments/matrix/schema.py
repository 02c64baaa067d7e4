"""The JSON schema of matrices, by which editors complete and check them.

`python -m experiments.matrix.schema` prints it (kept in experiments/matrices/schema.json). It knows the
fields, their types and limits, and the settings of the workloads that are built in; what belongs together is
checked when a matrix is loaded.
"""

from __future__ import annotations

import json
from typing import Any, Final

from experiments.matrix.model import CONDITION_FIELDS, FROM_CLUSTER, WORK_FIELDS, Matrix
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
    fields = _fields()
    properties["defaults"] = {"type": "object", "properties": fields, "additionalProperties": False}
    several = {name: {"type": "array", "items": each, "minItems": 1} for name, each in fields.items()}
    several["stack"] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    several["workers"] = {"anyOf": [{"const": ALL}, several["workers"]]}
    found["$defs"] = Conditions.model_json_schema().get("$defs", {}) | found["$defs"]
    properties["axes"] = {
        "type": "object",
        "properties": several,
        "required": ["stack", "workers", "epochs", "seed"],
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


def _of_workload(name: str) -> Schema:
    """What a built-in workload's own settings must be, if the matrix is for it."""
    data, model = settings_of(name, None)
    named: Schema = {"properties": {"workload": {"const": name}}}
    if name != DEFAULT:
        named["required"] = ["workload"]
    models = {"anyOf": [kind.model_json_schema() for kind in _kinds(model)]}
    return {
        "if": named,
        "then": {
            "properties": {
                "data": data.model_json_schema(),
                "defaults": {"properties": {FIELD_OF_MODELS: models}},
                "axes": {"properties": {FIELD_OF_MODELS: {"items": models}}},
            }
        },
    }


def _kinds(model: type[ModelSettings]) -> list[type[ModelSettings]]:
    return model.__subclasses__() or [model]


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
