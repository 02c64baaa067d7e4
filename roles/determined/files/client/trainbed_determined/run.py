"""One run, from the submission of its experiment to the files that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from determined.experimental.client import ExperimentState

from trainbed_determined.experiment import ExperimentError, Followed, Runner, write
from trainbed_determined.master import Master
from trainbed_determined.results import collect


def run(
    master: Master,
    config: dict[str, Any],
    code: Path,
    label: str,
    out: Path,
    say: Callable[[str], None],
    queue_limit_s: float | None = None,
    beside: Sequence[Path] = (),
) -> None:
    """Submit an experiment, wait for its end and write its results to `out`.

    Its clean-up goes on without it: whatever runs next waits for that (`stop`).

    It may wait `queue_limit_s` seconds for slots; None = as in the settings. Files `beside` the code are
    submitted with it.

    Raises:
        ExperimentError: it did not complete.
        MasterError: the master refused it, or was away for too long.
    """
    if queue_limit_s is not None:
        master.settings = replace(master.settings, queue_limit_s=queue_limit_s)
    # It is known from now on, whatever becomes of the run.
    launcher: dict[str, Any] = {"queue_s": 0.0, "standin": master.standin()}
    write(out / "launcher.json", launcher)
    runner = Runner(master, say)
    foreign = runner.tasks()
    slots = config["resources"]["slots_per_trial"]
    runner.wait_for_slots(slots)
    number = runner.submit(config, code, label, beside)
    seen = Followed(number, others=foreign)
    fault: ExperimentError | None = None
    try:
        runner.follow(seen, slots)
    except ExperimentError as error:
        fault = error
    collected = collect(master, seen, out)
    write(
        out / "launcher.json",
        launcher
        | {
            "queue_s": collected.queue_s,
            "ended": collected.ended,
            "hosts": collected.hosts,
            "notes": collected.notes,
            "begun_again": collected.begun_again,
        },
    )
    if fault is None and collected.state != ExperimentState.COMPLETED.name:
        fault = ExperimentError(
            f"Experiment {number} ended as {collected.state}{collected.why}; its log is in logs/trial.log."
        )
    if fault is not None:
        raise fault
