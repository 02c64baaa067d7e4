"""Attempts at runs, alone or several at once. Each gets its record, however it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from experiments.campaign.attempt import Attempt, name_on_cluster
from experiments.campaign.campaign import Campaign, environment_of
from experiments.campaign.code_archive import source_digest
from experiments.campaign.concurrent import Group
from experiments.campaign.plan import PlannedRun
from experiments.cluster.description import Cluster, PreparedCluster
from experiments.cluster.environment import Environment
from experiments.cluster.leftovers import end_runs
from experiments.cluster.playbooks import TICK_S, Playbooks
from experiments.cluster.progress import Follower, Progress
from experiments.cluster.provenance import Git
from experiments.cluster.quiet import Quiet
from experiments.records.compose import compose
from experiments.records.observation import Observation, Request
from experiments.records.record import BY_STANDIN, ConcurrentStart, Record, write_record
from experiments.util.files import utc_now
from experiments.util.interrupts import Interrupted

DEAD_CONTROLLER: Final = (
    "The controller ended in the middle of the run and left no record (killed, switched off, or without room "
    "to write it)."
)


class RunningAttempt:
    """One attempt while it runs: its playbook, and the follower of its progress."""

    def __init__(
        self,
        playbooks: Playbooks,
        campaign: Campaign,
        cluster: Cluster,
        run: PlannedRun,
        quiet: Quiet | None,
        together: ConcurrentStart | None = None,
    ) -> None:
        """Makes its folder; starts nothing."""
        self.run = run
        self.attempt = campaign.new_attempt(run.run_id)
        self.observation = Observation(started=utc_now(), quiet=quiet, together=together)
        self.attempt.begin(self.observation.started, together)
        self.progress = Progress(run.specification.work.epochs)
        self.finished = False  # its playbook ended by itself, successfully or not
        self.error: Exception | None = None  # an exception in its own thread
        self._playbooks = playbooks
        name = name_on_cluster(campaign.file.name, self.attempt.number)
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

    def play(self, tick: Callable[[], None], **variables: Any) -> None:
        """Runs it to its end. A signal ends the playbook; what runs on the nodes is left to `stop`."""
        attempt, observation = self.attempt, self.observation
        self._follower.start()
        try:
            outcome = self._playbooks.play(
                "run",
                attempt.ansible_log,
                self._variables | variables,
                variables_file=attempt.variables,
                tick=tick,
            )
            observation.exit_code, observation.total_s = outcome.exit_code, outcome.seconds
            observation.ended = utc_now()
            self.finished = True
        except Interrupted:
            signal = self._playbooks.interrupts.received[0]
            observation.interrupted = f"The controller was told to stop ({signal.name}) during the run."
        finally:
            self._follower.stop()

    @property
    def fault(self) -> str | None:
        """Why `watch` can't see all of it; None if it can."""
        fault = self._follower.fault
        return None if fault is None else f"{self.attempt.live} is incomplete: {fault}."


class AttemptRunner:
    """Runs the attempts of a campaign."""

    def __init__(self, playbooks: Playbooks, campaign: Campaign, prepared: PreparedCluster, git: Git) -> None:
        self._playbooks = playbooks
        self._screen = playbooks.screen
        self._campaign = campaign
        self._cluster = prepared.cluster
        self._environment = environment_of(prepared.cluster, git)
        self._source_digest = source_digest(campaign.archive)

    def recover(self) -> None:
        """Records the attempts of dead controllers; preparing has already ended what ran on the nodes."""
        for run, attempt in self._campaign.abandoned_attempts():
            observation = Observation(
                started=attempt.started, interrupted=DEAD_CONTROLLER, together=attempt.together
            )
            # The environment from the campaign's start: the attempt never saw the current one.
            record = self._compose(run, attempt, observation, self._campaign.file.environment)
            write_record(record, attempt.folder)
            self._screen.line(
                f"Recorded as interrupted: {run.run_id}, attempt {attempt.number:02d}. {DEAD_CONTROLLER}",
                "yellow",
            )

    def run(
        self, group: Group, quiet: Quiet | None, position: str, estimate: Callable[[Sequence[Progress]], str]
    ) -> list[Record]:
        """Makes one attempt at each run of a group, all at once; writes and returns their records.

        Args:
            group: usually a single run.
            quiet: how quiet the nodes are.
            position: the runs' place in the campaign, for the screen.
            estimate: the time left, in words.

        Raises:
            Interrupted: a signal ended it; nothing of it is still running, and the records say so.
        """
        begun = utc_now()
        starts = [group.start(place, begun) for place in range(len(group.runs))]
        attempts = [
            RunningAttempt(self._playbooks, self._campaign, self._cluster, run, quiet, start)
            for run, start in zip(group.runs, starts, strict=True)
        ]
        shown = [each.progress.milestone for each in attempts]

        def tick() -> None:
            nonlocal shown
            milestones = [each.progress.milestone for each in attempts]
            now, shown = milestones != shown, milestones
            text = " · ".join(f"{each.run.run_id} · {each.progress.text()}" for each in attempts)
            left = estimate([each.progress for each in attempts])
            self._screen.status(f"{position} · {text}{left}", now=now)

        if group.why is not None and not self._clear_nodes(attempts):
            return self._write_records(attempts, position)
        self._screen.status(f"{position} · {group.name} · starting", now=True)
        try:
            if group.why is None:
                attempts[0].play(tick, **group.variables(0))
            else:
                _play_concurrently(attempts, [group.variables(place) for place in range(len(attempts))], tick)
        finally:
            self._screen.clear_status()
            for fault in filter(None, (each.fault for each in attempts)):
                self._screen.line(fault, "yellow")
            unfinished = [each for each in attempts if not each.finished]
            if unfinished:
                # Whatever ended them here, nothing may keep running on the nodes.
                notes = self.stop(unfinished[0].attempt)
                for each in unfinished:
                    each.observation.notes += notes
        return self._write_records(attempts, position)

    def _clear_nodes(self, attempts: Sequence[RunningAttempt]) -> bool:
        """Ends what still runs on the nodes, once for all attempts; returns whether that succeeded."""
        notes = self.stop(attempts[0].attempt)
        for each in attempts:
            each.observation.never_began = f"{notes[0].rstrip('.')}." if notes else None
        return not notes

    def stop(self, attempt: Attempt) -> list[str]:
        """Ends whatever runs on the nodes; returns what the record should note if that failed."""
        fault = end_runs(self._playbooks, attempt.folder / "stop.log")
        return [] if fault is None else [f"Ending what ran on the nodes failed: {fault}"]

    def _write_records(self, attempts: Sequence[RunningAttempt], position: str) -> list[Record]:
        """Writes the records. An attempt that raised an exception here is recorded by the next command."""
        records = []
        for each in (each for each in attempts if each.error is None):
            each.observation.epochs_seen = each.progress.epoch_figures
            each.observation.ended = each.observation.ended or utc_now()
            record = self._compose(each.run, each.attempt, each.observation, self._environment)
            write_record(record, each.attempt.folder)
            self._show(record, position, each.attempt)
            records.append(record)
        for each in attempts:
            if each.error is not None:
                raise each.error
        if any(each.observation.interrupted is not None for each in attempts):
            raise Interrupted
        return records

    def _compose(
        self, run: PlannedRun, attempt: Attempt, observation: Observation, environment: Environment
    ) -> Record:
        request = Request(
            matrix=self._campaign.file.matrix,
            campaign=self._campaign.file.name,
            attempt=attempt.number,
            specification=run.specification,
            code_digest=self._campaign.file.identity.code,
            source_digest=self._source_digest,
            uid=self._cluster.uid,
            environment=environment,
        )
        return compose(request, observation, attempt.outputs, attempt.ansible_log)

    def _show(self, record: Record, position: str, attempt: Attempt) -> None:
        text = f"{position} · {record.run_id} · {record.status}"
        if record.ok and record.specification.bare:
            assert record.launch is not None
            took = f"an empty program, started and ended in {record.launch.seconds:.1f} s"
            self._screen.line(f"{text} · {took if record.standin is None else BY_STANDIN}", "green")
        elif record.ok:
            assert record.train_s is not None and record.total_s is not None
            name = record.specification.work.data.metric.replace("_", " ")
            quality = f" · {name} {record.quality:.3f}" if record.quality is not None else ""
            took = f"trained {record.train_s:.1f} s of {record.total_s:.1f} s"
            text += f" · {took if record.standin is None else BY_STANDIN}{quality}"
            digest = record.weights_digest
            text += f" · weights {digest[:8]}" if digest else " · weights not reported"
            self._screen.line(text, "green")
        else:
            self._screen.line(f"{text}: {record.reason} Logs: {attempt.folder}", "red")


class _Abandoned(Exception):
    """The thread that waits for the others has failed."""


def _play_concurrently(
    attempts: Sequence[RunningAttempt], variables: Sequence[dict[str, Any]], tick: Callable[[], None]
) -> None:
    """Plays each in a thread of its own; returns when all have ended. Only the calling thread draws."""
    abandoned = threading.Event()

    def check() -> None:
        if abandoned.is_set():
            raise _Abandoned

    def play(each: RunningAttempt, extra: dict[str, Any]) -> None:
        try:
            each.play(check, **extra)
        except Exception as error:  # raised again once all have ended and the others have records
            each.error = error

    threads = [
        threading.Thread(target=play, args=pair, name=pair[0].run.run_id)
        for pair in zip(attempts, variables, strict=True)
    ]
    try:
        for thread in threads:
            thread.start()
        while alive := [thread for thread in threads if thread.is_alive()]:
            tick()
            alive[0].join(TICK_S)
    except BaseException:
        abandoned.set()
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
