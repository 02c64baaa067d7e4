"""The campaign loop: one run after another, each with its record, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from experiments.attempts import Attempt
from experiments.campaign import Campaign, campaigns, environment_of, open_campaign
from experiments.cluster import Prepared
from experiments.compose import Asked, Happened, compose
from experiments.errors import UserError
from experiments.files import utc_now
from experiments.interrupts import Interrupted
from experiments.matrix import Matrix
from experiments.opening import Options, TimeLeft, campaign_for
from experiments.plan import PlannedRun, make_plan
from experiments.playbooks import Playbooks, failure_message
from experiments.progress import Follower, Progress, duration
from experiments.provenance import Git, git_state
from experiments.quiet import Quiet, wait_for_quiet
from experiments.records import Environment, Record, write_record
from experiments.references import keep_references
from experiments.running import Running
from experiments.selection import nothing_to_retry, selected_runs
from experiments.session import prepared_cluster
from experiments.summary import show_campaign, show_references, show_what_is_trained
from training.digest import code_digest

DEAD_CONTROLLER: Final = (
    "The controller ended in the middle of the run and left no record (killed, switched off, or without room "
    "to write it)."
)


def run_matrix(root: Path, playbooks: Playbooks, matrix: Matrix, options: Options, running: Running) -> int:
    """Runs what is left to run of `matrix`; returns the exit status, 0 if all asked for is done and ok.

    Raises:
        UserError: it can't begin or can't go on.
        Interrupted: a signal ended it; what was under way is recorded, and nothing runs on.
    """
    results = root / "results"
    with prepared_cluster(playbooks, matrix, results, "run", options.break_lock) as prepared:
        git = git_state(root)
        # Of older campaigns, too: the next one may not be the one that a dead controller left.
        for folder in campaigns(results / matrix.name):
            try:
                _Loop(playbooks, open_campaign(folder), prepared, git).recover()
            except UserError as error:
                playbooks.screen.line(f"Passed over: {error}", "yellow")
        plan = make_plan(matrix, prepared.cluster, prepared.dataset.digest)
        campaign = campaign_for(root, playbooks, matrix, prepared, git, plan, options)
        keep_references(campaign.folder, campaign.file.references, prepared.references)
        selected = selected_runs(campaign, plan, options.only, options.retry)
        if options.retry is not None and not selected:
            playbooks.screen.line(nothing_to_retry(options.only, options.retry))
            return 0
        show_what_is_trained(playbooks.screen, campaign)
        time_left = TimeLeft(options.max_time_s, results)
        status = _Loop(playbooks, campaign, prepared, git).go(plan, selected, time_left, running)
    return show_references(playbooks.screen, campaign) or status


class _Loop:
    """One command's way through a campaign."""

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
            happened = Happened(started=attempt.started, interrupted=DEAD_CONTROLLER)
            # With the cluster as it was when the campaign began: what it is now, that attempt never saw.
            record = self._compose(run, attempt, happened, self._campaign.file.environment)
            write_record(record, attempt.folder)
            self._screen.line(
                f"Recorded as interrupted: {run.run_id}, attempt {attempt.number:02d}. {DEAD_CONTROLLER}",
                "yellow",
            )

    def go(self, plan: list[PlannedRun], selected: list[PlannedRun], left: TimeLeft, running: Running) -> int:
        """Runs what is not done of `selected`, shows the table, returns the exit status.

        `plan` has the campaign's runs and warm-ups; which of them can be made may have changed since it began
        (the link is set to another rate, say).
        """
        possible = [run for run in selected if run.cannot_run is None]
        todo = self._lacking(possible)
        done = len(possible) - len(todo)
        if done:
            self._screen.line(f"{done} of {len(possible)} runs are done already.")
        at, order = done, self._with_warm_ups(plan, todo)
        running.begins(self._campaign.file.name, selected, order)
        for run in order:
            self._playbooks.interrupts.check()
            at += not run.warm_up
            if not left.suffices(run):
                self._screen.line(
                    f"{run.run_id} is not begun: it would not end within --max-time. The same command "
                    "goes on.",
                    "yellow",
                )
                break
            which = f"run {at} of {len(possible)}" if not run.warm_up else f"warm-up before run {at + 1}"
            quiet = self._wait_for_quiet(which, run)
            record, attempt = self._attempt(run, which, len(possible) - at, quiet)
            if not record.ok:
                self._stop(attempt)  # now, so that the time it takes is no other run's
        show_campaign(self._screen, self._campaign)
        if not possible:
            self._screen.line("None of these runs can be made on this cluster.", "red")
            return 1
        if not todo:
            self._screen.line("Everything is done already; nothing was run. (--new begins a new campaign.)")
        return 1 if self._lacking(possible) else 0

    def _lacking(self, runs: Iterable[PlannedRun]) -> list[PlannedRun]:
        """Those that have no record that is ok."""
        return [run for run in runs if self._campaign.counting(run.run_id) is None]

    def _with_warm_ups(self, plan: list[PlannedRun], todo: list[PlannedRun]) -> list[PlannedRun]:
        """What is to do, in the plan's order; with the warm-ups that it needs and that were not made."""
        ids = {run.run_id for run in todo}
        needed = {(run.block, run.specification.stack) for run in todo}
        return [
            run
            for run in plan
            if run.run_id in ids
            or (
                run.warm_up
                and run.cannot_run is None
                and (run.block, run.specification.stack) in needed
                and self._lacking([run])
            )
        ]

    def _wait_for_quiet(self, which: str, run: PlannedRun) -> Quiet | None:
        """Returns once the nodes are quiet, or when the inventory says that it is to begin all the same."""
        limits = self._cluster.quiet
        if limits is None:
            return None

        first = True

        def tell(waiting_for: str) -> None:
            nonlocal first
            self._screen.status(f"{which} · {run.run_id} · waits for quiet nodes: {waiting_for}", now=first)
            first = False
            self._playbooks.interrupts.check()

        quiet = wait_for_quiet(self._cluster.shells, limits, tell)
        self._screen.clear_status()
        if not quiet.disturbed:
            return quiet
        said = f"after {quiet.waited_s:.0f} s the nodes are not quiet ({'; '.join(quiet.disturbed)})"
        if limits.otherwise == "stop":
            raise UserError(
                f"{run.run_id} is not begun: {said}. End what disturbs, or raise the limit (quiet_* in the "
                "inventory); the same command goes on."
            )
        self._screen.line(f"{run.run_id} begins all the same: {said}; its record says so.", "yellow")
        return quiet

    def _attempt(self, run: PlannedRun, which: str, rest: int, quiet: Quiet | None) -> tuple[Record, Attempt]:
        attempt = self._campaign.new_attempt(run.run_id)
        happened = Happened(started=utc_now(), quiet=quiet)
        attempt.begin(happened.started)
        progress = Progress(run.specification.work.epochs)
        # Another campaign may have made the same run before: its folder there must not be met again.
        name = f"{self._campaign.file.name}-{attempt.folder.name}"
        run_dir = f"{self._cluster.shared_storage_path}/runs/{run.run_id}/{name}"
        follower = Follower(self._cluster.shell, run_dir, progress, attempt.live)
        milestone, mean = progress.milestone, self._mean_total()

        def tick() -> None:
            nonlocal milestone
            now, milestone = progress.milestone != milestone, progress.milestone
            self._screen.status(
                f"{which} · {run.run_id} · {progress.text()}{_time_left(progress, rest, mean)}", now=now
            )

        variables = {
            "run_stack": run.specification.stack,
            "run_id": run.run_id,
            "run_attempt": name,
            "run_spec": run.specification.model_dump(mode="json"),
            "run_code_digest": self._campaign.file.identity.code,
            "run_code_archive": str(self._campaign.archive.absolute()),
            "run_dest": str(attempt.outputs.absolute()),
        }
        self._screen.status(f"{which} · {run.run_id} · starting", now=True)
        follower.start()
        finished = False
        try:
            outcome = self._playbooks.play(
                "run", attempt.ansible_log, variables, variables_file=attempt.variables, tick=tick
            )
            happened.exit_code, happened.total_s = outcome.exit_code, outcome.seconds
            happened.ended = utc_now()
            finished = True
        except Interrupted:
            signal = self._playbooks.interrupts.received[0]
            happened.interrupted = (
                f"The controller was told to stop ({signal.name}) while the run was under way."
            )
        finally:
            follower.stop()
            self._screen.clear_status()
            if follower.fault is not None:
                self._screen.line(f"{attempt.live} is not complete: {follower.fault}.", "yellow")
            if not finished:
                # Whatever ended it here, nothing goes on there.
                happened.notes += self._stop(attempt)
        happened.epochs_seen = progress.epoch_figures
        happened.ended = happened.ended or utc_now()
        record = self._compose(run, attempt, happened, self._environment)
        write_record(record, attempt.folder)
        self._say(record, which, attempt)
        if happened.interrupted is not None:
            raise Interrupted
        return record, attempt

    def _stop(self, attempt: Attempt) -> list[str]:
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

    def _mean_total(self) -> float | None:
        """Mean total_s of the runs that are done."""
        records = [self._campaign.counting(run.run_id) for run in self._campaign.file.measured]
        known = [record.total_s for record in records if record is not None and record.total_s is not None]
        return sum(known) / len(known) if known else None

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


def _time_left(progress: Progress, rest: int, mean: float | None) -> str:
    """What is left of this run, and of all, where `rest` runs of `mean` seconds follow."""
    left = progress.seconds_left
    if left is None:
        return ""
    text = f" · {duration(left)} left"
    return f"{text}, {duration(left + rest * mean)} for all" if rest and mean is not None else text
