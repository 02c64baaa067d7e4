"""What the report says about runs that began at once: tables of users, and sentences for its top."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.analysis.figures import Figures
from experiments.analysis.users import Occasion
from experiments.report.formats import PERCENT, RATIO, TENTHS, Format, Value, number, quantity
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted


def users_tables(found: Sequence[Occasion]) -> list[Table]:
    """One table of users and one of occasions; both empty without such runs."""
    return [_users(found), _occasions(found)]


def users_title(found: Sequence[Occasion]) -> str:
    """`Two users at once`, or `Several`."""
    return "Two users at once" if all(len(each.users) == 2 for each in found) else "Several users at once"


def _users(found: Sequence[Occasion]) -> Table:
    return Table(
        title=users_title(found),
        before=(
            "Users submit the same work at the same moment, each with a different seed. Times are in seconds "
            "from submission until the stack reports the end; the wait lasts until the ranks' processes "
            "exist (queue and launch). The slowdown is the time together over the time alone."
        ),
        columns=columns(
            "stack",
            "workers each",
            "epochs",
            "seed",
            "alone, s",
            "together, s",
            "slowdown",
            "wait alone, s",
            "wait together, s",
            "n alone",
            "ran on",
            words=("stack", "ran on"),
        ),
        rows=[
            [
                *_place(each),
                Value(user.seed),
                Value(user.alone.took_s, TENTHS),
                Value(user.took_s, TENTHS),
                Value(user.slowdown, RATIO),
                Value(user.alone.waited_s, TENTHS),
                Value(user.waited_s, TENTHS),
                run_count(user.alone.runs),
                ", ".join(user.nodes),
            ]
            for each in found
            for user in each.users
        ],
        after=[
            "Each row is one user's run, compared with the mean of n runs with other seeds that ran alone."
        ],
    )


def _occasions(found: Sequence[Occasion]) -> Table:
    return Table(
        title=f"{users_title(found)}: fairness",
        before=(
            "Fairness is Jain's index of the slowdowns: 1 if all users are slowed down alike, 1/n if one of "
            "n bears it all. The makespan, from the first submission to the last end, is compared with as "
            "many runs one after another, each as long as alone."
        ),
        columns=columns(
            "stack",
            "workers each",
            "epochs",
            "users",
            "fairness",
            "makespan, s",
            "one after another, s",
            "makespan over that",
            "trained at once, s",
            words=("stack",),
        ),
        rows=[
            [
                *_place(each),
                run_count(len(each.users)),
                Value(each.fairness, Format(3)),
                Value(each.makespan_s, TENTHS),
                Value(each.in_turn_s, TENTHS),
                Value(each.makespan_s / each.in_turn_s, RATIO),
                Value(each.overlap_s, TENTHS),
            ]
            for each in found
        ],
        after=[occasion_sentence(each) for each in found],
    )


def _place(each: Occasion) -> list[Value | str]:
    cell = each.cell
    return [stack_text(cell.stack, cell.settings), Value(cell.workers), Value(cell.epochs)]


def occasion_sentence(each: Occasion) -> str:
    """How users who began at once fared, by their figures."""
    cell, order = each.cell, each.in_turn
    where = (
        f"{stack_text(cell.stack, cell.settings)}, {counted(cell.workers, 'worker')} each, "
        f"{counted(cell.epochs, 'epoch')}"
    )
    if order is not None:
        first, last = order[0], order[-1]
        return (
            f"{where}: they took turns. The user with seed {last.seed} trained last and waited "
            f"{number(last.waited_s, TENTHS)} s for its ranks to start, against "
            f"{number(last.alone.waited_s, TENTHS)} s alone; the user with seed {first.seed} waited "
            f"{number(first.waited_s, TENTHS)} s."
        )
    share = f"{quantity(each.overlap_s / each.shortest_s, PERCENT)} of the shortest training"
    slowdowns = " and ".join(number(user.slowdown, RATIO) for user in each.users)
    how = "each on nodes of its own" if each.apart else "on the same nodes"
    return (
        f"{where}: they trained at the same time for {number(each.overlap_s, TENTHS)} s ({share}), {how}, "
        f"and took {slowdowns} times as long as alone."
    )


def company_sentences(figures: Figures, unmatched_occasions: int) -> list[str]:
    """What a reader of the other figures must know about runs that were not alone; empty if all were."""
    counting = [record for record in figures.counting if record.together is not None]
    users = sum(record.among_users for record in counting)
    side_by_side = len(counting) - users
    sentences = []
    if side_by_side:
        sentences.append(
            f"{side_by_side} of {len(figures.counting)} runs {'were' if side_by_side > 1 else 'was'} made "
            "side by side with others, on other workers (--side-by-side), which can disturb their times."
        )
    if users:
        sentences.append(
            f"{users} runs began at once, as users of one cluster: they are left out of all other means and "
            "comparisons and have tables of their own."
        )
    if unmatched_occasions:
        sentences.append(
            f"{counted(unmatched_occasions, 'such occasion')} can't be compared with anything, because no "
            "such run was made alone."
        )
    return sentences
