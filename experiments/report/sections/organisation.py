"""The dissertation's tables 5.10 and 5.11 as facts: what a stack needs, what it takes, what it offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal

from experiments.analysis.analysis import Analysis
from experiments.analysis.dissertation import Dissertation
from experiments.analysis.installing import RolesEffort
from experiments.analysis.organisation import largest_run, started
from experiments.campaign.stacks import Stack
from experiments.cluster.declarations import Declaration
from experiments.cluster.provisioning import Effort
from experiments.cluster.stack_facts import FIGURES, OFFERS, Claim, Feature
from experiments.records.record import BY_STANDIN, Record, utc_text
from experiments.report.formats import NOTHING, TENTHS, Format, Value, number, quantity
from experiments.report.sections import programs
from experiments.report.tables import Column, Table
from experiments.util.words import counted, listed

NEEDS_TITLE: Final = "What each stack needs to be installed"
USING_TITLE: Final = "What using a stack takes"
OFFERS_TITLE: Final = "What each stack offers"
NOT_RECORDED: Final = "not recorded"
NOT_MEASURED: Final = "not measured here"
LOGS: Final = "logs/"
SECONDS: Final = Format(unit=" s")
NOT_DECLARED: Final = "not declared"
NOT_TRIED: Final = "not tried"
THERE: Final = "the dissertation"
NEEDS: Final = ("installation steps", "configuration files")  # of table 5.10; the rest is about using
STARTING: Final = ("manual coordination", "launching")
CHANGING, ELSEWHERE = "changing a script", "submitting from elsewhere"
DECLARED: Final = "is declared in its role and checked on the nodes by make verify"
READ_FROM_TASKS: Final = (
    "was read from the tasks of its role when the campaign began: roles did not declare it then, and "
    "no test checked it"
)
ONLY_ON: Final = {"master": "on the master", "workers": "on workers"}


def organisation_tables(analysis: Analysis) -> list[Table]:
    """The tables that can be made from what the campaign keeps."""
    if analysis.figures.setup.stacks is None:
        return [_nothing_kept(analysis.dissertation)]
    return [needs_table(analysis), using_table(analysis), offers_table(analysis)]


def _nothing_kept(source: Dissertation) -> Table:
    return Table(
        title=NEEDS_TITLE,
        before="The dissertation's table 5.10, as the stacks' roles declare it and provisioning measured it.",
        columns=[Column("stacks"), Column("needs")],
        rows=[["all", f"{NOT_RECORDED}: the campaign began before campaigns kept this"]],
        after=[
            *_only_there(source, (), (*NEEDS, *STARTING, CHANGING, ELSEWHERE)),
            *_offers_only_there(source, ()),
        ],
    )


def _cell(source: Dissertation, aspect: str, stack: str) -> str:
    """What the dissertation says about an aspect of a stack."""
    return next((each.cells.get(stack, NOTHING) for each in source.aspects if each.aspect == aspect), NOTHING)


def _only_there(source: Dissertation, kept: Collection[str], aspects: Collection[str]) -> list[str]:
    """What the dissertation says about stacks that the campaign has kept nothing about."""
    return [
        f"The dissertation on {stack}, about which nothing is kept here: "
        + "; ".join(
            f"{each.aspect} ({each.where}): {each.cells[stack]}"
            for each in source.aspects
            if each.aspect in aspects
        )
        + "."
        for stack in source.stacks
        if stack not in kept
    ]


def _offers_only_there(source: Dissertation, kept: Collection[str]) -> list[str]:
    """The columns of table 5.11 of such stacks."""
    return [
        f"Table 5.11 on {stack}, about which nothing is kept here: "
        + "; ".join(f"{OFFERS[name].lower()}: {cells[stack].says}" for name, cells in source.features.items())
        + "."
        for stack in source.stacks
        if stack not in kept
    ]


def needs_table(analysis: Analysis) -> Table:
    """Table 5.10: what the role declares, and the tasks, changes and seconds that provisioning took."""
    kept = analysis.figures.setup.stacks
    assert kept is not None
    stacks, efforts = kept.stacks, analysis.installing.stacks
    rows: list[list[Value | str]] = []

    def declared(name: str, entry: Callable[[Declaration], str]) -> None:
        found = [each.declares for each in stacks.values()]
        rows.append([name, *(NOT_DECLARED if each is None else entry(each) for each in found)])

    def there(aspect: str) -> None:
        cells = [_cell(analysis.dissertation, aspect, name) for name in stacks]
        rows.append([f"{aspect}, {THERE}", *cells])

    there(NEEDS[0])
    declared("packages", lambda it: _by_group(it, "packages"))
    declared("services", lambda it: _by_group(it, "services"))
    there(NEEDS[1])
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
        after=[*_needs_remarks(analysis), *_only_there(analysis.dissertation, stacks, NEEDS)],
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
    note, checked = "", [name for name, each in found.stacks.items() if each.only_checked]
    if not found.changes:
        note = " It changed nothing on the nodes, so its seconds are those of checking, not of installing."
    elif checked:
        note = (
            f" It changed nothing of {listed(checked)}, so these seconds are those of checking, not of "
            "installing."
        )
    return [
        *remarks,
        f"Roles counted for none of these stacks: {', '.join(found.shared) or 'none'}. Python packages come "
        "in one locked environment for all stacks.",
        f"Provisioned {utc_text(provisioned.started)}, in {quantity(provisioned.seconds, SECONDS)} for all "
        f"nodes, with {counted(found.changes, 'change')} (by task and node).{note} What two stacks share is "
        "installed with the first.",
    ]


def using_table(analysis: Analysis) -> Table:
    """Commands, log locations and lines of code, each with what shows it."""
    figures, source = analysis.figures, analysis.dissertation
    assert figures.setup.stacks is not None
    stacks = figures.setup.stacks.stacks
    rows, tests = [], Tests()

    def there(name: str, *aspects: str) -> list[list[str]]:
        """What the dissertation says, and where."""
        return [
            [name, each.aspect, each.cells[name], f"{THERE}, {each.where}"]
            for each in source.aspects
            if each.aspect in aspects and name in each.cells
        ]

    for name, stack in stacks.items():
        record = largest_run(figures, name)
        rows += there(name, *STARTING)
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
            *there(name, CHANGING),
            _changed(name, analysis),
            _lines(name, stack, figures.campaign.baseline),
            *there(name, ELSEWHERE),
        ]
        if stack.facts is not None:
            claim = stack.facts.using.elsewhere
            says = (NOT_RECORDED, NOTHING) if claim is None else (claim.says, shown(claim, record, tests))
            rows.append([name, ELSEWHERE, *says])
    return Table(
        title=USING_TITLE,
        before=(
            "After the dissertation's table 5.10 and its section 5.5.3, whose rows name them. Claims come "
            "from the stack's role, each with what shows it; the rest is counted, and not judged."
        ),
        columns=[Column("stack"), Column("what"), Column("is"), Column("shown by")],
        rows=rows,
        after=[*tests.remarks, *_only_there(source, stacks, (*STARTING, CHANGING, ELSEWHERE))],
    )


def _tried(feature: Feature, named: str, record: Record | None, tests: Tests) -> tuple[str, str]:
    """What is claimed about something that table 5.11 names of a feature, and what shows it."""
    if feature.tried is None:
        return NOT_RECORDED, NOTHING
    claim = feature.tried.get(named)
    return (NOT_TRIED, NOTHING) if claim is None else (claim.says, shown(claim, record, tests))


def _changed(name: str, analysis: Analysis) -> list[str]:
    asked = analysis.asked.by_stack.get(name)
    if asked is None or asked.changed is None:
        return [name, "lines changed in a script", NOTHING, NOT_MEASURED]
    return [name, "lines changed in a script", number(asked.changed), programs.TITLE]


def _commands(name: str, record: Record | None) -> list[str]:
    found = started(record)
    if found is None:
        return [name, "commands for a run", NOTHING, NOT_MEASURED]
    return [
        name,
        f"commands for a run with {counted(found.workers, 'worker')}",
        f"{number(found.commands)}, of {counted(found.words, 'word')}",
        found.run_id,
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


def offers_table(analysis: Analysis) -> Table:
    """Table 5.11, each entry with the test that shows it or marked as not shown, and what it names."""
    figures, source = analysis.figures, analysis.dissertation
    assert figures.setup.stacks is not None
    stacks = figures.setup.stacks.stacks
    rows, tests = [], Tests()
    for feature, title in OFFERS.items():
        for name, stack in stacks.items():
            there = source.features[feature].get(name)
            says = NOTHING if there is None else there.says
            if stack.facts is None:
                missing = [NOTHING, NOT_RECORDED, "its role has no meta/facts.yml"]
                rows.append([title, name, says, *missing])
                continue
            claim: Feature = getattr(stack.facts.offers, feature)
            record = largest_run(figures, name)
            rows.append([title, name, says, claim.level, claim.says, shown(claim, record, tests)])
            rows += [
                [f"{title}: {named}", name, "named", NOTHING, *_tried(claim, named, record, tests)]
                for named in (there.names if there is not None else ())
            ]
    return Table(
        title=OFFERS_TITLE,
        before=(
            "The dissertation's table 5.11. By hand: training or its user has to do it. A test shows what "
            "its row says about this project's set-up of the stack, and no more. What a cell of the "
            "dissertation names one by one has rows of its own."
        ),
        columns=[
            Column("feature"),
            Column("stack"),
            Column(THERE),
            Column("is"),
            Column("how"),
            Column("shown by"),
        ],
        rows=rows,
        after=[*tests.remarks, *_offers_only_there(source, stacks)],
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
