"""What a run costs whatever its length, beside its stack's bare start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from experiments.analysis.fixed_costs import AIM_S, Bare, FixedCosts, Verdict
from experiments.analysis.statistics import Difference, Estimate
from experiments.report.formats import TENTHS, Format, Value, quantity
from experiments.report.names import cells_name, stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import listed

TITLE: Final = "Fixed costs"
MORE: Final = Format(1, signed=True)
AIM: Final = quantity(AIM_S, Format(unit=" s"))
BARE: Final = ("bare start, s", "pairs", "more than it, s", "more, with around, s")
HOW: Final = (
    "No run that can be paired with these started an empty program, so the stacks' bare starts are not "
    "known: add the axis program: [training, empty] to the matrix, or run the matrix bare-start."
)
SAID: Final[dict[Verdict, str]] = {
    "within": f"at most {AIM}",
    "beyond": f"more than {AIM}",
    "open": "can't tell",
    "none": "no interval, and nothing can be said",
}


def fixed_costs_table(found: Sequence[FixedCosts]) -> Table:
    """A row for each cell; without bare starts their columns are absent, and a remark says how to get any."""
    known = [each for each in found if each.bare is not None]
    beside = (
        " The bare start is the same command with an empty program in the place of training. More than it: "
        "means of the differences between runs with the same seed, within the command alone, and with what "
        "is around it; the intervals of either column hold all at once (Bonferroni)."
    )
    names = ("to the first step, s", "after the last step, s", "both, s", "around the command, s")
    return Table(
        title=TITLE,
        before=(
            "Seconds that a run takes however long it trains. To the first step: from the start of the "
            "stack's command, in queue, launch, imports and rendezvous, and training time in no named phase, "
            "most of which sets the model up. After the last step: from the end of training until the stack "
            "says that the run is over; evaluations and checkpoints are training. Around the command: "
            "Ansible's work before it, and all that follows until the run's data are on the controller. "
            "Means, with Student's 95 % intervals." + (beside if known else "")
        ),
        columns=columns(
            *("stack", "workers", "epochs", "runs", *names, *(BARE if known else ())), words=("stack",)
        ),
        rows=[_row(each, with_bare=bool(known)) for each in found],
        after=_remarks(found, known),
    )


def _row(each: FixedCosts, *, with_bare: bool) -> list[Value | str]:
    cell, bare = each.cell, each.bare
    beside: list[Value | str] = [Value(None)] * len(BARE)
    if bare is not None:
        beside = [
            _seconds(bare.start_s),
            run_count(bare.more_s.n),
            _more(bare.more_s),
            _more(bare.more_with_around_s),
        ]
    return [
        stack_text(cell.stack, cell.settings),
        Value(cell.workers),
        Value(cell.epochs),
        run_count(each.both_s.n),
        *map(_seconds, (each.to_first_step_s, each.after_last_step_s, each.both_s, each.around_s)),
        *(beside if with_bare else []),
    ]


def _seconds(found: Estimate) -> Value:
    return Value(found.mean, TENTHS, low=found.low, high=found.high)


def _more(found: Difference) -> Value:
    return Value(found.mean, MORE, low=found.low, high=found.high)


def _remarks(found: Sequence[FixedCosts], known: Sequence[FixedCosts]) -> list[str]:
    """Whether the aim is reached, and which cells have no bare start beside them."""
    if not known:
        return [HOW]
    without = [each.cell for each in found if each.bare is None]
    cells = [each.cell for each in found]
    lacking = listed([cells_name([cell], cells) for cell in without]) if without else ""
    return [
        f"The aim is at most {AIM} more than the bare start. Within the command: "
        f"{_judged(known, lambda bare: bare.within_command)}. With what is around it: "
        f"{_judged(known, lambda bare: bare.in_all)}.",
        *([f"Without a bare start to be paired with: {lacking}."] if without else []),
    ]


def _judged(known: Sequence[FixedCosts], verdict: Callable[[Bare], Verdict]) -> str:
    """`at most 5 s of …, with 1 worker; can't tell of …, with 2 workers`: which cells reach the aim."""
    cells = [each.cell for each in known]
    groups: dict[Verdict, list[str]] = {}
    for each in known:
        if each.bare is not None:
            groups.setdefault(verdict(each.bare), []).append(cells_name([each.cell], cells))
    return "; ".join(f"{SAID[shown]} of {listed(names)}" for shown, names in groups.items())
