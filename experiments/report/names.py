"""How the report names cells, settings, works and ladders: by what tells them apart, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from experiments.analysis.figures import USUAL_AXES, Cell, MissingRun, Parts, SameWork
from experiments.analysis.ladders import Waterfall
from experiments.analysis.statistics import Ratio
from experiments.report.formats import setting
from experiments.util.words import counted, listed

NOT_NEEDED: Final = "Not needed: all was decided without it (--decide)."

Item = TypeVar("Item")


def value_text(value: Any) -> str:
    """An axis's value; of a script that is only told something, its arguments as on a command line."""
    if value is None:
        return "none"
    if isinstance(value, Parts):
        return str(value)
    if isinstance(value, Mapping) and list(value) == ["arguments"]:  # of a script
        return " ".join(value["arguments"])
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def setting_text(settings: Mapping[str, Any], without: str = "") -> str:
    """`gradient_sync bf16, threads 2`; "" without settings. The axes that every matrix has don't count."""
    return ", ".join(
        f"{name} {value_text(value)}"
        for name, value in settings.items()
        if name not in (*USUAL_AXES, without) and not (isinstance(value, Parts) and not value.varying)
    )


def stack_text(stack: str, settings: Mapping[str, Any], without: str = "") -> str:
    """A stack as a table names it, with the values of the matrix's other axes."""
    return ", ".join(filter(None, (stack, setting_text(settings, without))))


def link_text(gbit: float | None) -> str:
    """A link's rate: `1 Gbit/s`, or `not limited`."""
    return "not limited" if gbit is None else f"{setting(gbit)} Gbit/s"


def phase_name(phase: str) -> str:
    """A phase, in words."""
    return {"exposed_sync": "exposed synchronisation"}.get(phase, phase)


def work_name(work: SameWork) -> str:
    """`2 workers, 20 epochs, seed 1 (3f9a41c2)`."""
    size = f"{counted(work.workers, 'worker')}, {counted(work.epochs, 'epoch')}"
    return f"{size}, seed {work.seed} ({work.work_digest[:8]})"


def ladder_name(waterfall: Waterfall) -> str:
    """The ladder, and what its runs have in common."""
    workers, epochs = waterfall.axes["workers"], waterfall.axes["epochs"]
    rest = [f"{axis} {value}" for axis, value in waterfall.axes.items() if axis not in ("workers", "epochs")]
    return f"{waterfall.ladder}: {', '.join([counted(workers, 'worker'), counted(epochs, 'epoch'), *rest])}"


def missing_reason(missing: MissingRun) -> str:
    """Why a planned run has no result that counts, as a sentence."""
    run, last = missing.run, missing.last
    if missing.reason == "not ok" and last is not None:
        ended = last.status if last.status == "failed" else f"was {last.status}"
        return f"No attempt is ok; the last one {ended}: {last.reason}"
    if missing.reason == "others":
        others = " and ".join(run_id for run_id in run.together if run_id != run.run_id)
        return f"It is ok, but it began together with {others}, and a result of that occasion is missing."
    if missing.reason == "not needed":
        return NOT_NEEDED
    return run.cannot_run or "Not run yet."


def by_length(items: Sequence[Item], cell_of: Callable[[Item], Cell]) -> list[list[Item]]:
    """Items grouped by their cells, which differ only in epochs within a group."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(repr(cell_of(item).axes | {"epochs": None}), []).append(item)
    return list(groups.values())


def envelope(found: Sequence[Ratio]) -> tuple[float, float]:
    """The lowest and the highest end of several ratios' intervals, which all of them must have."""
    ends = [(each.low, each.high) for each in found]
    return min(low for low, _ in ends if low is not None), max(high for _, high in ends if high is not None)


def cells_name(group: Sequence[Cell], among: Sequence[Cell]) -> str:
    """A stack with its number of workers, and whatever else tells these cells apart from the others."""
    return f"{group[0].stack} with {listed([counted(group[0].workers, 'worker'), *_apart(group, among)])}"


def stack_name(group: Sequence[Cell], among: Sequence[Cell]) -> str:
    """A stack, with whatever tells these cells apart from others with as many workers."""
    apart = _apart(group, among)
    return f"{group[0].stack} with {listed(apart)}" if apart else group[0].stack


def _apart(group: Sequence[Cell], among: Sequence[Cell]) -> list[str]:
    """Epochs and settings that tell some cells apart from others with as many workers.

    Args:
        group: the cells to name, which differ only in epochs.
        among: all cells that are mentioned.
    """
    first = group[0]
    others = [other.axes for other in among if other.workers == first.workers]
    differing = {name for name in first.axes if len({repr(axes[name]) for axes in others}) > 1}
    lengths = [str(cell.epochs) for cell in group]
    epochs = counted(first.epochs, "epoch") if len(group) == 1 else f"{' or '.join(lengths)} epochs"
    setting = setting_text({name: first.axes[name] for name in first.axes if name in differing})
    return [*([epochs] if "epochs" in differing else []), *([setting] if setting else [])]
