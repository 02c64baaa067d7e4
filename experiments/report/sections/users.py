"""What the report says of runs that began at once: tables of users, and a word on others beside them."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.analysis.figures import Figures, setting_text
from experiments.analysis.users import AtOnce, left_out, occasions
from experiments.report.tables import Column, Table, stack_text
from experiments.util.words import counted


def users_tables(figures: Figures) -> list[Table]:
    """What each user met, and what it comes to for all; empty without such runs."""
    found = occasions(figures)
    return [_each(found), _all(found)]


def users_title(found: Sequence[AtOnce]) -> str:
    """`Two users at once`, or `Several`."""
    return "Two users at once" if all(len(each.users) == 2 for each in found) else "Several users at once"


def _each(found: Sequence[AtOnce]) -> Table:
    rows = [
        [
            *_place(each),
            str(user.seed),
            f"{user.alone.took_s:.1f}",
            f"{user.took_s:.1f}",
            f"{user.slowdown:.2f}",
            f"{user.alone.waited_s:.1f}",
            f"{user.waited_s:.1f}",
            str(user.alone.runs),
            ", ".join(user.nodes),
        ]
        for each in found
        for user in each.users
    ]
    names = ["seed", "alone, s", "together, s", "slowdown", "wait alone, s", "wait together, s", "n alone"]
    return Table(
        title=users_title(found),
        before=(
            "Users submit the same work, each with a seed of its own, at the same moment. Seconds from "
            "submission until the stack says that it has ended; the wait is that until the ranks' processes "
            "are there (queue and launch); the slowdown is together over alone."
        ),
        columns=[
            Column("stack"),
            Column("workers each", True),
            Column("epochs", True),
            *(Column(name, True) for name in names),
            Column("ran on"),
        ],
        rows=rows,
        after=[
            "Each row is a run of one user, held against the mean of n runs of other seeds that were alone."
        ],
    )


def _all(found: Sequence[AtOnce]) -> Table:
    names = ["fairness", "makespan, s", "one after another, s", "makespan over that", "trained at once, s"]
    return Table(
        title=f"{users_title(found)}: fairness",
        before=(
            "Fairness is Jain's index of the slowdowns: 1 where all users are slowed down alike, 1/n where "
            "one of n bears it all. The makespan, from the first submission to the last end, stands against "
            "as many runs one after another, each as long as alone."
        ),
        columns=[
            Column("stack"),
            Column("workers each", True),
            Column("epochs", True),
            Column("users", True),
            *(Column(name, True) for name in names),
        ],
        rows=[
            [
                *_place(each),
                str(len(each.users)),
                f"{each.fairness:.3f}",
                f"{each.makespan_s:.1f}",
                f"{each.in_turn_s:.1f}",
                f"{each.makespan_s / each.in_turn_s:.2f}",
                f"{each.overlap_s:.1f}",
            ]
            for each in found
        ],
        after=[sentence(each) for each in found],
    )


def _place(each: AtOnce) -> list[str]:
    cell = each.cell
    return [stack_text(cell.stack, setting_text(cell.axes)), str(cell.workers), str(cell.axes["epochs"])]


def sentence(each: AtOnce) -> str:
    """What became of users who came at once, by their figures."""
    epochs = counted(each.cell.axes["epochs"], "epoch")
    where = f"{_place(each)[0]}, {counted(each.cell.workers, 'worker')} each, {epochs}"
    order = each.in_turn
    if order is not None:
        first, last = order[0], order[-1]
        return (
            f"{where}: they took turns. The user of seed {last.seed} trained last, and waited "
            f"{last.waited_s:.1f} s until its ranks were there, against {last.alone.waited_s:.1f} s alone; "
            f"that of seed {first.seed} waited {first.waited_s:.1f} s."
        )
    share = f"{each.overlap_s / each.shortest_s * 100:.0f} % of the shortest training"
    slowdowns = " and ".join(f"{user.slowdown:.2f}" for user in each.users)
    how = "each on nodes of its own" if each.apart else "on the same nodes"
    return (
        f"{where}: they trained at the same time for {each.overlap_s:.1f} s ({share}), {how}, and took "
        f"{slowdowns} times as long as alone."
    )


def together_sentences(figures: Figures) -> list[str]:
    """What a reader of all other figures must know of runs that were not alone; none where all were."""
    counting = [record for record in figures.counting if record.together is not None]
    users = sum(record.among_users for record in counting)
    beside = len(counting) - users
    said = []
    if beside:
        said.append(
            f"{beside} of {len(figures.counting)} runs {'were' if beside > 1 else 'was'} made side by side "
            "with others, on other workers (--side-by-side), which can disturb their times."
        )
    if users:
        said.append(
            f"{users} runs began at once, as users of one cluster: they are in no mean and no comparison "
            "with others, and have tables of their own."
        )
    without = left_out(figures)
    if without:
        said.append(
            f"{counted(without, 'occasion')} of these can't be held against anything, for no "
            "such run was made alone."
        )
    return said
