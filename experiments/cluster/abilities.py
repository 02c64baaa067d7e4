"""The unusual conditions that a stack can run under, as its role declares them (meta/conditions.yml)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import RootModel, ValidationError

from experiments.cluster.stack_folders import role_of
from experiments.util.errors import UserError
from training.spec import Conditions, Work, explain

DECLARED: Final = "meta/conditions.yml"
UNDECLARED: Final = "its role does not say that it can"
#: Conditions that a stack must support.
OF_THE_STACK: Final = (
    *("runtime", "launcher", "startup_hook", "tokenizing", "python_workers", "libraries", "program"),
)
SLOTS: Final = "slots_per_worker"  # `some`: a run may leave slots of its workers to others
OF_TRAINING: Final = {"tokenizing": "in_loop"}  # what training does itself, on any stack
PLACEMENT: Final = "placement"  # `given`: ranks go to the workers that the plan takes, in their order
CONTAINERS: Final = "containers"  # `newest`: the stack's own containers can have the newest libraries
PSEUDO_GPUS: Final = "pseudo_gpus"  # `fewer`: a worker may declare fewer GPUs than a run takes slots on it


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
    if conditions.threads == "stack":
        unusual["threads"] = "stack"
    declared = _declared(stack, roles) if unusual else {}
    reasons = []
    for name, value in unusual.items():
        found = declared.get(name, {}).get(value, UNDECLARED)
        if found is not True:
            reasons.append(f"{stack} can't have {name} {value}: {found.rstrip('.')}")
    inside = declared.get(CONTAINERS, {}).get(conditions.libraries, True)
    if conditions.runtime == usual.runtime and inside is not True:
        where = f"{stack} can't have libraries {conditions.libraries} in its containers"
        reasons.append(f"{where}: {inside.rstrip('.')}")
    return reasons


def why_not_some_slots(stack: str, work: Work, offered: int, roles: Path | None = None) -> list[str]:
    """Why `stack` can't spread `work` over workers and take only some of their slots; empty if it can.

    Args:
        stack: the stack.
        work: says how many workers, and slots on each.
        offered: slots of each worker.
        roles: the folder of its role, if that is not among the checkout's or the outside folder's.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    found = _declared(stack, roles).get(SLOTS, {}).get("some", UNDECLARED)
    if found is True or work.workers == 1 or work.slots_per_worker >= offered:
        return []
    return [f"{stack} can't take {work.slots_per_worker} of the {offered} slots of several workers: {found}"]


def takes_some_slots(stack: str) -> bool:
    """Whether `stack` can spread a run over workers and take only some of their slots.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    return _declared(stack, None).get(SLOTS, {}).get("some") is True


def why_not_given_workers(stack: str, roles: Path | None = None) -> str | None:
    """Why `stack` may put a run on other workers than the plan gives it; None if it never does.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    found = _declared(stack, roles).get(PLACEMENT, {}).get("given", "its role does not say otherwise")
    return None if found is True else found.rstrip(".")


def why_not_fewer_pseudo_gpus(stack: str, roles: Path | None = None) -> str | None:
    """Why `stack` needs a declared GPU for each slot of a run on CPUs; None if it does not, or doesn't say.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    found = _declared(stack, roles).get(PSEUDO_GPUS, {}).get("fewer", True)
    return None if found is True else found.rstrip(".")


def _declared(stack: str, roles: Path | None) -> dict[str, dict[str, Literal[True] | str]]:
    path = (role_of(stack) if roles is None else roles / stack) / DECLARED
    if not path.is_file():
        return {}
    try:
        return _Declaration.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).root
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    except ValidationError as error:
        raise UserError(explain(error, str(path))) from error
