"""The specification of a run on this machine, from a few settings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import ValidationError

from training.registry import DEFAULT
from training.spec import WORK_OF_THE_LOOP, DataSpec, RunSpec, SpecError, explain

DATA: Final = {"train": 4000, "validation": 1000, "seed": 0, "max_length": 128}
WORK: Final = {
    "workers": 1,
    "epochs": 2,
    "seed": 1,
    "learning_rate": 5e-4,
    "warmup_steps": 20,
    "checkpoint_every_epochs": 1,
}
"""The quick matrix's settings: with them an encoder from scratch learns within minutes."""


def settings(given: Sequence[str]) -> dict[str, Any]:
    """`["work.epochs=3"]` as `{"work": {"epochs": 3}}`; a value that is not JSON is text.

    Raises:
        SpecError: one is not KEY=VALUE.
    """
    chosen: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        names = key.split(".")
        if not equals or not all(names) or names[0] not in ("data", "work", "conditions") or len(names) < 2:
            raise SpecError(
                f"{text} is not a setting: give data.NAME=VALUE, work.NAME=VALUE or conditions.NAME=VALUE."
            )
        place = chosen
        for name in names[:-1]:
            place = place.setdefault(name, {})
        try:
            place[names[-1]] = json.loads(value)
        except ValueError:
            place[names[-1]] = value
    return chosen


def local_spec(
    chosen: dict[str, Any], workload: str = DEFAULT, digest: str | None = None
) -> tuple[DataSpec, Callable[[str], RunSpec]]:
    """The data specification, and a function that makes the run's once the data set's digest is known.

    Args:
        chosen: settings, see `settings`.
        workload: its name.
        digest: of the content of a user's own workload; None = it is built in.

    Raises:
        SpecError: a setting is wrong; the run's are checked here, too, before the data is prepared.
    """
    threads = len(os.sched_getaffinity(0))
    asked = {"workload": workload, "workload_digest": digest}
    usual_data = DATA if workload == DEFAULT else {"seed": 0}
    try:
        data = DataSpec.model_validate(asked | {"data": usual_data | chosen.get("data", {})})
    except ValidationError as error:
        raise SpecError(explain(error)) from error

    left_out = WORK_OF_THE_LOOP if data.data.has_own_loop else ()
    usual_work = {name: value for name, value in WORK.items() if name not in left_out}

    def finish(digest: str) -> RunSpec:
        work = usual_work | chosen.get("work", {}) | dict(data) | {"data_digest": digest}
        conditions = {"threads": threads} | chosen.get("conditions", {})
        try:
            return RunSpec.model_validate({"stack": "local", "work": work, "conditions": conditions})
        except ValidationError as error:
            raise SpecError(explain(error)) from error

    finish("0" * 64)
    return data, finish
