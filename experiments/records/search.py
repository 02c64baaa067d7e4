"""search.json: a search around a run, and what every trial was given and reached."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field, ValidationError

from experiments.records.record import Status
from experiments.util.errors import UserError
from experiments.util.files import write_whole
from experiments.util.models import FiniteModel
from training.settings import Sha256
from training.spec import RunSpec, explain

SEARCH: Final = "search.json"
SCHEMA_VERSION: Final = 1

#: `end`: it did all its batches. `stopped`: the searcher stopped it early. `killed`: somebody ended it or
#: the search. `waiting` and `running`: the search was left before the trial's end.
Outcome = Literal["end", "stopped", "failed", "killed", "waiting", "running"]


class Reached(FiniteModel):
    """An evaluation."""

    batches: int = Field(ge=0)  # after which it was made
    value: float  # of the searcher's metric


class Trial(FiniteModel):
    """One trial."""

    number: int
    given: dict[str, Any]  # its values, by the names of fields of the work
    state: str  # in the stack's own words
    outcome: Outcome
    rung: int | None = None  # at which it was stopped, from 1; None: not stopped, or it is not known
    rungs: int | None = None  # how many there are for it
    rung_at: int | None = None  # where that rung is, in the searcher's unit
    batches: int = Field(ge=0)  # that it did
    of: int = Field(ge=0)  # that it does if nothing stops it
    last: Reached | None = None  # evaluation
    best: Reached | None = None
    checkpoint: str | None = None  # the best one that is kept, by the stack's own name
    restarts: int = Field(default=0, ge=0)
    reason: str | None = None  # why it failed, as far as its log says


class Bracket(FiniteModel):
    """Trials that are compared with one another."""

    rungs: list[int]  # ascending, in the searcher's unit; the last is the whole length
    trials: int


class Seen(FiniteModel):
    """How far a search is: what the stack's client writes, a line of JSON for each change."""

    time: float | None = None  # unix time, by the clock of the node that follows it
    experiment: int  # the stack's number of it
    state: str
    done: float = Field(ge=0, le=1)  # of all trials' batches; a trial that has ended needs no more
    metric: str
    smaller_is_better: bool
    unit: str | None  # in which rungs are; None: the searcher has none
    brackets: list[Bracket]
    notes: list[str]
    trials: list[Trial]

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


class Searched(FiniteModel):
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
    around: Searched
    file: dict[str, Any]  # the content of its file
    started: AwareDatetime
    ended: AwareDatetime
    status: Status
    reason: str | None  # one sentence; None exactly when the status is ok
    seen: Seen | None  # its end, or how far it was when it was left; None: no trial was seen


def write_search(search: Search, folder: Path) -> None:
    """Writes search.json atomically. An existing one is never replaced.

    Raises:
        UserError: there is one, or it would not be valid.
    """
    path = folder / SEARCH
    if path.exists():
        raise UserError(f"{path} already exists; the results of searches are never replaced.")
    text = search.model_dump_json(indent=2) + "\n"
    _parse(text.encode(), path)  # never write what can't be read again
    write_whole(path, text)


def read_search(path: Path) -> Search:
    """The search in the file `path`.

    Raises:
        UserError: it can't be read or is not valid.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"The search {path} can't be read: {error.strerror}.") from error
    return _parse(content, path)


def _parse(content: bytes, path: Path) -> Search:
    try:
        version = json.loads(content)["schema_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged: it is not a JSON object with a schema_version.") from error
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version!r}; this checkout reads version {SCHEMA_VERSION}."
        )
    try:
        return Search.model_validate_json(content)
    except ValidationError as error:
        raise UserError(explain(error, str(path))) from error


def counts(trials: Sequence[Trial]) -> dict[Outcome, int]:
    """How many trials ended in which way."""
    found: dict[Outcome, int] = {}
    for trial in trials:
        found[trial.outcome] = found.get(trial.outcome, 0) + 1
    return found
