"""search.json: a search around a run, and the hyperparameters and results of every trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field

from experiments.records.record import write_once
from experiments.util.models import FiniteModel
from training.settings import Sha256
from training.spec import RunSpec

SEARCH: Final = "search.json"
SCHEMA_VERSION: Final = 1

#: `end`: it did all its batches. `stopped`: the searcher stopped it early. `killed`: somebody ended it or
#: the search. `waiting` and `running`: the search was left before the trial's end.
TrialOutcome = Literal["end", "stopped", "failed", "killed", "waiting", "running"]


class Evaluation(FiniteModel):
    """An evaluation."""

    batches: int = Field(ge=0)  # after which it was made
    value: float  # of the searcher's metric


class Trial(FiniteModel):
    """One trial."""

    number: int
    hyperparameters: dict[str, Any]  # by the names of fields of the work
    state: str  # in the stack's own words
    outcome: TrialOutcome
    rung: int | None = None  # at which it was stopped, from 1; None: not stopped, or it is not known
    rungs: int | None = None  # how many there are for it
    rung_length: int | None = None  # at which that rung is, in the searcher's unit
    batches: int = Field(ge=0)  # that it did
    total_batches: int = Field(ge=0)  # that it does if nothing stops it
    last: Evaluation | None = None
    best: Evaluation | None = None
    checkpoint: str | None = None  # the best one that is kept, by the stack's own name
    restarts: int = Field(default=0, ge=0)
    reason: str | None = None  # why it failed, as far as its log says


class Bracket(FiniteModel):
    """Trials that are compared with one another."""

    rungs: list[int]  # ascending, in the searcher's unit; the last is the whole length
    trials: int


class SearchProgress(FiniteModel):
    """How far a search is: what the stack's client writes, a line of JSON for each change."""

    time: float | None = None  # unix time, by the clock of the node that follows it
    experiment: int  # the stack's number of it
    state: str
    fraction_done: float = Field(ge=0, le=1)  # of all trials' batches; a trial that has ended needs no more
    metric: str
    smaller_is_better: bool
    unit: str | None  # in which rungs are; None: the searcher has none
    brackets: list[Bracket]
    notes: list[str]
    trials: list[Trial]

    # Only the last line of a search that was followed to its end has them.
    states: list[tuple[float, str]] | None = None  # each state with the unix time when it was first seen
    tasks_of_others: list[str] | None = None  # names of what else ran or waited when it was submitted
    reason: str | None = None  # why it did not complete, a sentence; None: it did

    @property
    def best(self) -> Trial | None:
        """The trial with the best evaluation; None before the first one."""
        return next((trial for trial in self.ranked if trial.best is not None), None)

    @property
    def ranked(self) -> list[Trial]:
        """The trials, those with the best evaluation first, and those without one last."""
        sign = 1 if self.smaller_is_better else -1
        return sorted(
            self.trials,
            key=lambda trial: (
                trial.best is None,
                sign * trial.best.value if trial.best else 0.0,
                trial.number,
            ),
        )


class SourceRun(FiniteModel):
    """The run that was searched around."""

    matrix: str
    campaign: str
    run_id: str
    attempt: int
    specification: RunSpec
    code_digest: Sha256


class Search(FiniteModel):
    """One search."""

    schema_version: Literal[1] = SCHEMA_VERSION
    name: str  # of its file
    stack: str
    run: SourceRun
    file: dict[str, Any]  # the content of its file
    started: AwareDatetime
    ended: AwareDatetime
    status: Literal["ok", "failed", "interrupted"]
    reason: str | None  # one sentence; None exactly when the status is ok
    progress: SearchProgress | None  # at its end, or when it was left; None: nothing was heard of it


def write_search(search: Search, folder: Path) -> None:
    """Writes search.json atomically. An existing one is never replaced.

    Raises:
        UserError: there is one, or it would not be valid.
    """
    write_once(search, folder / SEARCH, f"The search result {folder / SEARCH}")
