"""The campaign loop: one group of runs (usually a single run) after another, a record for each run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from experiments.campaign.campaign import Campaign, campaigns, open_campaign
from experiments.campaign.concurrent import (
    Group,
    groups_of,
    same_occasion,
    through_first_measured,
    whole_groups,
    why_not_side_by_side,
)
from experiments.campaign.identity import may_share_some, refuse_changed_launching
from experiments.campaign.plan import PlannedRun, make_plan
from experiments.campaign.preparation import prepared_cluster
from experiments.campaign.resume import Deadline, Options, campaign_for
from experiments.campaign.runner import AttemptRunner
from experiments.campaign.running_note import NoteWriter
from experiments.campaign.selection import nothing_to_retry, runs_that_fit, runs_to_make, with_warm_ups
from experiments.campaign.sequential import SequentialRule
from experiments.cluster.description import PreparedCluster
from experiments.cluster.playbooks import Playbooks
from experiments.cluster.progress import Progress, duration
from experiments.cluster.provenance import (
    Git,
    git_state,
    inventory_in_use,
    kept_locks,
    locks_of,
    patch_name,
)
from experiments.cluster.quiet import Quiet, wait_for_quiet
from experiments.cluster.stack_folders import outside_stacks
from experiments.matrix.model import Matrix
from experiments.matrix.references import store_references
from experiments.records.record import Record
from experiments.util.errors import UserError
from experiments.util.files import write_whole


class Display(Protocol):
    """How a campaign is shown to a person; the caller decides."""

    def begins(self, campaign: Campaign) -> None:
        """Its runs are about to start."""

    def ends(self, campaign: Campaign) -> None:
        """This command starts no more of its runs."""

    def decides(self, campaign: Campaign, rule: SequentialRule) -> bool:
        """Shows what its comparisons show by now; returns whether they need no more runs."""

    def judges(self, campaign: Campaign) -> int:
        """Shows which figures left the bands of their references; returns the exit code, 1 or 0."""


def run_matrix(
    root: Path,
    playbooks: Playbooks,
    matrix: Matrix,
    options: Options,
    note: NoteWriter,
    display: Display,
) -> int:
    """Makes the unfinished runs of `matrix`; returns the exit code, 0 if all requested runs are done and ok.

    Raises:
        UserError: the matrix can't start, or can't continue.
        Interrupted: a signal ended it; what was running is recorded, and nothing keeps running.
    """
    results = root / "results"
    began = time.monotonic()  # the preparation counts towards --max-time
    with prepared_cluster(playbooks, matrix, results, "run", options.break_lock) as prepared:
        inventory = inventory_in_use(root)
        locks = locks_of(inventory)
        git, patches = git_state(
            root,
            {
                "inventory": inventory,
                "locks": locks,
                "matrix": matrix.folder / f"{matrix.name}.yml",
                "workload": matrix.workload_folder,
                "stacks": outside_stacks(),
            },
        )
        # In all campaigns that had one of these machines: a dead controller may have worked on another one
        # than this command resumes.
        for folder in campaigns(results / matrix.name):
            try:
                other = open_campaign(folder)
                if may_share_some(other.file.identity.machines, prepared.cluster.machines):
                    AttemptRunner(playbooks, other, prepared, git).recover()
            except UserError as error:
                playbooks.screen.line(f"Skipped: {error}", "yellow")
        plan = make_plan(matrix, prepared.cluster, prepared.data_digests)
        fitting = runs_that_fit(plan, options.only)  # fails before a campaign without runs is created
        campaign = note.campaign = campaign_for(root, playbooks, matrix, prepared, git, plan, options)
        kept = {patch_name(digest): patch for digest, patch in patches.items()}
        for name, content in (kept | kept_locks(locks)).items():
            write_whole(campaign.folder / name, content)
        store_references(campaign.folder, campaign.file.references, prepared.references)
        selected = runs_to_make(campaign, fitting, options.retry)
        if options.retry is not None and not selected:
            playbooks.screen.line(nothing_to_retry(options.only, options.retry))
            return 0
        selected = whole_groups(plan, selected)
        display.begins(campaign)
        deadline = Deadline(options.max_time_s, began, results, prepared.cluster.machines)
        loop = _Loop(playbooks, campaign, prepared, git, display, side_by_side=options.side_by_side)
        # Whoever asks for a retry gets it.
        rule = campaign.file.sequential if options.retry is None else None
        status = loop.run(plan, selected, deadline, note, rule)
    return display.judges(campaign) or status


class _Loop:
    """One command's pass through a campaign."""

    def __init__(
        self,
        playbooks: Playbooks,
        campaign: Campaign,
        prepared: PreparedCluster,
        git: Git,
        display: Display,
        *,
        side_by_side: bool,
    ) -> None:
        self._playbooks = playbooks
        self._screen = playbooks.screen
        self._campaign = campaign
        self._cluster = prepared.cluster
        self._runner = AttemptRunner(playbooks, campaign, prepared, git)
        self._display = display
        self._side_by_side = side_by_side

    def run(
        self,
        plan: list[PlannedRun],
        selected: list[PlannedRun],
        deadline: Deadline,
        note: NoteWriter,
        rule: SequentialRule | None,
    ) -> int:
        """Makes the unfinished runs of `selected`, shows the table, returns the exit code.

        With a `rule` it ends before a block as soon as everything is decided.

        `plan` has the campaign's runs and warm-ups. Which of them can be made may have changed since the
        campaign began (with the link rate, say).
        """
        possible = [run for run in selected if run.cannot_run is None]
        todo = self._unfinished(possible)
        done = len(possible) - len(todo)
        if done:
            self._screen.line(f"{done} of {len(possible)} runs are done already.")
        at, order = done, self._with_warm_ups(plan, todo)
        note.begins(self._campaign.file.name, selected, order)
        groups = self._groups(order, plan)
        block, decided = None, False
        for place, group in enumerate(groups):
            self._playbooks.interrupts.check()
            if rule is not None and group.runs[0].block != block:
                block, decided = group.runs[0].block, self._display.decides(self._campaign, rule)
                self._campaign.note_decided(decided=decided)
                if decided:
                    break
            first, at = at + 1, at + sum(not run.warm_up for run in group.runs)
            due = through_first_measured(groups[place:])
            position = f"run {at} of {len(possible)}" if at >= first else f"warm-up before run {first}"
            position = f"runs {first} to {at} of {len(possible)}" if at > first else position
            rest = len(possible) - at
            records = self._make(group, due, position, rest, deadline)
            if records is not None and (again := _disturbed(group, records)) is not None:
                self._screen.line(f"Disturbed, and made once more: {again.name}.", "yellow")
                records = self._make(again, due, position, rest, deadline)
            if records is None:
                break
        self._display.ends(self._campaign)
        if not possible:
            self._screen.line("This cluster can run none of these.", "red")
            return 1
        if not todo:
            self._screen.line("Everything is done already; nothing was run. (--new starts a new campaign.)")
        return 1 if self._unfinished(possible) and not decided else 0

    def _make(
        self, group: Group, due: Sequence[Group], position: str, rest: int, deadline: Deadline
    ) -> list[Record] | None:
        """Makes one attempt at each run of a group; its records. None: there is no time left for `due`.

        Args:
            group: usually a single run.
            due: the groups that only make sense together, from this one on.
            position: of the group in the campaign, in words.
            rest: how many runs follow it.
            deadline: when the command must have ended.
        """
        if not self._fits(deadline, due):
            return None
        quiet = self._wait_for_quiet(position, group)
        if not self._fits(deadline, due):  # waiting takes time, too
            return None
        refuse_changed_launching(self._playbooks.root, self._campaign.file.identity, group.name)
        if quiet is not None and quiet.disturbed:
            notice = f"{group.name} starts all the same: {_not_quiet(quiet)}; its record says so."
            self._screen.line(notice, "yellow")
        estimate = partial(_estimate, rest=rest, mean=self._mean_total())
        records = self._runner.run(group, quiet, position, estimate)
        deadline.learn(records)
        for record in [record for record in records if not record.ok][:1]:
            # Now, so that it takes no time from another run.
            self._runner.stop(self._campaign.attempts(record.run_id)[-1])
        return records

    def _fits(self, deadline: Deadline, due: Sequence[Group]) -> bool:
        """Whether there is time for these groups; says so if there is not."""
        if deadline.allows(*due):
            return True
        self._screen.line(
            f"{due[-1].name} was not started: it would not end within --max-time. The same command resumes.",
            "yellow",
        )
        return False

    def _unfinished(self, runs: Iterable[PlannedRun]) -> list[PlannedRun]:
        """The runs without an ok record, and users' runs whose ok records are from different starts."""
        return [run for run in runs if not self._is_done(run)]

    def _is_done(self, run: PlannedRun) -> bool:
        if not run.together:
            return self._campaign.counting(run.run_id) is not None
        return same_occasion([self._campaign.counting(run_id) for run_id in run.together])

    def _groups(self, order: Sequence[PlannedRun], plan: Sequence[PlannedRun]) -> list[Group]:
        workers = self._cluster.workers
        groups = groups_of(order, plan, workers, side_by_side=self._side_by_side)
        why_not = why_not_side_by_side(groups, len(workers)) if self._side_by_side and order else None
        if why_not is not None:
            self._screen.line(why_not, "yellow")
        return groups

    def _with_warm_ups(self, plan: list[PlannedRun], todo: list[PlannedRun]) -> list[PlannedRun]:
        """The unfinished runs, with the warm-ups that they still need, in the plan's order."""
        return [
            run
            for run in with_warm_ups(plan, todo)
            if not run.warm_up or (run.cannot_run is None and self._unfinished([run]))
        ]

    def _wait_for_quiet(self, position: str, group: Group) -> Quiet | None:
        """Waits until the nodes are quiet, or until the limit if the inventory allows a start anyway."""
        limits = self._cluster.quiet
        if limits is None:
            return None

        first = True

        def tell(waiting_for: str) -> None:
            nonlocal first
            self._screen.status(
                f"{position} · {group.name} · waiting for quiet nodes: {waiting_for}", now=first
            )
            first = False
            self._playbooks.interrupts.check()

        quiet = wait_for_quiet(self._cluster.shells, limits, tell)
        self._screen.clear_status()
        if quiet.disturbed and limits.otherwise == "stop":
            raise UserError(
                f"{group.name} was not started: {_not_quiet(quiet)}. Stop what disturbs them, or raise "
                "the limit (quiet_* in the inventory); the same command resumes."
            )
        return quiet

    def _mean_total(self) -> float | None:
        """Mean total_s of the finished runs that were alone and not made by a stand-in."""
        records = [self._campaign.counting(run.run_id) for run in self._campaign.file.measured]
        alone = [record for record in records if record is not None and record.together is None]
        known = [each.total_s for each in alone if each.total_s is not None and each.standin is None]
        return sum(known) / len(known) if known else None


def _disturbed(group: Group, records: Sequence[Record]) -> Group | None:
    """What must be made again of a group, because something disturbed it; None: nothing.

    Users of one cluster count only together. Runs that only warm nodes up are not made again.
    """
    runs = [run for run, record in zip(group.runs, records, strict=True) if record.status == "disturbed"]
    if not runs or any(run.warm_up for run in runs):
        return None
    return group if group.why == "users" else Group(runs, group.why if len(runs) > 1 else None)


def _not_quiet(quiet: Quiet) -> str:
    return f"after {quiet.waited_s:.0f} s the nodes are not quiet ({'; '.join(quiet.disturbed)})"


def _estimate(progress: Sequence[Progress], rest: int, mean: float | None) -> str:
    """The time left for these runs, and for all if `rest` more runs of `mean` seconds follow."""
    known = [each.seconds_left for each in progress]
    if not known or any(seconds is None for seconds in known):
        return ""
    left = max(seconds for seconds in known if seconds is not None)
    text = f" · {duration(left)} left"
    return f"{text}, {duration(left + rest * mean)} for all" if rest and mean is not None else text
