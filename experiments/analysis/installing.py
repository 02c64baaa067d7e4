"""What provisioning took for each stack, and for the roles that it stands on: tasks, changes, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.analysis.figures import Figures
from experiments.campaign.stacks import Stack
from experiments.cluster.provisioning import Effort, Provisioning


@dataclass(frozen=True)
class RolesEffort:
    """What some roles took; a part is None where it is not recorded."""

    altogether: Effort | None
    on_master: Effort | None
    on_slowest_worker: Effort | None
    by_standin: bool = False  # a stand-in was installed, so the seconds are not the stack's


@dataclass(frozen=True)
class StackEffort:
    """What one stack took."""

    roles: list[str]  # its own, and those that it called; empty if not recorded
    stands_on: list[str]
    own: RolesEffort
    below: RolesEffort  # of the roles that it stands on
    whole: Effort | None  # of both; also None if what it stands on is not known

    @property
    def only_checked(self) -> bool:
        """Its own roles changed nothing: it had been installed before, and what they took is checking."""
        return self.own.altogether is not None and not self.own.altogether.changes


@dataclass(frozen=True)
class Installing:
    """What the provisioning that set up a campaign's cluster took."""

    stacks: dict[str, StackEffort]  # those that the campaign keeps something about
    shared: list[str]  # roles that count for none of these stacks
    changes: int  # of all roles, by task and host


def installing(figures: Figures) -> Installing:
    """What the campaign's record of provisioning says; without one nothing is recorded."""
    provisioned = figures.setup.provisioning
    stacks = figures.setup.stacks.stacks if figures.setup.stacks is not None else {}
    return Installing(
        stacks={name: _stack_effort(name, stack, figures) for name, stack in stacks.items()},
        shared=_shared(provisioned, stacks) if provisioned is not None else [],
        changes=sum(sum(done.changed.values()) for done in provisioned.roles)
        if provisioned is not None
        else 0,
    )


def _stack_effort(name: str, stack: Stack, figures: Figures) -> StackEffort:
    provisioned = figures.setup.provisioning
    made = [*figures.counting, *figures.attempts]
    standins = {record.specification.stack for record in made if record.standin is not None}
    stands_on = stack.facts.stands_on if stack.facts is not None else []
    done = provisioned.of([name]) if provisioned is not None else []
    whole = None
    if provisioned is not None and done and stack.facts is not None:
        whole = provisioned.effort([name, *stands_on])
    return StackEffort(
        roles=list(dict.fromkeys(each.role for each in done)),
        stands_on=stands_on,
        own=replace(_roles_effort([name], figures), by_standin=name in standins),
        below=_roles_effort(stands_on, figures),
        whole=whole,
    )


def _roles_effort(roles: Sequence[str], figures: Figures) -> RolesEffort:
    provisioned, environment = figures.setup.provisioning, figures.campaign.environment
    if provisioned is None:
        return RolesEffort(None, None, None)
    masters = [name for name, node in environment.nodes.items() if "master" in node.groups]
    return RolesEffort(
        altogether=provisioned.effort(roles),
        on_master=provisioned.slowest(masters, roles),
        on_slowest_worker=provisioned.slowest(environment.workers, roles),
    )


def _shared(provisioned: Provisioning, stacks: dict[str, Stack]) -> list[str]:
    installed = [*provisioned.variables.get("stacks", []), *provisioned.variables.get("stacks_optional", [])]
    below = {role for each in stacks.values() if each.facts is not None for role in each.facts.stands_on}
    counted = {*installed, *stacks, *below}
    return [role for role in provisioned.played if role not in counted]
