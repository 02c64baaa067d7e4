"""The state of a running campaign, read from its files alone: nothing is locked or written."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Final

from experiments.campaign.attempt import STARTED, Attempt
from experiments.campaign.campaign import Campaign
from experiments.campaign.concurrent import same_moment
from experiments.campaign.estimates import Estimates
from experiments.campaign.plan import PlannedRun
from experiments.campaign.running_note import CommandNote
from experiments.cluster.progress import Progress
from experiments.records.record import Record
from experiments.util.files import utc_now

ABANDONED: Final = "Its controller ended and left no record; the next `run` records it as interrupted."


class LiveRun:
    """A run in progress, as far as its controller has heard of it."""

    def __init__(self, attempt: Attempt, run: PlannedRun) -> None:
        self.attempt = attempt
        self.run = run
        self.started = attempt.started
        self.together = attempt.together
        self.progress = Progress(run.specification.work.epochs)
        self.heard: float | None = None  # Unix seconds of its last event, by this machine's clock
        self._read = 0  # bytes

    def read(self) -> None:
        """Reads what was added since the last call; leaves an incomplete line for the next."""
        try:
            with self.attempt.live.open("rb") as file:
                file.seek(self._read)
                content = file.read()
            self.heard = self.attempt.live.stat().st_mtime
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            self.progress.add(line)

    @property
    def silent_s(self) -> float:
        """Seconds since its last event, or since it began."""
        return max(0.0, time.time() - (self.heard or self.started.timestamp()))


@dataclass(frozen=True)
class Trouble:
    """An attempt that did not end well."""

    run_id: str
    attempt: int
    status: str
    reason: str
    started: datetime

    @property
    def text(self) -> str:
        """All of it on one line."""
        return f"{self.run_id}, attempt {self.attempt}, {self.status}: {self.reason}"


@dataclass(frozen=True)
class Remaining:
    """The time left, as far as it is known."""

    seconds: float
    unknown: int  # runs whose time can't be estimated


@dataclass(frozen=True)
class CampaignState:
    """A campaign at one moment; warm-ups are not counted."""

    done: int
    failed: int  # by the running command; if one user's run fails, all count, because all are run again
    to_come: int
    not_runnable: int
    running: list[LiveRun]
    next: list[PlannedRun]  # what has not started, in order, warm-ups included
    troubles: list[Trouble]  # the newest first
    remaining: Remaining


class Observer:
    """Reads a campaign again and again, but only once what can no longer change."""

    def __init__(self, campaign: Campaign, note: CommandNote, estimates: Estimates) -> None:
        """`estimates` are from all current results; later records are added."""
        self.campaign = campaign
        self.note = note
        self._estimates = estimates
        self._runs = {run.run_id: run for run in campaign.file.plan}
        self._records: dict[Path, Record] = {}
        self._live: dict[Path, LiveRun] = {}
        self._lost: dict[Path, Attempt] = {}
        self._read_records()

    def look(self) -> CampaignState:
        """The campaign's state now.

        Raises:
            UserError: a record is damaged.
        """
        for record in self._read_records():
            self._estimates.add(record)
        running = list(self._live.values())
        for each in running:
            each.read()
        ok = self._done()
        begun = {each.run.run_id for each in running}
        tried = {record.run_id for record in self._records.values() if record.started >= self.note.started}
        to_come = [self._runs[run_id] for run_id in self.note.todo if run_id not in ok | begun | tried]
        return CampaignState(
            done=len(ok.intersection(self.note.selected)),
            failed=len((tried - ok - begun).intersection(self.note.selected)),
            to_come=sum(not run.warm_up for run in to_come),
            not_runnable=len(self.note.not_runnable),
            running=running,
            next=to_come,
            troubles=self._troubles(),
            remaining=self._remaining(running, to_come),
        )

    def seconds_left(self, each: LiveRun) -> float | None:
        """The time left for a running run: from its own steps, or before these from what such runs took."""
        left = each.progress.seconds_left
        takes = self._takes(each.run)
        if left is not None or takes is None:
            return left
        return max(0.0, takes - (utc_now() - each.started).total_seconds())

    def _done(self) -> set[str]:
        """The runs that the command considers done, and users' runs whose partners may still end ok."""
        records = sorted(self._records.values(), key=lambda record: record.attempt)
        ok = {record.run_id: record.together for record in records if record.ok}  # the newest
        now = {each.run.run_id: each.together for each in self._live.values()}

        def whole(run: PlannedRun) -> bool:
            others = [now.get(other, ok.get(other)) for other in run.together if other != run.run_id]
            return not others or same_moment([ok[run.run_id], *others])

        return {run_id for run_id in ok if whole(self._runs[run_id])}

    def _read_records(self) -> list[Record]:
        """Reads what is new; returns the new records."""
        new = []
        for path in sorted(self.campaign.folder.glob(f"*/[0-9]*/{STARTED}")):
            folder, run = path.parent, self._runs.get(path.parent.parent.name)
            if folder in self._records or run is None:
                continue
            attempt = Attempt(folder)
            lost = attempt.abandoned
            # After `abandoned`: a controller may write the record and end in between.
            if attempt.recorded:
                self._records[folder] = attempt.record()
                new.append(self._records[folder])
                self._live.pop(folder, None)
                self._lost.pop(folder, None)
            elif lost:
                self._live.pop(folder, None)
                self._lost[folder] = attempt
            elif folder not in self._live:
                self._live[folder] = LiveRun(attempt, run)
        return new

    def _troubles(self) -> list[Trouble]:
        troubles = [
            Trouble(record.run_id, record.attempt, record.status, record.reason, record.started)
            for record in self._records.values()
            if record.reason is not None
        ]
        troubles += [
            Trouble(folder.parent.name, attempt.number, "lost", ABANDONED, attempt.started)
            for folder, attempt in self._lost.items()
        ]
        return sorted(troubles, key=lambda trouble: trouble.started, reverse=True)

    def _takes(self, run: PlannedRun) -> float | None:
        """Seconds that a run takes: the mean of such runs, or else of this campaign's runs."""
        known = self._estimates.of(run.specification)
        if known is not None:
            return known
        own = [
            record.total_s
            for record in self._records.values()
            if record.ok
            and record.total_s is not None
            and record.together is None
            and record.standin is None
            and not self._runs[record.run_id].warm_up
        ]
        return fmean(own) if own else None

    def _remaining(self, running: list[LiveRun], to_come: list[PlannedRun]) -> Remaining:
        now = [self.seconds_left(each) for each in running]
        later = [self._takes(run) for run in to_come]
        known = [each for each in later if each is not None]
        # Running runs run at the same time: only the longest counts.
        longest = max((each for each in now if each is not None), default=0.0)
        return Remaining(sum(known) + longest, now.count(None) + later.count(None))
