"""The dissertation's tables 5.10 and 5.11 as facts: what a stack needs, what it takes, what it offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from experiments.analysis.analysis import Analysis
from experiments.analysis.figures import Figures
from experiments.analysis.installing import RolesEffort
from experiments.campaign.stacks import Stack
from experiments.cluster.declarations import Declaration
from experiments.cluster.provisioning import Effort
from experiments.cluster.stack_facts import FIGURES, OFFERS, Claim
from experiments.records.record import BY_STANDIN, Record, utc_text
from experiments.report.formats import NOTHING, TENTHS, Format, Value, number, quantity
from experiments.report.tables import Column, Table
from experiments.util.words import counted

NEEDS_TITLE: Final = "What each stack needs to be installed"
USING_TITLE: Final = "What using a stack takes"
OFFERS_TITLE: Final = "What each stack offers"
NOT_RECORDED: Final = "not recorded"
NOT_MEASURED: Final = "not measured here"
LOGS: Final = "logs/"
SECONDS: Final = Format(unit=" s")
NOT_DECLARED: Final = "not declared"
DECLARED: Final = "is declared in its role and checked on the nodes by make verify"
READ_FROM_TASKS: Final = (
    "was read from the tasks of its role when the campaign began: roles did not declare it then, and "
    "no test checked it"
)
ONLY_ON: Final = {"master": "on the master", "workers": "on workers"}


def organisation_tables(analysis: Analysis) -> list[Table]:
    """The tables that can be made from what the campaign keeps."""
    figures = analysis.figures
    if figures.setup.stacks is None:
        return [_nothing_kept()]
    return [needs_table(analysis), using_table(figures), offers_table(figures)]


def _nothing_kept() -> Table:
    return Table(
        title=NEEDS_TITLE,
        before="The dissertation's table 5.10, as the stacks' roles declare it and provisioning measured it.",
        columns=[Column("stacks"), Column("needs")],
        rows=[["all", f"{NOT_RECORDED}: the campaign began before campaigns kept this"]],
    )


def needs_table(analysis: Analysis) -> Table:
    """Table 5.10: what the role declares, and the tasks, changes and seconds that provisioning took."""
    kept = analysis.figures.setup.stacks
    assert kept is not None
    stacks, efforts = kept.stacks, analysis.installing.stacks
    rows: list[list[Value | str]] = []

    def declared(name: str, entry: Callable[[Declaration], str]) -> None:
        found = [each.declares for each in stacks.values()]
        rows.append([name, *(NOT_DECLARED if each is None else entry(each) for each in found)])

    declared("packages", lambda it: _by_group(it, "packages"))
    declared("services", lambda it: _by_group(it, "services"))
    declared("files", lambda it: _by_group(it, "files"))
    declared("ports", _ports)
    called = [", ".join(efforts[name].roles) or NOT_RECORDED for name in stacks]
    rows.append(["its role, and those that it called", *called])
    rows += _effort_rows("", [efforts[name].own for name in stacks])
    rows.append(
        ["roles that it stands on", *(", ".join(efforts[name].stands_on) or "none" for name in stacks)]
    )
    below = [efforts[name].below if efforts[name].stands_on else None for name in stacks]
    rows += _effort_rows("their ", below)
    how = DECLARED if kept.declared_by_roles else READ_FROM_TASKS
    return Table(
        title=NEEDS_TITLE,
        before=(
            f"The dissertation's table 5.10. What a stack puts on the nodes {how}. What installing it takes "
            "was measured by the provisioning that set up this cluster."
        ),
        columns=[Column("what"), *(Column(name) for name in stacks)],
        rows=rows,
        after=_needs_remarks(analysis),
    )


def _by_group(declaration: Declaration, what: Literal["packages", "services", "files"]) -> str:
    """Names with their number: first those on every node, then those of one group only."""
    names = {group: set(getattr(each, what)) for group, each in declaration.groups.items()}
    everywhere = set.intersection(*names.values())
    texts = [", ".join(sorted(everywhere))] if everywhere else []
    for group, found in names.items():
        if only := sorted(found - everywhere):
            texts.append(f"{', '.join(only)} ({ONLY_ON[group]})")
    count = len(set.union(*names.values()))
    return f"{number(count)}: {'; '.join(texts)}" if count else "none"


def _ports(declaration: Declaration) -> str:
    ports = {
        (port.default, f"{port.default} ({port.port}{', local' if port.local else ''})")
        for each in declaration.groups.values()
        for port in each.ports
    }
    # By number; a template, which only an inventory turns into a number, comes last.
    return _listed([text for _, text in sorted(ports, key=lambda it: (isinstance(it[0], str), *it))])


def _effort_rows(whose: str, found: Sequence[RolesEffort | None]) -> list[list[Value | str]]:
    """What roles took: on all nodes together, on the master, on the slowest worker. None: no such roles."""
    parts: dict[str, Callable[[RolesEffort], Effort | None]] = {
        "seconds in provisioning": lambda it: it.altogether,
        "seconds on the master": lambda it: it.on_master,
        "seconds on the slowest worker": lambda it: it.on_slowest_worker,
    }
    return [
        [
            f"{whose}{name}",
            *("none" if each is None else _effort(part(each), each.by_standin) for each in found),
        ]
        for name, part in parts.items()
    ]


def _effort(effort: Effort | None, by_standin: bool) -> Value | str:
    if effort is None:
        return NOT_RECORDED
    note = f"{counted(effort.tasks, 'task')}, {counted(effort.changes, 'change')}"
    return Value(BY_STANDIN, note=note) if by_standin else Value(effort.seconds, TENTHS, note=note)


def _listed(names: Sequence[str]) -> str:
    return f"{number(len(names))}: {', '.join(names)}" if names else "none"


def _needs_remarks(analysis: Analysis) -> list[str]:
    kept, provisioned = analysis.figures.setup.stacks, analysis.figures.setup.provisioning
    assert kept is not None
    remarks = (
        ["Ports are those that services listen on; ports that only runs open are not declared."]
        if kept.declared_by_roles
        else []
    )
    if provisioned is None:
        return [*remarks, "Provisioning: no record matched this cluster when the campaign began."]
    found = analysis.installing
    note = (
        " It changed nothing on the nodes, so its seconds are those of checking, not of installing."
        if not found.changes
        else ""
    )
    return [
        *remarks,
        f"Roles counted for none of these stacks: {', '.join(found.shared) or 'none'}. Python packages come "
        "in one locked environment for all stacks.",
        f"Provisioned {utc_text(provisioned.started)}, in {quantity(provisioned.seconds, SECONDS)} for all "
        f"nodes, with {counted(found.changes, 'change')} (by task and node).{note} What two stacks share is "
        "installed with the first.",
    ]


def using_table(figures: Figures) -> Table:
    """Commands, log locations and lines of code, each with what shows it."""
    assert figures.setup.stacks is not None
    rows, tests = [], Tests()
    for name, stack in figures.setup.stacks.stacks.items():
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
        before="Claims come from the stack's role, each with what shows it; the rest is counted.",
        columns=[Column("stack"), Column("what"), Column("is"), Column("shown by")],
        rows=rows,
        after=tests.remarks,
    )


def _largest(figures: Figures, stack: str) -> Record | None:
    """A stack's first run with the most workers."""
    runs = [each for each in figures.counting if each.specification.stack == stack]
    return max(runs, key=lambda each: each.specification.work.workers, default=None)


def _commands(name: str, record: Record | None) -> list[str]:
    if record is None or record.launch is None:
        return [name, "commands for a run", NOTHING, NOT_MEASURED]
    workers = record.specification.work.workers
    commands, words = max(1, len(record.launch.nodes)), len(record.launch.command)
    text = f"{number(commands)}, of {counted(words, 'word')}"
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
    text = number(stack.launcher.lines)
    if name != baseline:
        text += f", {number(stack.launcher.changed)} of them not in {baseline}'s"
    return [name, "lines of its launcher", text, stack.launcher.file]


def offers_table(figures: Figures) -> Table:
    """Table 5.11, each entry with the test that shows it or marked as not shown."""
    assert figures.setup.stacks is not None
    rows, tests = [], Tests()
    for feature, title in OFFERS.items():
        for name, stack in figures.setup.stacks.stacks.items():
            if stack.facts is None:
                rows.append([title, name, NOTHING, NOT_RECORDED, "its role has no meta/facts.yml"])
                continue
            claim = getattr(stack.facts.offers, feature)
            rows.append([title, name, claim.level, claim.says, shown(claim, _largest(figures, name), tests)])
    return Table(
        title=OFFERS_TITLE,
        before=(
            "The dissertation's table 5.11. By hand: training or its user has to do it. A test shows what "
            "its row says about this project's set-up of the stack, and no more."
        ),
        columns=[Column("feature"), Column("stack"), Column("is"), Column("how"), Column("shown by")],
        rows=rows,
        after=tests.remarks,
    )


class Tests:
    """The tests that a table names: by number in its cells and, since names are long, in full below it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def text(self, names: Sequence[str]) -> str:
        """Some of them, in a cell."""
        numbers = [str(self._numbers.setdefault(name, len(self._numbers) + 1)) for name in names]
        return f"test{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"

    @property
    def remarks(self) -> list[str]:
        """All of them, below the table."""
        return [f"Test {at}: {name}" for name, at in self._numbers.items()]


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
