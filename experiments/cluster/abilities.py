"""The unusual conditions that a stack can run under, as its role declares them (meta/conditions.yml)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import RootModel, ValidationError

from experiments.cluster.stack_folders import role_of
from experiments.util.errors import UserError
from training.spec import Conditions, explain

DECLARED: Final = "meta/conditions.yml"
OF_THE_STACK: Final = ("runtime", "launcher", "tokenizing")  # conditions that a stack must support
OF_TRAINING: Final = {"tokenizing": "in_loop"}  # what training does itself, on any stack


class _Declaration(RootModel[dict[str, dict[str, Literal[True] | str]]]):
    """By condition and value: true, or why not."""


def why_no_conditions(stack: str, conditions: Conditions, roles: Path | None = None) -> list[str]:
    """Why `stack` can't run under `conditions`, without the full stop; empty if it can.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    usual = Conditions()
    requested = {name: getattr(conditions, name) for name in OF_THE_STACK}
    unusual = {
        name: value
        for name, value in requested.items()
        if value not in (getattr(usual, name), OF_TRAINING.get(name))
    }
    role = role_of(stack) if roles is None else roles / stack
    declared = _declared(role / DECLARED) if unusual else {}
    reasons = []
    for name, value in unusual.items():
        found = declared.get(name, {}).get(value, "its role does not say that it can")
        if found is not True:
            reasons.append(f"{stack} can't have {name} {value}: {found.rstrip('.')}")
    return reasons


def _declared(path: Path) -> dict[str, dict[str, Literal[True] | str]]:
    if not path.is_file():
        return {}
    try:
        return _Declaration.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).root
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    except ValidationError as error:
        raise UserError(explain(error, str(path))) from error
