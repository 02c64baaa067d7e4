"""What `search` shows: how far it is, and at its end every trial's hyperparameters and results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from experiments.campaign.searching import SearchRequest
from experiments.cluster.progress import duration
from experiments.records.search import SEARCH, Search, SearchProgress, Trial, TrialOutcome
from experiments.report.formats import NOTHING, PERCENT, Format, quantity, setting
from experiments.util.screen import Screen
from experiments.util.words import counted, listed

METRIC: Final = Format(4)
ENDED_OUTCOMES: Final[tuple[TrialOutcome, ...]] = ("end", "stopped", "failed", "killed")
SUMMED: Final[Mapping[TrialOutcome, str]] = {
    "end": "ran to {its} end",
    "stopped": "{was} stopped early",
    "failed": "failed",
    "killed": "{was} ended from outside",
    "running": "{was} running",
    "waiting": "{was} waiting",
}


class SearchTable:
    """Shows a search on a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._told: list[str] = []
        self._ended = -1

    def begins(self, request: SearchRequest) -> None:
        """Says what is searched."""
        names = listed(list(request.content["hyperparameters"]))
        self._screen.line(f"Search {request.name} around {request.record.run_id}: {names}.")
        self._screen.status("submitting the search", now=True)

    def goes_on(self, progress: SearchProgress, first: SearchProgress) -> None:
        """Shows how far it is, and what is to be known of it, each sentence once."""
        for note in [each for each in progress.notes if each not in self._told]:
            self._told.append(note)
            self._screen.line(note)
        ended = sum(trial.outcome in ENDED_OUTCOMES for trial in progress.trials)
        self._screen.status(progress_text(progress, first), now=ended != self._ended)
        self._ended = ended

    def ends(self, search: Search, folder: Path) -> None:
        """Shows the trials, the best first."""
        if search.progress is not None:
            self._trials(search, search.progress)
            for note in [each for each in search.progress.notes if each not in self._told]:
                self._screen.line(note)
        if search.reason is not None:
            said = "Interrupted" if search.status == "interrupted" else "The search failed"
            self._screen.line(f"{said}: {search.reason}", "yellow" if said == "Interrupted" else "red")
        self._screen.line(f"Results: {folder / SEARCH}")

    def _trials(self, search: Search, progress: SearchProgress) -> None:
        names = list(dict.fromkeys(name for trial in progress.trials for name in trial.hyperparameters))
        best, last = f"best {progress.metric}", f"last {progress.metric}"
        columns = ["trial", *names, "batches", best, "after", last, "outcome"]
        rows = [
            [
                str(trial.number),
                *(_value_text(trial, name) for name in names),
                f"{trial.batches} of {trial.total_batches}",
                quantity(trial.best.value if trial.best else None, METRIC),
                str(trial.best.batches) if trial.best else NOTHING,
                quantity(trial.last.value if trial.last else None, METRIC),
                trial_text(trial, progress.unit),
            ]
            for trial in progress.ranked
        ]
        if rows:
            self._screen.table(f"Search {search.name} around {search.run.run_id}", columns, rows)
            self._screen.line(sum_text(progress))
        winner = progress.best
        if winner is not None and winner.best is not None:
            values = ", ".join(f"{name} {setting(value)}" for name, value in winner.hyperparameters.items())
            kept = f"; checkpoint {winner.checkpoint}" if winner.checkpoint else ""
            reached = f"{progress.metric} {quantity(winner.best.value, METRIC)}"
            after = f"{winner.best.batches} of {winner.total_batches} batches"
            self._screen.line(f"Best: trial {winner.number} ({values}), {reached} after {after}{kept}.")


def _value_text(trial: Trial, name: str) -> str:
    return setting(trial.hyperparameters[name]) if name in trial.hyperparameters else NOTHING


def progress_text(progress: SearchProgress, first: SearchProgress) -> str:
    """`43 % · 3 of 8 trials ended, 1 running · best validation_loss 0.5123 (trial 4) · about 3 min left`."""
    number = Counter(trial.outcome for trial in progress.trials)
    ended = sum(number[outcome] for outcome in ENDED_OUTCOMES)
    most = max(len(progress.trials), sum(bracket.trials for bracket in progress.brackets))
    parts = [quantity(progress.fraction_done, PERCENT)]
    parts.append(f"{ended} of {counted(most, 'trial')} ended, {number['running']} running")
    best = progress.best
    if best is not None and best.best is not None:
        parts.append(f"best {progress.metric} {quantity(best.best.value, METRIC)} (trial {best.number})")
    done = progress.fraction_done - first.fraction_done
    if progress.time and first.time and done > 0:
        # Only the clock of the node that follows it; this machine's may differ.
        left = (progress.time - first.time) / done * (1 - progress.fraction_done)
        parts.append(f"{duration(left)} left")
    return " · ".join(parts)


def trial_text(trial: Trial, unit: str | None) -> str:
    """What became of a trial."""
    if trial.outcome == "stopped":
        if trial.rung is None:
            return "stopped early; at which rung is not known"
        return f"stopped at rung {trial.rung} of {trial.rungs} ({trial.rung_length} {unit})"
    text = {
        "end": "ran to its end",
        "failed": f"failed: {trial.reason}" if trial.reason else "failed",
        "killed": "ended from outside",
        "running": "was running",
        "waiting": "was waiting",
    }[trial.outcome]
    return f"{text}, restarted {counted(trial.restarts, 'time')}" if trial.restarts else text


def sum_text(progress: SearchProgress) -> str:
    """`Of 8 trials, 3 ran to their end and 5 were stopped early (rung 1: 5).`"""
    numbers = Counter(trial.outcome for trial in progress.trials)
    parts = []
    for outcome, words in SUMMED.items():
        number = numbers[outcome]
        if not number:
            continue
        said = words.format(its="its" if number == 1 else "their", was="was" if number == 1 else "were")
        by_rung = sorted(trial.rung for trial in progress.trials if trial.outcome == outcome and trial.rung)
        told = ", ".join(f"rung {rung}: {by_rung.count(rung)}" for rung in dict.fromkeys(by_rung))
        parts.append(f"{number} {said}{f' ({told})' if told else ''}")
    return f"Of {counted(len(progress.trials), 'trial')}, {listed(parts)}."
