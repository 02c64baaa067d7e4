"""Determined AI: one trial of a hyperparameter search, like `training.launchers.determined` with its values.

python3 -m determined.launch.torch_distributed -- python3 -m training.launchers.determined_search --spec ...

The specification fixes everything that is not searched for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from determined import get_cluster_info
from determined.common.api import bindings
from pydantic import ValidationError

from training.launchers.determined import DeterminedSession, starter
from training.rank import arguments, end_if_failed, run_rank
from training.spec import RunSpec, SpecError, explain, read_spec
from training.util.files import write_json

DECIDED_WITHIN_S: Final = 60.0
ASK_AGAIN_S: Final = 0.2


class SearchSession(DeterminedSession):
    """A rank of a trial, which ends when the searcher has stopped the trial.

    A master of 0.38.1 notes that it stops a trial (STOPPING_COMPLETED), but does not tell its processes:
    without this, every trial would run to its end. It decides when it gets an evaluation, and is asked then.
    """

    _stopped = False  # by the searcher

    def _report_epoch(self, steps: int, figures: dict[str, Any]) -> None:
        # Without an evaluation the searcher's metric is missing, which would end the whole search.
        if not any(name.startswith("validation_") for name in figures):
            return
        super()._report_epoch(steps, figures | {"last_batch": self._work.steps})
        self._context.train.report_progress(steps / self._work.steps)
        self._stopped = self._stopped or self._decision(steps)

    def _decision(self, steps: int) -> bool:
        """Whether the searcher stops the trial, once it knows the evaluation after this many steps."""
        until = time.monotonic() + DECIDED_WITHIN_S
        while time.monotonic() < until:
            # Metrics are sent in the background, and kept after the searcher has decided.
            trial = self._trial()
            latest = trial.latestValidation
            if latest is not None and latest.totalBatches >= steps:
                return trial.state is bindings.trialv1State.STOPPING_COMPLETED
            time.sleep(ASK_AGAIN_S)
        sys.stderr.write(
            f"The master does not show the evaluation after {steps} batches within {DECIDED_WITHIN_S:.0f} s: "
            "the trial goes on, even if the searcher has stopped it.\n"
        )
        return False

    def _trial(self) -> bindings.trialv1Trial:
        assert self._info is not None
        return bindings.get_GetTrial(self._context.train._session, trialId=self._info.trial.trial_id).trial

    def should_stop(self) -> bool:
        """Whether the searcher has stopped the trial, or as for any run."""
        return self._stopped or super().should_stop()


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
        raise SystemExit("A search needs a Determined cluster: start it with `make search`.")
    out: Path = given.out / f"trial-{info.trial.trial_id}"
    out.mkdir(parents=True, exist_ok=True)
    try:
        spec = with_values(read_spec(RunSpec, given.spec), info.trial.hparams)
    except SpecError as error:
        raise SystemExit(str(error)) from error
    # Every rank writes the same content atomically: whichever comes last changes nothing.
    write_json(out / "spec.json", spec.model_dump(mode="json"))
    end_if_failed(run_rank(out / "spec.json", given.data, out, SearchSession, starter()))


if __name__ == "__main__":
    main()
