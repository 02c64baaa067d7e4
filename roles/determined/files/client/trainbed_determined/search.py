"""A search: an experiment of many trials around a run, followed to its end."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from determined.common.api import bindings
from determined.experimental import Determined
from determined.experimental.client import ExperimentState, Trial

from trainbed_determined.experiment import ExperimentError, Followed, Runner, unix_time, write
from trainbed_determined.master import Master
from trainbed_determined.results import cause
from trainbed_determined.rungs import HALVING, Bracket, Decision, Report, brackets_of, decisions

LOOK_S: Final = 3.0
PAGE: Final = 100
PROGRESS: Final = "progress.jsonl"
LAST_BATCH: Final = "last_batch"
"""Metric with which a trial says how many batches it does if nothing stops it (`determined_search`)."""

WAITING_STATES: Final = ("QUEUED", "PULLING", "STARTING", "ACTIVE", "PAUSED")
FAILED_STATES: Final = ("ERROR", "STOPPING_ERROR")
KILLED_STATES: Final = ("CANCELED", "STOPPING_CANCELED", "STOPPING_KILLED")
ENDED_OUTCOMES: Final = ("end", "stopped", "failed", "killed")  # of trials that do no more


@dataclass(frozen=True)
class Run:
    """How long the run is that is searched around."""

    batches: int
    epochs: int
    evaluate_every_epochs: int

    @property
    def lengths(self) -> dict[str, int]:
        """Its whole length, by the metric that counts it."""
        return {"batches": self.batches, "epoch": self.epochs}

    def evaluation_from(self, unit: str, length: int) -> int | None:
        """The first evaluation at `length` or after it; None if there is none, or `unit` is not known."""
        whole = self.lengths.get(unit)
        if whole is None or length > whole:
            return None
        every = self.evaluate_every_epochs * whole // self.epochs
        return min(-(-length // every) * every, whole)


def read_run(path: Path, batches: int) -> Run:
    """The run of the specification in the file `path`, which takes so many batches."""
    work = json.loads(path.read_bytes())["work"]
    return Run(batches, int(work["epochs"]), int(work["evaluate_every_epochs"]))


def completed(config: dict[str, Any], run: Run) -> dict[str, Any]:
    """The configuration, with the run's length where a searcher that stops trials is not told another one."""
    searcher = dict(config["searcher"])
    if searcher.get("name") in HALVING:
        unit = searcher.setdefault("time_metric", "batches")
        if searcher.get("max_time") is None and unit in run.lengths:
            searcher["max_time"] = run.lengths[unit]
    return config | {"searcher": searcher}


def notes_on(searcher: Mapping[str, Any], run: Run) -> list[str]:
    """What to know about when this searcher stops trials of such a run, a sentence each."""
    brackets = brackets_of(searcher)
    if not brackets:
        return [f"The searcher {searcher.get('name')} stops no trial early."]
    unit, longest = str(searcher["time_metric"]), int(searcher["max_time"])
    whole = run.lengths.get(unit)
    notes = [_note_on(bracket, unit, run) for bracket in brackets]
    if whole is not None and longest > whole:
        notes.append(
            f"max_time is {longest} ({unit}), but a trial ends at {whole}: no trial reaches the top rung. "
            "Leave max_time out, and it is the run's length."
        )
    return notes


def _note_on(bracket: Bracket, unit: str, run: Run) -> str:
    trials = f"{bracket.trials} trial{'s' if bracket.trials > 1 else ''}"
    *below, top = bracket.rungs
    if not below:
        return f"{trials}: never stopped early (one rung, at {top})."
    places = []
    for length in below:
        at = run.evaluation_from(unit, length)
        if at is None and unit in run.lengths:
            places.append(f"{length} (no evaluation is left)")
        else:
            places.append(f"{length}" if at in (None, length) else f"{length} (evaluated at {at})")
    best = f"1 of {bracket.divisor:g}"
    return f"{trials}: the best {best} go on at {', '.join(places)}, up to {top} ({unit})."


class Looker:
    """Reads how far an experiment's trials are, and keeps it in a file, a line for each change."""

    def __init__(self, master: Master, number: int, config: dict[str, Any], run: Run, out: Path) -> None:
        """Nothing is read yet."""
        self._master = master
        self._number = number
        self._searcher: Mapping[str, Any] = config["searcher"]
        self._run = run
        self._path = out / PROGRESS
        self._brackets = brackets_of(self._searcher)
        standin = master.standin()
        self._notes = [*([standin] if standin else []), *notes_on(self._searcher, run)]
        self._evaluations: dict[int, tuple[object, list[Any]]] = {}  # by trial, with what they belong to
        self._last: dict[str, Any] = {}
        self._looked = -math.inf

    def look(self) -> None:
        """Write a line if something has changed; asks the master only every few seconds."""
        if time.monotonic() - self._looked >= LOOK_S:
            self.look_now()

    def look_now(self) -> dict[str, Any]:
        """Write a line if something has changed; returns what the line says."""
        seen = self._master.ask(f"the trials of experiment {self._number}", self._see)
        self._looked = time.monotonic()
        if seen != self._last:
            self._last = seen
            self.write_line(seen)
        return seen

    def write_line(self, content: Mapping[str, Any]) -> None:
        """Add a line to the file."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **content}) + "\n")

    def _see(self, client: Determined) -> dict[str, Any]:
        experiment = bindings.get_GetExperiment(client._session, experimentId=self._number).experiment
        trials = trials_of(client, self._number)
        evaluations = {trial.id: self._evaluations_of(client, trial) for trial in trials}
        state = experiment.state.name
        told = self._decisions(trials, evaluations)
        rows = [self._row(trial, evaluations[trial.id], told.get(trial.id)) for trial in trials]
        return {
            "experiment": self._number,
            "state": state,
            "fraction_done": 1.0 if state == "COMPLETED" else self._fraction_done(rows),
            "metric": self._searcher["metric"],
            "smaller_is_better": self._smaller,
            "unit": self._searcher.get("time_metric"),
            "brackets": [{"rungs": list(each.rungs), "trials": each.trials} for each in self._brackets],
            "notes": self._notes + self._ran_on(rows, told),
            "trials": rows,
        }

    @property
    def _smaller(self) -> bool:
        smaller = self._searcher.get("smaller_is_better")
        return True if smaller is None else bool(smaller)

    def _evaluations_of(self, client: Determined, trial: bindings.trialv1Trial) -> list[Any]:
        """All reports of a trial's evaluations, in their order; asked for only if there is a new one."""
        latest = trial.latestValidation
        mark = (trial.restarts, latest.totalBatches, latest.endTime) if latest else None
        known = self._evaluations.get(trial.id)
        if mark is None or (known is not None and known[0] == mark):
            return known[1] if known else []
        found = list(Trial(trial.id, client._session).iter_metrics("validation"))
        self._evaluations[trial.id] = mark, found
        return found

    def _decisions(
        self, trials: Sequence[bindings.trialv1Trial], evaluations: Mapping[int, Sequence[Any]]
    ) -> dict[int, Decision]:
        reports = []
        unit, metric = str(self._searcher.get("time_metric")), str(self._searcher["metric"])
        for trial in trials:
            for each in evaluations[trial.id]:
                value, length = number_in(each.metrics, metric), number_in(each.metrics, unit)
                if value is not None and length is not None:
                    signed = value if self._smaller else -value
                    reports.append(Report(trial.id, each.end_time.timestamp(), length, signed))
            if trial.state.name == "ERROR" and trial.endTime:
                reports.append(Report(trial.id, unix_time(trial.endTime), 0, math.inf))
        return decisions(self._brackets, sorted(trial.id for trial in trials), reports)

    def _row(
        self, trial: bindings.trialv1Trial, evaluations: Sequence[Any], told: Decision | None
    ) -> dict[str, Any]:
        metric = str(self._searcher["metric"])
        reached = [
            {"batches": each.steps_completed, "value": value}
            for each in evaluations
            if (value := number_in(each.metrics, metric)) is not None
        ]
        last_batch = number_in(evaluations[-1].metrics, LAST_BATCH) if evaluations else None
        total = int(last_batch) if last_batch is not None else self._run.batches
        best = min(reached, key=lambda each: each["value"] if self._smaller else -each["value"], default=None)
        outcome = outcome_of(trial.state.name, trial.totalBatchesProcessed, total)
        stopped = told if told is not None and outcome == "stopped" and told.rung < told.rungs else None
        return {
            "number": trial.id,
            "hyperparameters": trial.hparams,
            "state": trial.state.name,
            "outcome": outcome,
            "rung": stopped.rung if stopped else None,
            "rungs": stopped.rungs if stopped else None,
            "rung_length": stopped.length if stopped else None,
            "batches": trial.totalBatchesProcessed,
            "total_batches": total,
            "last": reached[-1] if reached else None,
            "best": best,
            "checkpoint": trial.bestCheckpoint.uuid if trial.bestCheckpoint else None,
            "restarts": trial.restarts,
            "reason": None,
        }

    def _ran_on(self, rows: Sequence[Mapping[str, Any]], told: Mapping[int, Decision]) -> list[str]:
        """A sentence on trials that went on to their end although the searcher had stopped them before."""
        unit = self._searcher.get("time_metric")
        went_on = []
        for row in rows:
            decision, whole = (
                told.get(row["number"]),
                row["total_batches"] if unit == "batches" else self._run.epochs,
            )
            if row["outcome"] == "end" and decision and decision.rung < decision.rungs:
                went_on += [str(row["number"])] if decision.reached < whole else []
        if not went_on:
            return []
        return [f"Went on to their end although the searcher had stopped them: trials {', '.join(went_on)}."]

    def _fraction_done(self, rows: Sequence[Mapping[str, Any]]) -> float:
        """The fraction of all trials' batches that is done; trials that have ended need no more."""
        done = sum(row["batches"] for row in rows)
        due = sum(
            row["batches"] if row["outcome"] in ENDED_OUTCOMES else max(row["total_batches"], row["batches"])
            for row in rows
        )
        to_come = max(0, int(self._searcher.get("max_trials") or 0) - len(rows))
        due += to_come * self._run.batches
        return done / due if due else 0.0


def outcome_of(state: str, batches: int, total: int) -> str:
    """What became of a trial: `end` (it did all its batches), `stopped`, `failed`, `killed`; or not yet."""
    if state == "COMPLETED":
        return "end" if batches >= total else "stopped"
    if state in FAILED_STATES:
        return "failed"
    if state in KILLED_STATES:
        return "killed"
    return "waiting" if state in WAITING_STATES else "running"


def number_in(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric, if it is a number."""
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def trials_of(client: Determined, number: int) -> list[bindings.trialv1Trial]:
    """All trials of an experiment, the oldest first."""
    found: list[bindings.trialv1Trial] = []
    while True:
        answer = bindings.get_GetExperimentTrials(
            client._session, experimentId=number, offset=len(found), limit=PAGE
        )
        found += answer.trials
        total = answer.pagination.total or 0
        if not answer.trials or len(found) >= total:
            return sorted(found, key=lambda trial: trial.id)


def search(
    master: Master,
    config: dict[str, Any],
    run: Run,
    code: Path,
    label: str,
    out: Path,
    say: Callable[[str], None],
    beside: Sequence[Path] = (),
) -> None:
    """Submit a search, follow it to its end and write what its trials reached to `out`.

    Args:
        master: the master that runs it.
        config: the experiment's configuration.
        run: the run that is searched around.
        code: folder to submit with it.
        label: what identifies the search.
        out: folder for progress.jsonl, search.json and logs.
        say: shows a line of progress.
        beside: files to submit with the code.

    Raises:
        ExperimentError: it did not complete.
        MasterError: the master refused it, or was away for too long.
    """
    config = completed(config, run)
    write(out / "experiment.json", config)
    runner = Runner(master, say)
    foreign = runner.tasks()
    slots = config["resources"]["slots_per_trial"]
    runner.wait_for_slots(slots)
    seen = Followed(runner.submit(config, code, label, beside), others=foreign)
    looker = Looker(master, seen.id, config, run, out)
    fault: ExperimentError | None = None
    try:
        runner.follow(seen, slots, looker.look)
    except ExperimentError as error:
        fault = error
    result = looker.look_now()
    logs = _collect_logs(master, result["trials"], out)
    for row in result["trials"]:
        if row["outcome"] == "failed":
            row["reason"] = cause(logs[row["number"]]).strip(" ()") or None
    if fault is None and result["state"] != ExperimentState.COMPLETED.name:
        fault = ExperimentError(_why(master, seen.id, config["searcher"], result))
    reason = str(fault) if fault is not None else None
    looker.write_line(result | {"states": seen.states, "tasks_of_others": foreign, "reason": reason})
    if fault is not None:
        raise fault


def _collect_logs(master: Master, rows: Sequence[Mapping[str, Any]], out: Path) -> dict[int, list[str]]:
    """Write every trial's log to a file of its own; returns them by trial."""
    logs: dict[int, list[str]] = {}
    (out / "logs").mkdir(parents=True, exist_ok=True)
    for row in rows:
        number = row["number"]
        logs[number] = master.ask(f"the log of trial {number}", partial(_log_of, number))
        text = "".join(f"{line.rstrip()}\n" for line in logs[number])
        (out / "logs" / f"trial-{number}.log").write_text(text, encoding="utf-8")
    return logs


def _log_of(number: int, client: Determined) -> list[str]:
    return list(client.get_trial(number).iter_logs())


def _why(master: Master, number: int, searcher: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Why a search did not complete, in a sentence: the API only has its state."""
    start = f"Experiment {number} ended as {result['state']}"
    failed = [row for row in result["trials"] if row["outcome"] == "failed"]
    needed = [str(searcher["metric"])]
    needed += [str(searcher["time_metric"])] if searcher.get("name") in HALVING else []

    def reported(client: Determined) -> set[str]:
        found: set[str] = set()
        for trial in trials_of(client, number):
            if trial.latestValidation is not None:
                found |= set(trial.latestValidation.metrics.avgMetrics)
        return found

    metrics = master.ask(f"the metrics of experiment {number}", reported)
    missing = [name for name in needed if name not in metrics]
    if metrics and missing:
        return (
            f"{start}: the searcher needs {' and '.join(missing)}, and training reports only "
            f"{', '.join(sorted(metrics))}; correct metric or time_metric in the search's file."
        )
    told = [f"trial {row['number']} ({row['reason'] or 'its log says no more'})" for row in failed]
    if told:
        return f"{start}: {', '.join(told)} failed; logs/ has the log of each."
    return f"{start}; see `journalctl -u determined-master` on the master, and logs/."
