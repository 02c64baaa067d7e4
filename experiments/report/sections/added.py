"""What each stack adds to a run, part by part, beside the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.added import PER_STEP, Added, Part, certain
from experiments.analysis.figures import Cell
from experiments.analysis.statistics import Difference
from experiments.report.formats import Format, Value
from experiments.report.names import cells_name, setting_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "What each stack adds"
NOT_JUDGED: Final = "Single pairs, or pairs without any spread, show no difference"
SECONDS: Final = Format(2)
MORE: Final = Format(2, signed=True)
MILLISECONDS: Final = Format(2, factor=1000)
MORE_MILLISECONDS: Final = Format(2, signed=True, factor=1000)


def added_table(found: Sequence[Added], baseline: str, doubt: str = "") -> Table:
    """Every part of a run on the baseline, and how much longer it is elsewhere, after a `doubt` about all."""
    stacks = list(dict.fromkeys(cell.stack for each in found for cell in each.cells))
    settings = ["setting"] if any(each.baseline.settings for each in found) else []
    return Table(
        title=TITLE,
        before=doubt
        + (
            f"Seconds of each part of a run on {baseline}, and how much longer it is on the other stacks: "
            "means of the differences between runs with the same seed. In brackets are Student's 95 % "
            "intervals: those of the differences hold all at once (Bonferroni), each of the others alone. "
            "Steps are data, forward, backward, exposed synchronisation and optimiser. Other has three "
            "pieces: Ansible's work before the stack's command; training time in no named phase; and what "
            "follows once the stack says that the job is over, which is the rest of its command, and Ansible "
            "fetching what the run has left."
        ),
        columns=columns(
            *("workers", "epochs", *settings, "part", "runs", f"{baseline}, s"),
            *(f"{stack}, s more" for stack in stacks),
            words=("setting", "part"),
        ),
        rows=[_row(each, part, stacks, with_setting=bool(settings)) for each in found for part in each.parts],
        after=_remarks(found) if found else [],
    )


def _row(each: Added, part: Part, stacks: Sequence[str], *, with_setting: bool) -> list[Value | str]:
    base, in_steps = part.baseline, part.name == PER_STEP
    cell, plain = each.baseline, MILLISECONDS if in_steps else SECONDS
    return [
        Value(cell.workers),
        Value(cell.epochs),
        *([setting_text(cell.settings)] if with_setting else []),
        f"{part.name}, ms" if in_steps else part.name,
        run_count(base.n),
        Value(base.mean, plain, low=base.low, high=base.high),
        *(_more(part.added.get(stack), base.n, in_steps) for stack in stacks),
    ]


def _more(found: Difference | None, runs: int, in_steps: bool) -> Value:
    """A difference, with its number of pairs if there are fewer pairs than runs."""
    if found is None:
        return Value(None)
    note = "" if found.n == runs else f"n={found.n}"
    form = MORE_MILLISECONDS if in_steps else MORE
    return Value(found.mean, form, low=found.low, high=found.high, note=note)


def _remarks(found: Sequence[Added]) -> list[str]:
    """What may be claimed, and of how many comparisons."""
    cells = [cell for each in found for cell in (each.baseline, *each.cells)]
    differences = [
        (part.name, cell, part.added[cell.stack])
        for each in found
        for part in each.parts
        if not part.is_sum
        for cell in each.cells
        if cell.stack in part.added
    ]
    shown: dict[str, list[Cell]] = {}
    for name, cell, difference in differences:
        if certain(difference):
            shown.setdefault(name, []).append(cell)
    claims = [f"{name} ({listed([cells_name([cell], cells) for cell in at])})" for name, at in shown.items()]
    said = f"Longer or shorter beyond chance: {'; '.join(claims)}." if claims else "No difference is shown."
    every = [more for each in found for part in each.parts for more in part.added.values()]
    made = sum(more.p is not None for more in every)
    judged = f"Judged by intervals that hold for all {counted(made, 'difference')}{_beyond_noise(every)}"
    return [f"{judged if made else NOT_JUDGED}. {said}"]


def _beyond_noise(found: Sequence[Difference]) -> str:
    known = any(more.floor is not None for more in found)
    return ", and by the noise floors of train_s and of what is outside it" if known else ""
