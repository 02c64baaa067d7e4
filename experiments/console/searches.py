"""What `search` shows: how far it is, and at its end what every trial was given and reached."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from experiments.campaign.searching import Wanted
from experiments.cluster.progress import duration
from experiments.records.search import SEARCH, Outcome, Search, Seen, Trial, counts
from experiments.report.formats import NOTHING, PERCENT, Format, quantity, setting
from experiments.util.screen import Screen
from experiments.util.words import counted, listed

METRIC: Final = Format(4)
ENDED: Final[tuple[Outcome, ...]] = ("end", "stopped", "failed", "killed")
SUMMED: Final[Mapping[Outcome, str]] = {
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

    def begins(self, wanted: Wanted) -> None:
        """Says what is searched."""
        values = listed(list(wanted.content["hyperparameters"]))
        self._screen.line(f"Search {wanted.name} around {wanted.record.run_id}: {values}.")
        self._screen.status("submitting the search", now=True)

    def goes_on(self, seen: Seen, since: Seen) -> None:
        """Shows how far it is, and what is to be known of it, each sentence once."""
        for note in [each for each in seen.notes if each not in self._told]:
            self._told.append(note)
            self._screen.line(note)
        ended = sum(trial.outcome in ENDED for trial in seen.trials)
        self._screen.status(progress_text(seen, since), now=ended != self._ended)
        self._ended = ended

    def ends(self, search: Search, folder: Path) -> None:
        """Shows the trials, the best first."""
        if search.seen is not None:
            self._trials(search, search.seen)
            for note in [each for each in search.seen.notes if each not in self._told]:
                self._screen.line(note)
        if search.reason is not None:
            said = "Interrupted" if search.status == "interrupted" else "The search failed"
            self._screen.line(f"{said}: {search.reason}", "yellow" if said == "Interrupted" else "red")
        self._screen.line(f"Results: {folder / SEARCH}")

    def _trials(self, search: Search, seen: Seen) -> None:
        given = list(dict.fromkeys(name for trial in seen.trials for name in trial.given))
        columns = ["trial", *given, "batches", f"best {seen.metric}", "after", f"last {seen.metric}", ""]
        rows = [
            [
                str(trial.number),
                *(setting(trial.given[name]) if name in trial.given else NOTHING for name in given),
                f"{trial.batches} of {trial.of}",
                quantity(trial.best.value if trial.best else None, METRIC),
                str(trial.best.batches) if trial.best else NOTHING,
                quantity(trial.last.value if trial.last else None, METRIC),
                trial_text(trial, seen.unit),
            ]
            for trial in seen.ranked
        ]
        if rows:
            self._screen.table(f"Search {search.name} around {search.around.run_id}", columns, rows)
            self._screen.line(sum_text(seen))
        best = seen.best
        if best is not None and best.best is not None:
            values = ", ".join(f"{name} {setting(value)}" for name, value in best.given.items())
            kept = f"; checkpoint {best.checkpoint}" if best.checkpoint else ""
            reached = quantity(best.best.value, METRIC)
            self._screen.line(
                f"Best: trial {best.number} ({values}), {seen.metric} {reached} after {best.best.batches} of "
                f"{best.of} batches{kept}."
            )


def progress_text(seen: Seen, since: Seen) -> str:
    """`43 % · 3 of 8 trials ended, 1 running · best validation_loss 0.5123 (trial 4) · about 3 min left`."""
    number = counts(seen.trials)
    ended = sum(number.get(outcome, 0) for outcome in ENDED)
    most = max(len(seen.trials), sum(bracket.trials for bracket in seen.brackets))
    parts = [quantity(seen.done, PERCENT)]
    parts.append(f"{ended} of {counted(most, 'trial')} ended, {number.get('running', 0)} running")
    best = seen.best
    if best is not None and best.best is not None:
        parts.append(f"best {seen.metric} {quantity(best.best.value, METRIC)} (trial {best.number})")
    if seen.time and since.time and seen.done > since.done:
        # Only the clock of the node that follows it; this machine's may differ.
        left = (seen.time - since.time) / (seen.done - since.done) * (1 - seen.done)
        parts.append(f"{duration(left)} left")
    return " · ".join(parts)


def trial_text(trial: Trial, unit: str | None) -> str:
    """What became of a trial."""
    if trial.outcome == "stopped":
        if trial.rung is None:
            return "stopped early; at which rung is not known"
        return f"stopped at rung {trial.rung} of {trial.rungs} ({trial.rung_at} {unit})"
    text = {
        "end": "ran to its end",
        "failed": f"failed: {trial.reason}" if trial.reason else "failed",
        "killed": "ended from outside",
        "running": "was running",
        "waiting": "was waiting",
    }[trial.outcome]
    return f"{text}, restarted {counted(trial.restarts, 'time')}" if trial.restarts else text


def sum_text(seen: Seen) -> str:
    """How many trials ended in which way: `3 ran to their end, 5 were stopped early (rung 1: 5).`"""
    parts = []
    for outcome, words in SUMMED.items():
        number = counts(seen.trials).get(outcome, 0)
        if not number:
            continue
        said = words.format(its="its" if number == 1 else "their", was="was" if number == 1 else "were")
        by_rung = sorted(trial.rung for trial in seen.trials if trial.outcome == outcome and trial.rung)
        told = ", ".join(f"rung {rung}: {by_rung.count(rung)}" for rung in dict.fromkeys(by_rung))
        parts.append(f"{number} {said}{f' ({told})' if told else ''}")
    return f"Of {counted(len(seen.trials), 'trial')}, {listed(parts)}."
