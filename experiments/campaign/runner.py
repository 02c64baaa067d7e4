"""Attempts at runs: one that is alone, or several that begin at once, each with its record in any case."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from experiments.campaign.attempt import Attempt
from experiments.campaign.campaign import Campaign, environment_of
from experiments.campaign.concurrent import Group
from experiments.campaign.plan import PlannedRun
from experiments.cluster.description import Cluster, Prepared
from experiments.cluster.environment import Environment
from experiments.cluster.playbooks import TICK_S, Playbooks, failure_message
from experiments.cluster.progress import Follower, Progress
from experiments.cluster.provenance import Git
from experiments.cluster.quiet import Quiet
from experiments.records.compose import compose
from experiments.records.observation import Asked, Happened
from experiments.records.record import Record, Together, write_record
from experiments.util.files import utc_now
from experiments.util.interrupts import Interrupted
from training.util.digest import code_digest

DEAD_CONTROLLER: Final = (
    "The controller ended in the middle of the run and left no record (killed, switched off, or without room "
    "to write it)."
)


class Trying:
    """One attempt while it goes on: its playbook, and who follows its progress."""

    def __init__(
        self,
        playbooks: Playbooks,
        campaign: Campaign,
        cluster: Cluster,
        run: PlannedRun,
        quiet: Quiet | None,
        together: Together | None = None,
    ) -> None:
        """Its folder is made; nothing of it runs yet."""
        self.run = run
        self.attempt = campaign.new_attempt(run.run_id)
        self.happened = Happened(started=utc_now(), quiet=quiet, together=together)
        self.attempt.begin(self.happened.started, together)
        self.progress = Progress(run.specification.work.epochs)
        self.finished = False  # by itself, well or not
        self.error: Exception | None = None  # what went wrong here, in a thread of its own
        self._playbooks = playbooks
        # Another campaign may have made the same run before: its folder there must not be met again.
        name = f"{campaign.file.name}-{self.attempt.folder.name}"
        run_dir = f"{cluster.shared_storage_path}/runs/{run.run_id}/{name}"
        self._follower = Follower(cluster.shell, run_dir, self.progress, self.attempt.live)
        self._variables = {
            "run_stack": run.specification.stack,
            "run_id": run.run_id,
            "run_attempt": name,
            "run_spec": run.specification.model_dump(mode="json"),
            "run_code_digest": campaign.file.identity.code,
            "run_code_archive": str(campaign.archive.absolute()),
            "run_dest": str(self.attempt.outputs.absolute()),
        }

    def play(self, tick: Callable[[], None], **variables: bool | int) -> None:
        """Runs it to its end; a signal ends it here, and what of it runs on the nodes goes on."""
        attempt, happened = self.attempt, self.happened
        self._follower.start()
        try:
            outcome = self._playbooks.play(
                "run",
                attempt.ansible_log,
                self._variables | variables,
                variables_file=attempt.variables,
                tick=tick,
            )
            happened.exit_code, happened.total_s = outcome.exit_code, outcome.seconds
            happened.ended = utc_now()
            self.finished = True
        except Interrupted:
            signal = self._playbooks.interrupts.received[0]
            happened.interrupted = (
                f"The controller was told to stop ({signal.name}) while the run was under way."
            )
        finally:
            self._follower.stop()

    @property
    def fault(self) -> str | None:
        """What `watch` can't see of it."""
        fault = self._follower.fault
        return None if fault is None else f"{self.attempt.live} is not complete: {fault}."


class Attempts:
    """Makes the attempts of a campaign."""

    def __init__(self, playbooks: Playbooks, campaign: Campaign, prepared: Prepared, git: Git) -> None:
        self._playbooks = playbooks
        self._screen = playbooks.screen
        self._campaign = campaign
        self._cluster = prepared.cluster
        self._environment = environment_of(prepared.cluster, git)
        self._source_digest = code_digest()

    def recover(self) -> None:
        """Records what a dead controller left; the preparation has ended what ran on the nodes."""
        for run, attempt in self._campaign.left_behind():
            happened = Happened(
                started=attempt.started, interrupted=DEAD_CONTROLLER, together=attempt.together
            )
            # With the cluster as it was when the campaign began: what it is now, that attempt never saw.
            record = self._compose(run, attempt, happened, self._campaign.file.environment)
            write_record(record, attempt.folder)
            self._screen.line(
                f"Recorded as interrupted: {run.run_id}, attempt {attempt.number:02d}. {DEAD_CONTROLLER}",
                "yellow",
            )

    def make(
        self, group: Group, quiet: Quiet | None, which: str, time_left: Callable[[Sequence[Progress]], str]
    ) -> list[Record]:
        """One attempt at each run of a group, all begun at once; their records, which are written.

        Args:
            group: of one run, mostly.
            quiet: how quiet the nodes are.
            which: the runs' place in the campaign, for whoever looks.
            time_left: how long it takes yet, in words.

        Raises:
            Interrupted: a signal ended it; nothing of it runs any more, and the records say so.
        """
        begun = utc_now()
        tries = [
            Trying(self._playbooks, self._campaign, self._cluster, run, quiet, group.together(place, begun))
            for place, run in enumerate(group.runs)
        ]
        said: list[tuple[int, bool, bool]] = []

        def tick() -> None:
            nonlocal said
            milestones = [each.progress.milestone for each in tries]
            now, said = milestones != said, milestones
            told = " · ".join(f"{each.run.run_id} · {each.progress.text()}" for each in tries)
            self._screen.status(f"{which} · {told}{time_left([each.progress for each in tries])}", now=now)

        said = [each.progress.milestone for each in tries]
        if group.why is not None and not self._cleared(tries):
            return self._close(tries, which)
        self._screen.status(f"{which} · {group.name} · starting", now=True)
        try:
            if group.why is None:
                tries[0].play(tick)
            else:
                _play_at_once(tries, [group.variables(place) for place in range(len(tries))], tick)
        finally:
            self._screen.clear_status()
            for fault in filter(None, (each.fault for each in tries)):
                self._screen.line(fault, "yellow")
            unfinished = [each for each in tries if not each.finished]
            if unfinished:
                # Whatever ended them here, nothing goes on there.
                notes = self.stop(unfinished[0].attempt)
                for each in unfinished:
                    each.happened.notes += notes
        return self._close(tries, which)

    def _cleared(self, tries: Sequence[Trying]) -> bool:
        """Ends what still runs on the nodes, once for runs that begin at once; whether that went well."""
        notes = self.stop(tries[0].attempt)
        for each in tries:
            each.happened.never_began = f"{notes[0].rstrip('.')}." if notes else None
        return not notes

    def stop(self, attempt: Attempt) -> list[str]:
        """Ends whatever runs on the nodes; what a record should say if that failed."""
        self._screen.status("ending what still runs on the nodes", now=True)
        log = attempt.folder / "stop.log"
        try:
            outcome = self._playbooks.play("stop", log, deferred=True)
            fault = None if outcome.good else failure_message(log) or f"its output is in {log.name}"
        except Interrupted:
            fault = "it was given up after a third signal"
        self._screen.clear_status()
        if fault is None:
            return []
        self._screen.line(
            f"playbooks/stop.yml failed ({fault}): something may still run on the nodes. "
            "The next run begins by ending it; by hand: ansible-playbook playbooks/stop.yml.",
            "bold red",
        )
        return [f"Ending what ran on the nodes failed: {fault}"]

    def _close(self, tries: Sequence[Trying], which: str) -> list[Record]:
        """Writes the records; one that went wrong here gets its record from the next command."""
        records = []
        for each in (each for each in tries if each.error is None):
            each.happened.epochs_seen = each.progress.epoch_figures
            each.happened.ended = each.happened.ended or utc_now()
            record = self._compose(each.run, each.attempt, each.happened, self._environment)
            write_record(record, each.attempt.folder)
            self._say(record, which, each.attempt)
            records.append(record)
        for each in tries:
            if each.error is not None:
                raise each.error
        if any(each.happened.interrupted is not None for each in tries):
            raise Interrupted
        return records

    def _compose(
        self, run: PlannedRun, attempt: Attempt, happened: Happened, environment: Environment
    ) -> Record:
        asked = Asked(
            matrix=self._campaign.file.matrix,
            campaign=self._campaign.file.name,
            attempt=attempt.number,
            specification=run.specification,
            code_digest=self._campaign.file.identity.code,
            source_digest=self._source_digest,
            uid=self._cluster.uid,
            environment=environment,
        )
        return compose(asked, happened, attempt.outputs, attempt.ansible_log)

    def _say(self, record: Record, which: str, attempt: Attempt) -> None:
        text = f"{which} · {record.run_id} · {record.status}"
        if record.ok:
            assert (
                record.train_s is not None
                and record.total_s is not None
                and record.weights_digest is not None
            )
            last = record.epochs[-1]
            accuracy = (
                f" · accuracy {last.validation_accuracy:.3f}" if last.validation_accuracy is not None else ""
            )
            text += f" · trained {record.train_s:.1f} s of {record.total_s:.1f} s{accuracy}"
            text += f" · weights {record.weights_digest[:8]}"
            self._screen.line(text, "green")
        else:
            self._screen.line(f"{text}: {record.reason} Logs: {attempt.folder}", "red")


class _GivenUp(Exception):
    """The thread that waits for the others has failed."""


def _play_at_once(
    tries: Sequence[Trying], variables: Sequence[dict[str, bool | int]], tick: Callable[[], None]
) -> None:
    """Plays each in a thread of its own, and returns when all have ended; only this thread draws."""
    given_up = threading.Event()

    def look() -> None:
        if given_up.is_set():
            raise _GivenUp

    def play(each: Trying, told: dict[str, bool | int]) -> None:
        try:
            each.play(look, **told)
        except Exception as error:  # raised once all have ended and have their records
            each.error = error

    threads = [
        threading.Thread(target=play, args=pair, name=pair[0].run.run_id)
        for pair in zip(tries, variables, strict=True)
    ]
    try:
        for thread in threads:
            thread.start()
        while living := [thread for thread in threads if thread.is_alive()]:
            tick()
            living[0].join(TICK_S)
    except BaseException:
        given_up.set()
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
