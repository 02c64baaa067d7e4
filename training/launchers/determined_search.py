"""Determined AI: one trial of a hyperparameter search, like `training.launchers.determined` with its values.

python3 -m determined.launch.torch_distributed -- python3 -m training.launchers.determined_search --spec ...

The specification fixes everything that is not searched for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined import get_cluster_info
from pydantic import ValidationError

from training.launchers.determined import DeterminedSession, starter
from training.rank import arguments, end_if_failed, run_rank
from training.spec import RunSpec, SpecError, explain, read_spec
from training.util.files import write_json


def with_values(spec: RunSpec, values: Mapping[str, Any]) -> RunSpec:
    """`spec` with the trial's values in place of its own.

    Args:
        spec: the run that the search varies.
        values: by the names of fields of the work.

    Raises:
        SpecError: a name is not a field of the work, or a value is not valid for it.
    """
    work = spec.work.model_dump()
    unknown = sorted(set(values) - set(work))
    if unknown:
        raise SpecError(
            f"The search has hyperparameters that are not fields of the work: {', '.join(unknown)}; "
            f"its fields are {', '.join(sorted(work))}."
        )
    try:
        return RunSpec.model_validate(spec.model_dump() | {"work": work | dict(values)})
    except ValidationError as error:
        raise SpecError(explain(error, "A value of the search")) from error


def main() -> None:
    """One rank of one trial, in a folder of the trial's own."""
    given = arguments("One rank of a trial of a search, started by Determined's launcher.").parse_args()
    info = get_cluster_info()
    if info is None:
        raise SystemExit("A search needs a Determined cluster: submit it with playbooks/search.yml.")
    out: Path = given.out / f"trial-{info.trial.trial_id}"
    out.mkdir(parents=True, exist_ok=True)
    try:
        spec = with_values(read_spec(RunSpec, given.spec), info.trial.hparams)
    except SpecError as error:
        raise SystemExit(str(error)) from error
    # Every rank writes the same content atomically: whichever comes last changes nothing.
    write_json(out / "spec.json", spec.model_dump(mode="json"))
    end_if_failed(run_rank(out / "spec.json", given.data, out, DeterminedSession, starter()))


if __name__ == "__main__":
    main()
