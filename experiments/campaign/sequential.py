"""`--decide`: seeds are added until every comparison is decided, by a rule fixed before the first run.

Whoever looks again and again until something shows will find differences that aren't there. So the looks are
counted beforehand, and every interval holds for all of them at once (Bonferroni): however they depend on one
another, and whenever the runs end, intervals miss the truth in at most 5 % of campaigns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from experiments.campaign.plan import PlannedRun
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel

FIRST_LOOK: Final = 3  # pairs; fewer decide next to nothing


class SequentialRule(FrozenModel):
    """When a campaign has runs enough."""

    percent: float = Field(gt=0, le=100)  # a difference that is certainly smaller counts as none
    looks: int = Field(ge=1)  # how often the runs are looked at, at most

    @property
    def margin(self) -> float:
        """The same as a fraction."""
        return self.percent / 100


def sequential_rule(percent: float, plan: Sequence[PlannedRun], baseline: str) -> SequentialRule:
    """The rule for a campaign with this plan: one look after each seed, from the third on.

    Raises:
        UserError: the cluster can't make the runs that a decision needs.
    """
    runs = [run.specification for run in plan if not run.warm_up and run.cannot_run is None]
    seeds = {run.work.seed for run in runs}
    if len(seeds) < FIRST_LOOK:
        raise UserError(
            f"--decide adds seed after seed, and needs {FIRST_LOOK} or more of them; this matrix has "
            f"{len(seeds)} here. Add some."
        )
    if {run.stack for run in runs} <= {baseline}:
        raise UserError(
            f"--decide compares stacks with {baseline}, and this matrix has no other that runs here. Leave "
            "it out, or add one."
        )
    return SequentialRule(percent=percent, looks=len(seeds) - FIRST_LOOK + 1)
