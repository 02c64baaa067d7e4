"""Searching around a recorded run: from its submission to search.json, however the search ends."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import yaml
from pydantic import ValidationError

from experiments.campaign.preparation import locked_cluster
from experiments.cluster.leftovers import end_runs
from experiments.cluster.playbooks import Outcome, Playbooks, failure_message, last_lines
from experiments.cluster.stack_folders import stacks_with
from experiments.cluster.tail import Tail
from experiments.records.record import RECORD, Record, read_record
from experiments.records.search import Search, SearchProgress, SourceRun, write_search
from experiments.util.errors import UserError
from experiments.util.files import campaign_name, utc_now
from experiments.util.interrupts import Interrupted
from experiments.util.paths import EXPERIMENTS
from experiments.util.words import listed
from training.errors import first_line
from training.spec import Work

FILES: Final = EXPERIMENTS / "search"
DEFAULT: Final = "adaptive_asha"
NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
RESULTS: Final = "searches"  # in the folder of all results
LIVE: Final = "live.jsonl"
OUTPUTS: Final = "outputs"
PROGRESS: Final = "progress.jsonl"  # in it, as the stack's client writes it
ANSIBLE_LOG: Final = "ansible.log"
FOLLOW: Final = "follow.json"
TASKS: Final = "search"  # the role of a stack that can search has tasks/search.yml


@dataclass(frozen=True)
class SearchRequest:
    """What to search, and around which run."""

    record: Record
    name: str
    content: dict[str, Any]  # of the search's file
    stack: str


class Display(Protocol):
    """How a search is shown to a person; the caller decides."""

    def begins(self, request: SearchRequest) -> None:
        """It is about to be submitted."""

    def goes_on(self, progress: SearchProgress, first: SearchProgress) -> None:
        """It has come as far as `progress`; `first` is the first that was known of it."""

    def ends(self, search: Search, folder: Path) -> None:
        """Its results are in `folder`."""


def find_request(record: str, file: str | None, stack: str | None) -> SearchRequest:
    """What a person asks for.

    Args:
        record: path of a run's record, or of the folder that it is in.
        file: path of the search's file, or its name in experiments/search/; None = the default.
        stack: the stack that searches; None = the run's own, or else the only one that can.

    Raises:
        UserError: something of it is missing or not valid.
    """
    if not record:
        raise UserError(
            "Name the run to search around (RECORD= with make): "
            "results/<matrix>/<campaign>/<run>/<attempt>/record.json."
        )
    path = Path(record)
    found = read_record(path / RECORD if path.is_dir() else path)
    work = found.specification.work
    if work.data.has_own_loop:
        raise UserError(
            f"{found.run_id} ran {work.data.name}, which has a loop of its own: a search can't give it "
            "values, nor know what it reached. Search around a run of a workload."
        )
    if found.specification.bare:
        raise UserError(
            f"{found.run_id} started an empty program, and so would every trial: search around a run that "
            "trained."
        )
    conditions = found.specification.conditions
    if conditions.evaluation == "none":
        raise UserError(
            f"{found.run_id} was not evaluated, and nor would its trials be: search around a run that was."
        )
    if conditions.tokenizing == "in_run" or conditions.trace is not None:
        what = "made its tokens itself" if conditions.tokenizing == "in_run" else "was traced"
        raise UserError(f"{found.run_id} {what}, and so would every trial: search around a run without that.")
    name, content = _read_file(file or DEFAULT)
    return SearchRequest(found, name, content, _searching_stack(found.specification.stack, stack))


def _searching_stack(own: str, asked: str | None) -> str:
    can = stacks_with(TASKS)
    if asked is not None:
        if asked not in can:
            raise UserError(
                f"{asked} can't search: only {listed(can)} can." if can else "No stack can search."
            )
        return asked
    if own in can:
        return own
    if len(can) == 1:
        return can[0]
    if not can:
        raise UserError("No stack can search: none of their roles has tasks/search.yml.")
    raise UserError(f"{listed(can)} can search: choose one with --stack.")


def _read_file(asked: str) -> tuple[str, dict[str, Any]]:
    path = Path(asked)
    if not path.is_file() and "/" not in asked and (FILES / f"{asked}.yml").is_file():
        path = FILES / f"{asked}.yml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        there = ", ".join(sorted(each.stem for each in FILES.glob("*.yml")))
        raise UserError(f"There is no search {asked}: give the path of a file, or one of {there}.") from error
    except OSError as error:
        raise UserError(f"The search {path} can't be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"The search {path} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict) or not isinstance(content.get("searcher"), dict):
        raise UserError(
            f"The search {path} is no mapping with `searcher` and `hyperparameters`: see {FILES}."
        )
    values = content.get("hyperparameters")
    if not isinstance(values, dict) or not values:
        raise UserError(
            f"The search {path} has no hyperparameters: name the fields of the work to search for."
        )
    for unknown in sorted(set(values) - set(Work.model_fields)):
        near = difflib.get_close_matches(str(unknown), Work.model_fields, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(f"{path}: {unknown} is no field of the work{hint}; docs/reference.md lists them.")
    if not NAME.fullmatch(path.stem):
        raise UserError(
            f"The search {path} gives folders its name: rename the file, with letters, digits, dots, hyphens "
            "and underscores only."
        )
    return path.stem, content


def run_search(
    playbooks: Playbooks, results: Path, request: SearchRequest, display: Display, *, break_lock: bool
) -> int:
    """Searches to the end, and keeps what was reached; returns the exit code.

    Args:
        playbooks: how playbooks are called.
        results: the folder with the results of all matrices.
        request: what to search.
        display: shows it.
        break_lock: take the cluster's lock even from a holder that may still be alive.

    Raises:
        UserError: the cluster's lock can't be had.
        Interrupted: a signal came before anything was started.
    """
    with locked_cluster(playbooks, results, "search", break_lock) as place:
        started = utc_now()
        folder = results / RESULTS / request.name / campaign_name(started)
        (folder / OUTPUTS).mkdir(parents=True)
        running = _Running(playbooks, request, folder, place, display)
        search = running.play(started)
        write_search(search, folder)
    display.ends(search, folder)
    if search.status == "interrupted":
        return playbooks.interrupts.exit_status
    return 0 if search.status == "ok" else 1


class _Running:
    """One search while it runs: its playbook, and what its stack's client tells of it."""

    def __init__(
        self, playbooks: Playbooks, request: SearchRequest, folder: Path, place: Path, display: Display
    ) -> None:
        self._playbooks = playbooks
        self._request = request
        self._folder = folder
        self._place = place
        self._display = display
        self._tail: Tail | None = None
        self._lines: list[SearchProgress] = []  # the first, and the newest
        self._fault: str | None = None  # why live.jsonl is not complete

    def play(self, started: datetime) -> Search:
        """Runs it to its end, or ends it on the cluster if a signal comes."""
        self._display.begins(self._request)
        outcome, interrupted, fault = None, None, None
        log = self._folder / ANSIBLE_LOG
        try:
            # Its variables are where those of a killed controller are looked for.
            variables_file = self._place / "trials-vars.json"
            outcome = self._playbooks.play(
                "trials", log, self._variables(), variables_file=variables_file, tick=self._tick
            )
        except Interrupted:
            interrupted = self._playbooks.interrupts.received[0].name
        finally:
            if self._tail is not None:
                self._tail.stop()
            self._playbooks.screen.clear_status()
            if self._fault is not None:
                self._playbooks.screen.line(
                    f"{self._folder / LIVE} is not complete: {self._fault}.", "yellow"
                )
            if outcome is None:
                # Whatever ended it here, nothing of it may keep running.
                fault = end_runs(self._playbooks, self._folder / "stop.log")
        status, reason = self._end(outcome, interrupted, fault)
        record = self._request.record
        return Search(
            name=self._request.name,
            stack=self._request.stack,
            run=SourceRun(
                matrix=record.matrix,
                campaign=record.campaign,
                run_id=record.run_id,
                attempt=record.attempt,
                specification=record.specification,
                code_digest=record.code_digest,
            ),
            file=self._request.content,
            started=started,
            ended=utc_now(),
            status=status,
            reason=reason,
            progress=self._progress(),
        )

    def _end(
        self, outcome: Outcome | None, interrupted: str | None, fault: str | None
    ) -> tuple[Literal["ok", "failed", "interrupted"], str | None]:
        if outcome is None:
            left = f" Ending it on the cluster failed: {fault}" if fault else ""
            return "interrupted", f"The command was told to stop ({interrupted}).{left}"
        if outcome.good:
            return "ok", None
        log = self._folder / ANSIBLE_LOG
        lines = last_lines(log, 3)
        return "failed", failure_message(log) or f"playbooks/trials.yml failed: {' '.join(lines)}"

    def _variables(self) -> dict[str, Any]:
        record = self._request.record
        return {
            "search_stack": self._request.stack,
            "search_label": f"{self._request.name}-{self._folder.name}",
            "search_run_id": record.run_id,
            "search_spec": record.specification.model_dump(mode="json"),
            "search_batches": record.specification.work.steps,
            "search_code_digest": record.code_digest,
            "search_wanted": self._request.content,
            "search_dest": str((self._folder / OUTPUTS).absolute()),
            "search_follow": str((self._place / FOLLOW).absolute()),
        }

    def _tick(self) -> None:
        if self._tail is None:
            follow = self._place / FOLLOW
            if not follow.is_file():
                return
            how = json.loads(follow.read_text(encoding="utf-8"))
            self._tail = Tail(how["shell"], how["log"], self._take)
            self._tail.start()
        if self._lines:
            self._display.goes_on(self._lines[-1], self._lines[0])

    def _take(self, line: str) -> None:
        try:
            progress = SearchProgress.model_validate_json(line)
        except ValidationError as error:
            # Only the last line may be there in part.
            self._fault = self._fault or (first_line(error) if line.endswith("\n") else None)
            return
        self._lines = [*self._lines[:1], progress]
        if self._fault is not None:
            return
        try:
            with (self._folder / LIVE).open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:  # no reason to end the search
            self._fault = first_line(error)

    def _progress(self) -> SearchProgress | None:
        """What the client wrote last: in its own file, if that was fetched, or else what arrived here."""
        path = self._folder / OUTPUTS / PROGRESS
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        for number, line in reversed(list(enumerate(lines, start=1))):
            try:
                return SearchProgress.model_validate_json(line)
            except ValidationError as error:
                if number < len(lines) or line.endswith("\n"):  # only the last one may be there in part
                    fault = f"{path}: line {number} can't be used ({first_line(error)})."
                    self._playbooks.screen.line(fault, "yellow")
        return self._lines[-1] if self._lines else None
