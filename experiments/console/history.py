"""All campaigns of a matrix on screen and as CSV: a table for each cell, with change points."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from experiments.analysis.figures import Figures, figures_of
from experiments.analysis.history import Entry, Line, history
from experiments.campaign.campaign import Campaign, campaigns, open_campaign
from experiments.cluster.environment import Environment, Node
from experiments.console.comparison import differences
from experiments.records.record import BY_STANDIN
from experiments.report.formats import CHANGE, Format, interval, number, quantity
from experiments.report.names import setting_text
from experiments.util.errors import UserError
from experiments.util.files import write_whole
from experiments.util.screen import Screen
from experiments.util.words import counted, listed

COLUMNS: Final = (
    "campaign",
    "revision",
    "environment",
    "processor",
    "runs",
    "train_s",
    "95 % interval",
    "over the first stack",
    "",
)
SECONDS: Final = Format(1)
RATIO: Final = Format(3)
NODE_FACTS: Final[dict[str, Callable[[Node], object]]] = {
    "processor": lambda node: node.cpu,
    "cores": lambda node: node.cores,
    "GPUs": lambda node: ", ".join(f"{gpu.name}, driver {gpu.driver}" for gpu in node.gpus) or "none",
    "kernel": lambda node: node.kernel,
    "system": lambda node: node.distribution,
    "Docker": lambda node: node.docker or "none",
    "Java": lambda node: node.java or "none",
}
OF_NODES: Final = "the nodes"  # what `Identity.differences` calls all of these
ABOUT: Final = (
    "A change point is where times changed by more than chance among the runs of a campaign, corrected for "
    "all gaps between campaigns here. What changed with it may be the cause, and so may the day."
)
NOT_SEARCHED: Final = (
    "Nothing was searched for change points: that takes two campaigns with times in one table, and several "
    "runs in one of them."
)
WITHOUT_TIMES: Final = {
    "stand-in": BY_STANDIN,
    "disturbed": "disturbed by a trace: not measured",
    "timed": "no run counts",
}


def show_history(screen: Screen, results: Path, matrix: str, to: Path | None = None) -> None:
    """Shows all campaigns of a matrix, cell by cell; a damaged one is named and left out.

    Args:
        screen: where.
        results: the folder with the results of all matrices.
        matrix: its name or path.
        to: a file that gets the same as CSV; None = none.

    Raises:
        UserError: there are fewer than two campaigns, or no folder for the file.
    """
    if to is not None and not to.parent.is_dir():
        raise UserError(f"There is no folder {to.parent} for the file of --csv: make it, or name another.")
    name = Path(matrix).stem
    folders = campaigns(results / name)
    if not folders:
        raise UserError(
            f"There are no campaigns of {name} in {results}; `make campaigns` lists those of all matrices."
        )
    if len(folders) == 1:
        raise UserError(f"There is only one campaign of {name}, {folders[0].name}: a history needs two.")
    found = [each for folder in folders if (each := _read(screen, folder)) is not None]
    if len(found) < 2:
        raise UserError(f"Fewer than two campaigns of {name} can be read: a history needs two.")
    lines = history(found)
    several = any(line.other_machines for line in lines)
    for line in lines:
        screen.table(_title(line, several), COLUMNS, [_row(entry, line) for entry in line.entries])
    for text, style in _on_changes(lines, several):
        screen.line(text, style)
    if to is not None:
        write_whole(to, _as_csv(lines, several))
        screen.line(f"Written: {to}.")


def _on_changes(lines: Sequence[Line], several: bool) -> Iterator[tuple[str, str]]:
    """How many change points were found, and where none could be, each with the style of its line."""
    if not any(line.tested for line in lines):
        yield NOT_SEARCHED, "yellow"
        return
    for line in lines:
        if not line.tested and sum(entry.train_s is not None for entry in line.entries) > 1:
            name = _title(line, several)
            yield f"Not searched, as no campaign has several runs that differ: {name}.", "yellow"
    changes = sum(entry.change is not None for line in lines for entry in line.entries)
    yield f"{counted(changes, 'change point')} found. {ABOUT}" if changes else "No change point found.", ""


def _read(screen: Screen, folder: Path) -> tuple[Campaign, Figures] | None:
    """A campaign with its figures; says so if it is damaged."""
    try:
        campaign = open_campaign(folder)
        if campaign.file.name != folder.name:
            raise UserError(f"It holds the campaign {campaign.file.name}: it was renamed, or is a copy.")
        return campaign, figures_of(campaign)
    except UserError as error:
        screen.line(f"Left out: campaign {folder.name}. {error}", "yellow")
        return None


def _title(line: Line, several: bool) -> str:
    """The cell, and what sets these campaigns apart from others of it."""
    return "; ".join(
        [", ".join(f"{name} {value}" for name, value in line.axes.items()), *_why(line, several)]
    )


def _why(line: Line, several: bool) -> list[str]:
    """Why this is a line of its own. If the history has several sets of machines, all are named."""
    environment = line.entries[0].campaign.file.environment
    machines = f"machines ({environment.inventory}: {listed(list(environment.nodes))})"
    return [
        *([f"other {machines}" if line.other_machines else machines] if several else []),
        *([f"other work ({listed(line.other_work)})"] if line.other_work else []),
        *(["simulated: nothing was trained"] if line.simulated else []),
        *([] if line.kind == "timed" else [WITHOUT_TIMES[line.kind]]),
    ]


def _row(entry: Entry, line: Line) -> list[str]:
    file, train, over = entry.campaign.file, entry.train_s, entry.over_baseline
    environment = file.environment
    ends = "" if over is None or over.low is None else f" ({interval(over.low, over.high, RATIO)})"
    return [
        file.name,
        _revision(environment),
        f"{environment.lock} {environment.environment_digest[:8]}",
        _of_nodes(environment, "processor"),
        str(len(entry.records)),
        "" if train is None else number(train.mean, SECONDS),
        "" if train is None or train.low is None else interval(train.low, train.high, SECONDS),
        "" if over is None else f"{number(over.ratio, RATIO)}{ends}",
        "; ".join(_remarks(entry, line)),
    ]


def _remarks(entry: Entry, line: Line) -> list[str]:
    """A change point, and why runs or times are missing."""
    said = []
    if entry.change is not None:
        change = quantity(entry.change.ratio - 1, CHANGE)
        ends = interval(entry.change.low - 1, entry.change.high - 1, CHANGE)
        with_it = listed(_changed_with(entry) or ["nothing that is recorded"])
        said.append(f"changed by {change} ({ends}), with {with_it}")
    if entry.adopted:
        said.append(f"{counted(entry.adopted, 'adopted run')} left to the campaign that made it")
    elif entry.train_s is None:
        said.append(WITHOUT_TIMES[line.kind])
    return said


def _changed_with(entry: Entry) -> list[str]:
    """What is not the same as in the campaign before a change point, in words."""
    if entry.before is None:
        return []
    before, after = entry.before.file.environment, entry.campaign.file.environment
    nodes = [(name, _of_nodes(before, name), _of_nodes(after, name)) for name in NODE_FACTS]
    other = [
        ("lock", before.lock, after.lock),
        *(
            (name, before.versions.get(name, "none"), after.versions.get(name, "none"))
            for name in sorted(before.versions.keys() | after.versions.keys())
        ),
    ]
    of_nodes, of_software = (
        [f"{name} ({then} to {now})" for name, then, now in facts if then != now] for facts in (nodes, other)
    )
    rest = differences(entry.before, entry.campaign)
    return [*of_nodes, *of_software, *(each for each in rest if each != OF_NODES or not of_nodes)]


def _of_nodes(environment: Environment, name: str) -> str:
    """A fact about the nodes, each value once."""
    return listed(list(dict.fromkeys(str(NODE_FACTS[name](node)) for node in environment.nodes.values())))


def _revision(environment: Environment) -> str:
    git = environment.git
    return f"{(git.revision or 'unknown')[:12]}{'+' if git.dirty else ''}"


def _as_csv(lines: Sequence[Line], several: bool) -> str:
    """A row for each campaign of each line; an empty field is something that there is not."""
    rows = [_csv_row(entry, line, several) for line in lines for entry in line.entries]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _csv_row(entry: Entry, line: Line, several: bool) -> dict[str, Any]:
    file, train, over, change = entry.campaign.file, entry.train_s, entry.over_baseline, entry.change
    environment = file.environment
    return {
        "stack": line.axes["stack"],
        "workers": line.axes["workers"],
        "epochs": line.axes["epochs"],
        "setting": setting_text(line.axes),
        "line": "; ".join(_why(line, several)),
        "campaign": file.name,
        "started": file.started.isoformat(),
        "revision": environment.git.revision,
        "uncommitted": environment.git.dirty,
        "environment": environment.environment_digest,
        "lock": environment.lock,
        "processor": _of_nodes(environment, "processor"),
        "kernel": _of_nodes(environment, "kernel"),
        "runs": len(entry.records),
        "adopted": entry.adopted,
        "train_s": train and train.mean,
        "train_s_low": train and train.low,
        "train_s_high": train and train.high,
        "first_stack": file.baseline,
        "over_first_stack": over and over.ratio,
        "over_first_stack_low": over and over.low,
        "over_first_stack_high": over and over.high,
        "pairs": over and over.n,
        "change": change and change.ratio,
        "change_low": change and change.low,
        "change_high": change and change.high,
        "change_p": change and change.p,
        "changed_with": "; ".join(_changed_with(entry)),
    }
