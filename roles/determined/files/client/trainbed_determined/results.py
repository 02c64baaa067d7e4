"""Collects what a trial leaves on the master into the folder of its run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from determined.common.api import bindings
from determined.experimental import Determined
from determined.experimental.client import Trial

from trainbed_determined.experiment import Followed, unix_time, write
from trainbed_determined.master import Master

FOLDER: Final = "determined"
LOG: Final = "logs/trial.log"

# `[2026-11-21T10:10:36.529505Z]          || INFO: Trial 14 (Experiment 14) was assigned to an agent`
LINE: Final = re.compile(r"^\[(?P<time>\d{4}-\d\d-\d\dT[\d:.]+)Z\] (?P<container>\S*)\s*\|\| (?P<text>.*)")
ASSIGNED: Final = (
    "was assigned to an agent"  # once each time that a trial is begun; not when a master comes back
)
PLACE: Final = re.compile(
    r"Running task container on agent_id=(?P<agent>[^,\s]+), hostname=(?P<host>[^,\s]+)"
)
HOOK: Final = re.compile(r"\bstartup-hook\.sh took (?P<seconds>[\d.]+) s$")  # as that script says
ERROR: Final = re.compile(r"(?P<kind>[\w.]*(?:Error|Exception))\b: (?P<message>.*)")


@dataclass
class Collected:
    """What became of an experiment."""

    state: str
    queue_s: float  # from submission to the assignment of slots
    ended: float | None  # unix time by the master's clock
    hosts: dict[str, str] = field(default_factory=dict)  # agent by its containers' host names
    notes: list[str] = field(default_factory=list)
    begun_again: str | None = None  # that Determined began its trial more than once, a sentence
    why: str = ""  # why it did not complete, from its log, to append to a sentence


def collect(master: Master, seen: Followed, out: Path) -> Collected:
    """Write the metrics, log, checkpoints and history of the experiment to `out`.

    Args:
        master: the master that has them.
        seen: what was observed of the experiment.
        out: the folder of the run, shared with the training itself.
    """

    def ask(client: Determined) -> dict[str, Any]:
        experiment = client.get_experiment(seen.id)
        trials = experiment.list_trials()
        raw = bindings.get_GetExperiment(client._session, experimentId=seen.id).experiment
        return {
            "state": experiment.state.name if experiment.state else "UNKNOWN",
            "submitted": raw.startTime,
            "ended": raw.endTime,
            "trials": [_trial(client, trial) for trial in trials],
        }

    found = master.ask(f"the results of experiment {seen.id}", ask)
    log = [line for trial in found["trials"] for line in trial.pop("log")]
    (out / LOG).parent.mkdir(parents=True, exist_ok=True)
    (out / LOG).write_text("".join(f"{line.rstrip()}\n" for line in log), encoding="utf-8")
    moments = times_of(log)
    write(
        out / FOLDER / "experiment.json",
        {
            "id": seen.id,
            "states": seen.states,
            "tasks_of_others": seen.others,
            "startup_hooks_s": hook_seconds(log),
            **moments,
            **found,
        },
    )
    collected = Collected(
        state=found["state"],
        queue_s=queue_seconds(found["submitted"], moments, seen),
        ended=unix_time(found["ended"]) if found["ended"] else None,
        hosts={place["host"]: place["agent"] for line in log if (place := PLACE.search(line))},
    )
    if "assigned" not in moments:
        collected.notes.append(
            "Determined's log does not say when the slots were assigned: the time in the queue was measured "
            "by polling every second."
        )
    begun = sum(ASSIGNED in line for line in log)
    if begun > 1:
        collected.begun_again = f"Determined began the trial {begun} times: its times include that."
    restarts = sum(trial["restarts"] for trial in found["trials"])
    if restarts:
        collected.notes.append(
            f"Determined restarted the trial {restarts} time{'s' if restarts > 1 else ''}: "
            "its times include that."
        )
    if "PAUSED" in {name for _, name in seen.states}:
        collected.notes.append("The experiment was paused while it ran: its times include that.")
    if master.absences:
        collected.notes.append(
            f"Determined's master did not answer for {sum(master.absences):.0f} s during the run: "
            "the run's times may include that."
        )
    if seen.others:
        collected.notes.append(f"Others used Determined when it was submitted: {', '.join(seen.others)}.")
    if found["state"] != "COMPLETED":
        collected.why = cause(log)
    return collected


def _trial(client: Determined, trial: Trial) -> dict[str, Any]:
    raw = bindings.get_GetTrial(client._session, trialId=trial.id).trial
    return {
        "id": trial.id,
        "state": raw.state.name,
        "restarts": raw.restarts,
        "wall_clock_s": raw.wallClockTime,
        "metrics": {group: last_of_each_step(trial, group) for group in ("training", "validation")},
        "checkpoints": [
            {
                "uuid": checkpoint.uuid,
                "state": checkpoint.state.name if checkpoint.state else None,
                "reported": str(checkpoint.report_time),
                "metadata": checkpoint.metadata,
                "files": checkpoint.resources,
            }
            for checkpoint in trial.list_checkpoints()
        ],
        "log": list(trial.iter_logs()),
    }


def last_of_each_step(trial: Trial, group: str) -> list[dict[str, Any]]:
    """Metrics by step. A restarted trial reports steps again: the last report counts."""
    by_step: dict[int, tuple[int, dict[str, Any]]] = {}
    for report in trial.iter_metrics(group):
        run, known = report.trial_run_id, by_step.get(report.steps_completed)
        if known is None or run >= known[0]:
            by_step[report.steps_completed] = (run, report.metrics)
    return [{"step": step, "run": run, **metrics} for step, (run, metrics) in sorted(by_step.items())]


def times_of(log: list[str]) -> dict[str, float]:
    """Unix times of the trial's start, by the master's clock: `assigned`, `started`, `launched`."""
    moments: dict[str, float] = {}
    for line in log:
        parts = LINE.match(line)
        if not parts:
            continue
        text, moment = parts["text"], unix_time(parts["time"])
        if ASSIGNED in text:
            moments.setdefault("assigned", moment)
        elif text.rstrip().endswith("have started") and "Resources for" in text:
            # The last container of the first allocation.
            if "launched" not in moments:
                moments["started"] = moment
        elif "determined: Launching:" in text:
            moments.setdefault("launched", moment)
    return moments


def hook_seconds(log: list[str]) -> list[float]:
    """How long the startup hook took in each container, by what it says itself; empty if none ran."""
    return [float(took["seconds"]) for line in log if (took := HOOK.search(line.rstrip()))]


def queue_seconds(submitted: str, moments: dict[str, float], seen: Followed) -> float:
    """Seconds that the experiment waited for slots."""
    if "assigned" in moments:
        return max(0.0, moments["assigned"] - unix_time(submitted))
    return seen.waited_s


def cause(log: list[str]) -> str:
    """The last error that the log names, to append to a sentence; empty if it names none."""
    for line in reversed(log):
        parts = LINE.match(line)
        named = ERROR.search(parts["text"]) if parts else None
        if named:
            return f" ({named['kind']}: {named['message'].strip()})"
    return ""
