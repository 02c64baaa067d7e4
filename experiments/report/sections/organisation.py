"""The dissertation's tables 5.10 and 5.11 as facts: what a stack needs, what it takes, what it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from experiments.analysis.figures import Figures
from experiments.campaign.stacks import Stack
from experiments.cluster.installing import Needs
from experiments.cluster.provisioning import Provisioning
from experiments.cluster.stack_facts import FIGURES, OFFERS, Claim
from experiments.records.record import Record, utc_text
from experiments.report.formats import NOTHING
from experiments.report.tables import Column, Table
from experiments.util.words import counted

NEEDS_TITLE: Final = "What each stack needs to be installed"
USING_TITLE: Final = "What using a stack takes"
OFFERS_TITLE: Final = "What each stack offers"
NOT_RECORDED: Final = "not recorded"
NOT_MEASURED: Final = "not measured here"
LOGS: Final = "logs/"
WHERE: Final = {"master": "the master", "workers": "a worker"}


def organisation_tables(figures: Figures) -> list[Table]:
    """The tables that can be made of what the campaign keeps."""
    kept = figures.about.stacks
    if kept is None:
        return [_nothing_kept()]
    return [needs_table(figures), using_table(figures), offers_table(figures)]


def _nothing_kept() -> Table:
    return Table(
        title=NEEDS_TITLE,
        before="The dissertation's table 5.10, counted from the roles that install the stacks.",
        columns=[Column("stacks"), Column("needs")],
        rows=[["all", f"{NOT_RECORDED}: the campaign began before campaigns kept this"]],
    )


def needs_table(figures: Figures) -> Table:
    """Table 5.10: steps, packages, services, files and ports, and the time that provisioning took."""
    assert figures.about.stacks is not None
    stacks, provisioned = figures.about.stacks.stacks, figures.about.provisioning
    rows: list[list[str]] = []

    def row(name: str, entry: Callable[[Stack], str]) -> None:
        rows.append([name, *(_of_stack(stack, entry) for stack in stacks.values())])

    row("its role, and those that it calls", lambda stack: _listed(_own(stack).roles, count=False))
    for node, where in WHERE.items():
        row(f"steps on {where}", lambda stack, node=node: _steps(_own(stack), node))  # type: ignore[misc]
    _parts(row, "", _own)
    row("seconds in provisioning", lambda stack: _took(provisioned, _own(stack).roles[:1]))
    row("roles that it stands on", lambda stack: _listed(_before(stack).roles, count=False))
    for node, where in WHERE.items():
        row(f"their steps on {where}", lambda stack, node=node: _steps(_before(stack), node))  # type: ignore[misc]
    _parts(row, "their ", _before)
    row("their seconds in provisioning", lambda stack: _took(provisioned, _before(stack).roles))
    return Table(
        title=NEEDS_TITLE,
        before=(
            "The dissertation's table 5.10, counted when the campaign began from the roles that install the "
            "stacks, for the distribution of its nodes and the settings that the roles have by themselves. A "
            "step is a task that may change something on a node; what only looks, waits or says is none."
        ),
        columns=[Column("what"), *(Column(name) for name in stacks)],
        rows=rows,
        after=_needs_remarks(figures),
    )


def _parts(
    row: Callable[[str, Callable[[Stack], str]], None], whose: str, of: Callable[[Stack], Needs]
) -> None:
    row(f"{whose}packages", lambda stack: _listed(of(stack).all_of("packages")))
    row(f"{whose}services", lambda stack: _listed(of(stack).all_of("services")))
    row(f"{whose}files below /etc", lambda stack: _listed(of(stack).all_of("configuration")))
    row(
        f"{whose}ports",
        lambda stack: _listed([f"{p.number} ({', '.join(p.variables)})" for p in of(stack).ports]),
    )


def _of_stack(stack: Stack, entry: Callable[[Stack], str]) -> str:
    return NOT_RECORDED if stack.installing is None else entry(stack)


def _own(stack: Stack) -> Needs:
    assert stack.installing is not None
    return stack.installing.own


def _before(stack: Stack) -> Needs:
    assert stack.installing is not None
    return stack.installing.before


def _listed(names: Sequence[str], *, count: bool = True) -> str:
    if not names:
        return "none"
    return f"{len(names)}: {', '.join(names)}" if count else ", ".join(names)


def _steps(needs: Needs, node: str) -> str:
    steps = needs.nodes[node].steps
    total = sum(steps.values())
    return f"{total}: {', '.join(f'{kind} {number}' for kind, number in steps.items())}" if total else "none"


def _took(provisioned: Provisioning | None, roles: Sequence[str]) -> str:
    if provisioned is None:
        return NOT_RECORDED
    done = provisioned.of(roles)
    if not done:
        return "none" if not roles else NOT_RECORDED
    changed = sum(sum(each.changed.values()) for each in done)
    seconds, tasks = sum(each.seconds for each in done), sum(each.tasks for each in done)
    return f"{seconds:.1f} ({tasks} tasks, {changed} changes)"


def _needs_remarks(figures: Figures) -> list[str]:
    kept, provisioned = figures.about.stacks, figures.about.provisioning
    assert kept is not None
    remarks = [
        f"Every stack stands on {', '.join(kept.common) or 'nothing else'}, too, which is not counted; "
        "Python packages come in one locked environment for all of them.",
        "Ports that are drawn at random while ranks train have no variable and are not counted.",
    ]
    unread = {
        each
        for stack in kept.stacks.values()
        if stack.installing is not None
        for each in (*stack.installing.own.not_followed, *stack.installing.before.not_followed)
    }
    remarks += [f"Not counted, for only a node knows which file it is: {each}." for each in sorted(unread)]
    if provisioned is None:
        return [*remarks, "Provisioning: no record fitted this cluster when the campaign began."]
    changes = sum(sum(each.changed.values()) for each in provisioned.roles)
    note = (
        " It changed nothing on the nodes: its seconds are those of looking, not of installing."
        if not changes
        else ""
    )
    return [
        *remarks,
        f"Provisioned {utc_text(provisioned.started)}, in {provisioned.seconds:.0f} s for all nodes, "
        f"with {changes} changes (by task and node).{note} What two stacks share is done for the first.",
    ]


def using_table(figures: Figures) -> Table:
    """Commands, places of logs and lines of code, each with what shows it."""
    assert figures.about.stacks is not None
    rows, tests = [], Tests()
    for name, stack in figures.about.stacks.stacks.items():
        record = _largest(figures, name)
        if stack.facts is None:
            rows.append([name, "commands and logs", NOT_RECORDED, "its role has no meta/facts.yml"])
        else:
            claims = stack.facts.using
            rows += [
                [name, "to start a run", each.says, shown(each, record, tests)] for each in claims.commands
            ]
            rows += [
                [name, "place to look for a log", each.says, shown(each, record, tests)]
                for each in claims.logs
            ]
        rows += [
            _commands(name, record),
            _log_files(name, record),
            _lines(name, stack, figures.campaign.baseline),
        ]
    return Table(
        title=USING_TITLE,
        before="Claims stand in the stack's role, each with what shows it; the rest is counted.",
        columns=[Column("stack"), Column("what"), Column("is"), Column("shown by")],
        rows=rows,
        after=tests.remarks,
    )


def _largest(figures: Figures, stack: str) -> Record | None:
    """The run of a stack with the most workers: the first of them."""
    runs = [each for each in figures.counting if each.specification.stack == stack]
    return max(runs, key=lambda each: each.specification.work.workers, default=None)


def _commands(name: str, record: Record | None) -> list[str]:
    if record is None or record.launch is None:
        return [name, "commands for a run", NOTHING, NOT_MEASURED]
    number = max(1, len(record.launch.nodes))
    workers = record.specification.work.workers
    text = f"{number}, of {len(record.launch.command)} words"
    return [
        name,
        f"commands for a run with {counted(workers, 'worker')}",
        text,
        record.run_id,
    ]


def _log_files(name: str, record: Record | None) -> list[str]:
    if record is None:
        return [name, "log files of a run", NOTHING, NOT_MEASURED]
    files = sorted(each.removeprefix(LOGS) for each in record.files if each.startswith(LOGS))
    workers = record.specification.work.workers
    what = f"log files of a run with {counted(workers, 'worker')}"
    return [name, what, _listed(files), record.run_id]


def _lines(name: str, stack: Stack, baseline: str) -> list[str]:
    if stack.launcher is None:
        return [name, "lines of its launcher", NOTHING, "it has none in training/launchers"]
    text = str(stack.launcher.lines)
    if name != baseline:
        text += f", {stack.launcher.changed} of them not in {baseline}'s"
    return [name, "lines of its launcher", text, stack.launcher.file]


def offers_table(figures: Figures) -> Table:
    """Table 5.11, each entry with the test that shows it or marked as not shown."""
    assert figures.about.stacks is not None
    rows, tests = [], Tests()
    for feature, title in OFFERS.items():
        for name, stack in figures.about.stacks.stacks.items():
            if stack.facts is None:
                rows.append([title, name, NOTHING, NOT_RECORDED, "its role has no meta/facts.yml"])
                continue
            claim = getattr(stack.facts.offers, feature)
            rows.append([title, name, claim.level, claim.says, shown(claim, _largest(figures, name), tests)])
    return Table(
        title=OFFERS_TITLE,
        before=(
            "The dissertation's table 5.11. By hand: training or its user has to do it. A test shows what "
            "its row says of this project's set-up of the stack, and no more."
        ),
        columns=[Column("feature"), Column("stack"), Column("is"), Column("how"), Column("shown by")],
        rows=rows,
        after=tests.remarks,
    )


class Tests:
    """The tests that a table names: by number in its cells, in full below it, for their names are long."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def text(self, names: Sequence[str]) -> str:
        """Some of them, in a cell."""
        numbers = [str(self._numbers.setdefault(name, len(self._numbers) + 1)) for name in names]
        return f"test{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"

    @property
    def remarks(self) -> list[str]:
        """All of them, below the table."""
        return [f"Test {number}: {name}" for name, number in self._numbers.items()]


def shown(claim: Claim, record: Record | None, tests: Tests) -> str:
    """What shows a claim; a figure must be there in this campaign (in `record`, a run of the stack)."""
    if claim.not_shown is not None:
        return f"not shown: {claim.not_shown}"
    if claim.figure is None:
        return tests.text(claim.shown_by) + (f", against {claim.against}" if claim.against else "")
    there = record is not None
    if record is not None and claim.figure == "launch":
        there = record.launch is not None
    if record is not None and claim.figure == "logs":
        there = any(name.startswith(LOGS) for name in record.files)
    return FIGURES[claim.figure] if there else f"{NOT_MEASURED} ({FIGURES[claim.figure]})"
