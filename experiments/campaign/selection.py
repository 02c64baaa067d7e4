"""Which runs of a campaign a command selects: by id, and by how their newest attempt ended."""

from __future__ import annotations

import fnmatch

from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.util.errors import UserError


def runs_that_fit(plan: list[PlannedRun], only: str | None) -> list[PlannedRun]:
    """The runs of `plan`, without warm-ups, that match `--only`.

    Args:
        plan: the runs, and warm-ups.
        only: a glob pattern for their ids; None = any.

    Raises:
        UserError: it matches none of them.
    """
    measured = [run for run in plan if not run.warm_up]
    runs = [run for run in measured if only is None or fnmatch.fnmatchcase(run.run_id, only)]
    if not runs:
        raise UserError(
            f"--only {only} matches none of the runs: {', '.join(run.run_id for run in measured)}."
        )
    return runs


def with_warm_ups(plan: list[PlannedRun], runs: list[PlannedRun]) -> list[PlannedRun]:
    """`runs` with the warm-ups of their stacks and blocks, in the plan's order."""
    ids = {run.run_id for run in runs}
    needed = {(run.block, run.specification.stack) for run in runs}
    return [
        run
        for run in plan
        if run.run_id in ids or (run.warm_up and (run.block, run.specification.stack) in needed)
    ]


def runs_to_make(campaign: Campaign, runs: list[PlannedRun], retry: str | None) -> list[PlannedRun]:
    """Those of `runs` that `--retry` selects; none if there is nothing to retry.

    Args:
        campaign: the one whose records are read.
        runs: runs of its plan.
        retry: the status of their newest attempt, failed, interrupted or disturbed; None = any, or no
            attempt at all.

    Raises:
        UserError: a record is damaged.
    """
    return [run for run in runs if retry is None or _newest_status(campaign, run) == retry]


def _newest_status(campaign: Campaign, run: PlannedRun) -> str | None:
    records = campaign.records(run.run_id)
    return records[-1].status if records else None


def nothing_to_retry(only: str | None, retry: str) -> str:
    """The sentence for a command that has nothing to do."""
    which = f"no run that matches {only}" if only is not None else "no run"
    ended = "failed" if retry == "failed" else f"was {retry}"
    return f"There is nothing to retry: {which} {ended} in its newest attempt."
