"""`watch`: shows a matrix that another terminal runs, live, until it ends. It only reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from experiments.campaign.campaign import campaigns, open_campaign
from experiments.campaign.estimates import Estimates
from experiments.campaign.running_note import CommandNote, read_note, read_notes
from experiments.cluster.playbooks import last_lines
from experiments.console.observe import CampaignState, Observer
from experiments.console.tables import show_campaign
from experiments.console.watch_view import (
    TROUBLES_SHOWN,
    counts,
    headline,
    picture,
    problems,
    rank_text,
    remaining_text,
    silence,
)
from experiments.matrix.loading import load_matrix
from experiments.util.interrupts import Interrupts
from experiments.util.screen import Screen

LOOK_EVERY_S: Final = 1.0  # not more often: on the testbed this machine is also the one being measured


def watch(results: Path, matrix: str | None, screen: Screen, interrupts: Interrupts) -> int:
    """Shows the matrix (a name or path; None: whichever is running) until its command ends.

    Returns the exit code. 0: all requested runs are done; 1: they are not, or the command was killed; 128 and
    the signal's number if a signal ended the watching.

    Raises:
        UserError: there is no such matrix, or a file of it is damaged.
    """
    name = Path(matrix).stem if matrix is not None else None
    if matrix is not None and not campaigns(results / Path(matrix).stem):
        load_matrix(matrix)  # raises for a misspelt name, which would be waited for in vain
    watcher = _Watcher(results, name, screen)
    while not interrupts.received:
        status = watcher.look()
        if status is not None:
            return status
        if screen.gone:
            return 1
        interrupts.wait(LOOK_EVERY_S)
    screen.clear_status()
    screen.line("Stopped watching; the matrix keeps running.")
    return interrupts.exit_status


class _Watcher:
    """Finds the command that runs a matrix, and follows it to its end."""

    def __init__(self, results: Path, name: str | None, screen: Screen) -> None:
        self._results = results
        self._name = name
        self._screen = screen
        self._path: Path | None = None  # the followed command's note
        self._note: CommandNote | None = None
        self._observer: Observer | None = None
        self._printer = LinePrinter(screen)

    def look(self) -> int | None:
        """Shows the current state; returns the exit code once the command has ended."""
        if self._path is None:
            self._find()
        if self._path is None or self._note is None:
            self._wait()
            return None
        note = read_note(self._path)
        if note is not None and not note.alive:
            note = read_note(self._path)  # it may have ended normally in between
            if note is not None:
                return self._killed(note) if note.exit_code is None else self._ended(note)
        if note is None:
            return self._ended(self._note)
        self._note = note
        self._show(note)
        return None

    def _find(self) -> None:
        """Finds the newest live command, preferably with a campaign; else the newest that left its note."""
        notes = read_notes(self._results)
        found = [each for each in notes if self._name is None or each[1].matrix == self._name]
        # A command without a campaign may be about to find that another one holds the cluster's lock.
        alive = [(path, note) for path, note in found if note.alive]
        found = [each for each in alive if each[1].campaign is not None] or alive or found
        if found:
            self._path, self._note = found[0]

    def _wait(self) -> None:
        what = f"a campaign of {self._name}" if self._name is not None else "a campaign"
        others = {note.matrix for _, note in read_notes(self._results) if note.alive}
        other = f" (running now: {', '.join(sorted(others))})" if others else ""
        self._say(f"waiting for {what} to start{other}; Ctrl-C stops waiting")

    def _show(self, note: CommandNote) -> None:
        observer = self._observe(note)
        if observer is None:
            kept = f" · {note.detached.keeper}" if note.detached is not None else ""
            self._say(f"{note.matrix}{kept} · no campaign yet · {note.doing or 'starting'}")
            return
        state = observer.look()
        name = f"{note.matrix} · campaign {note.campaign}"
        if self._screen.is_terminal:
            self._screen.picture(picture(name, observer, state, note.doing))
        else:
            self._printer.show(name, observer, state, note.doing)

    def _observe(self, note: CommandNote) -> Observer | None:
        if self._observer is None and note.campaign is not None:
            campaign = open_campaign(self._results / note.matrix / note.campaign)
            estimates = Estimates(self._results, campaign.file.identity.machines)
            self._observer = Observer(campaign, note, estimates)
        return self._observer

    def _say(self, text: str) -> None:
        # Where lines can't be replaced, once is enough.
        if self._screen.is_terminal:
            self._screen.status(text)
        else:
            self._printer.say("state", text)

    def _killed(self, note: CommandNote) -> int:
        self._screen.clear_status()
        self._screen.line(
            f"The command that ran {note.matrix} (process {note.controller['pid']}) was killed, or its "
            "machine was switched off. Its runs may still be running on the nodes: the same command ends "
            "them and resumes.",
            "bold red",
        )
        self._log(note)
        self._table(note)
        return 1

    def _ended(self, note: CommandNote) -> int:
        self._screen.clear_status()
        self._log(note)
        state = self._table(note)
        if state is None and note.exit_code == 0:
            return 0
        if state is None:
            where = "its terminal" if note.detached is None else "its log"
            self._screen.line(f"The command ended before its campaign started; {where} says why.", "red")
            return 1
        return 0 if state.done and not (state.failed or state.to_come or state.running) else 1

    def _log(self, note: CommandNote) -> None:
        """Names a detached command's log, and shows the end of it unless all went well."""
        if note.detached is None:
            return
        how = "" if note.exit_code is None else f", exit code {note.exit_code}"
        self._screen.line(f"{note.matrix} ran as {note.detached.keeper}{how}. Its log: {note.detached.log}")
        if note.exit_code != 0:
            for line in last_lines(Path(note.detached.log)):
                self._screen.line(f"  {line}")

    def _table(self, note: CommandNote) -> CampaignState | None:
        # The command may have done everything since the last look.
        observer = self._observe(note)
        if observer is None:
            return None
        state = observer.look()
        show_campaign(self._screen, observer.campaign)
        for trouble in state.troubles[:TROUBLES_SHOWN]:
            if trouble.status == "lost":
                self._screen.line(trouble.text, "yellow")
        self._screen.line(f"{note.matrix} has ended: {counts(state)}.")
        return state


class LinePrinter:
    """Prints what has changed, where lines can't be replaced."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._said: dict[str, object] = {}

    def say(self, topic: str, text: str, state: object = None, style: str = "") -> None:
        """Prints `text` once for each `state` (default: the text itself) of its `topic`."""
        state = text if state is None else state
        if self._said.get(topic) != state:
            self._said[topic] = state
            self._screen.line(text, style)

    def show(self, name: str, observer: Observer, state: CampaignState, doing: str) -> None:
        """Prints what is new in `state`."""
        told = counts(state)
        left = remaining_text(state.remaining)
        self.say("counts", f"{name} · {told}" + (f" · {left}" if left else ""), told)
        for trouble in reversed(state.troubles[:TROUBLES_SHOWN]):
            self.say(f"trouble {trouble.run_id} {trouble.attempt}", trouble.text, trouble.status, "red")
        for each in state.running:
            topic = f"{each.run.run_id} {each.attempt.number}"
            ranks = "; ".join(rank_text(rank) for rank in each.progress.ranks)
            line = headline(each, observer) + (f" · {ranks}" if ranks else "")
            silent = [bool(silence(rank)) for rank in each.progress.ranks]
            self.say(topic, line, (each.progress.milestone, any(silent)))
            for at, problem in enumerate(problems(each)):
                self.say(f"{topic} problem {at}", f"{each.run.run_id}: {problem}", True, "red")
        if not state.running and doing:
            self.say("doing", doing)
