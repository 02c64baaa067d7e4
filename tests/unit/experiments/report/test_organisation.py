"""The report about stacks beyond their times: what they need, cost and offer, and which to choose."""

from __future__ import annotations

import ast
import json
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from experiments.analysis.figures import figures_of
from experiments.analysis.installing import Installing, RolesEffort, installing
from experiments.campaign.campaign import Campaign
from experiments.campaign.code_archive import launching_digest
from experiments.campaign.stacks import FILE as STACKS_FILE
from experiments.campaign.stacks import (
    Launcher,
    Setup,
    Stack,
    Stacks,
    added,
    code_lines_in,
    describe_stacks,
    read_setup,
)
from experiments.cluster.declarations import Declaration
from experiments.cluster.provisioning import FILE as PROVISIONING_FILE
from experiments.cluster.provisioning import Effort, Provisioning
from experiments.cluster.stack_facts import OFFERS, Claim, Facts, read_facts
from experiments.console.check import faults_of
from experiments.report.sections.organisation import NOT_RECORDED, READ_FROM_TASKS
from experiments.report.tables import Table
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.console.test_screens import kept
from tests.unit.experiments.made_up_records import STARTED, campaign, planned, quick, record
from tests.unit.experiments.made_up_workplace import Workplace
from tests.unit.experiments.report.drawn import tables

STACKS = sorted(path.parts[-3] for path in (REPOSITORY / "roles").glob("*/tasks/run.yml"))
DEBIAN = dict.fromkeys(("master", "workers"), "Debian GNU/Linux 12 (bookworm)")


def facts_of_stack(stack: str) -> Facts:
    facts = read_facts(REPOSITORY / "roles" / stack)
    assert facts is not None
    return facts


@cache
def names_in(file: str) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("stack", STACKS)
def test_every_test_that_a_shipped_stack_names_is_there(stack: str) -> None:
    named = [each for claim in facts_of_stack(stack).claims for each in claim.shown_by]
    assert named
    for each in named:
        file, _, name = each.partition("::")
        assert name in names_in(file), each


@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_has_a_launcher_and_stands_on_roles_that_are_played(stack: str) -> None:
    launcher = describe_stacks(REPOSITORY, [stack], DEBIAN).stacks[stack].launcher
    assert launcher is not None and launcher.lines > 0 and (REPOSITORY / launcher.file).is_file()
    plays = yaml.safe_load((REPOSITORY / "playbooks" / "provision.yml").read_text())
    stands_on = facts_of_stack(stack).stands_on
    played = [role for play in plays for role in play.get("roles", [])]
    assert set(stands_on) <= {role if isinstance(role, str) else role["role"] for role in played}
    # A stack that uses the engine stands on it.
    text = "".join(path.read_text() for path in (REPOSITORY / "roles" / stack / "vars").glob("*.yml"))
    assert ("docker" in text) == ("docker" in stands_on)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"says": "It does"}, "one of shown_by"),
        ({"says": "It does", "figure": "launch", "not_shown": "no test"}, "one of shown_by"),
        ({"says": "It does", "not_shown": "no test", "against": "a stand-in"}, "it goes with shown_by"),
        ({"says": "It does", "shown_by": ["tests/unit/test_it.py"]}, "shown_by"),
        ({"says": "It does", "figure": "opinion"}, "figure"),
    ],
)
def test_a_claim_names_what_shows_it_or_why_nothing_does(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Claim.model_validate(content)


def test_facts_that_are_not_whole_are_refused_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    assert read_facts(tmp_path) is None
    (tmp_path / "meta" / "facts.yml").write_text("title: Made up\nstands_on: []\n")
    with pytest.raises(UserError, match=r"facts\.yml\b.*\busing:.*\boffers:"):
        read_facts(tmp_path)


def test_lines_of_code_are_counted_without_words_about_them(tmp_path: Path) -> None:
    file = tmp_path / "launcher.py"
    file.write_text(
        '"""Says\n\nwhat."""\n\nimport a  # why\n\n'
        '# how\ndef f() -> None:\n    """Do."""\n    a.b(\n        "x"\n    )\n'
    )
    assert code_lines_in(file) == ["import a  # why", "def f() -> None:", "a.b(", '"x"', ")"]
    assert code_lines_in(tmp_path / "none.py") is None
    assert added(["a", "b"], ["a", "x", "b", "y"]) == 2 and added(["a"], ["a"]) == 0
    file.write_text("def (")
    with pytest.raises(UserError, match=r"launcher\.py\b.*\b1:"):
        code_lines_in(file)


def made_up(name: str, levels: str = "by hand", **claim: Any) -> Stack:
    """A stack whose every feature has this level."""
    shown = claim or {"shown_by": ["tests/unit/test_made_up.py::test_it"]}
    features = {each: {"says": f"{name} does it", "level": levels} | shown for each in OFFERS}
    start = {"says": "start it", "figure": "launch"}
    using = {"commands": [start], "logs": [{"says": "its log", "figure": "logs"}]}
    content = {"title": name, "stands_on": ["ground"], "using": using, "offers": features}
    ports = [{"port": f"{name}_port", "default": 7077}, {"port": f"{name}_web", "default": 80, "local": True}]
    return Stack(
        declares=Declaration.model_validate(
            {
                "master": {"packages": ["p", "java"], "services": ["s"], "files": ["/c"], "ports": ports},
                "workers": {"packages": ["java"], "files": ["/c"], "ports": ports[:1]},
            }
        ),
        facts=Facts.model_validate(content),
        launcher=Launcher(file=f"training/launchers/{name}.py", lines=10, changed=7),
    )


def provisioned(**changes: Any) -> Provisioning:
    """A record of provisioning that fits the made-up cluster."""
    done = {
        "role": "spark",
        "within": [],
        "seconds": 12.5,
        "tasks": 4,
        "changed": {"master": 2},
        "failed": [],
        "tasks_by_host": {"master": 4, "worker1": 2, "worker2": 2},
        "seconds_by_host": {"master": 9.0, "worker1": 2.0, "worker2": 4.0},
    }
    ground = done | {"role": "ground", "seconds": 3.0, "changed": {}}
    inner = done | {
        "role": "ground",
        "within": ["spark"],
        "seconds": 1.5,
        "tasks": 1,
        "changed": {"worker1": 1},
        "tasks_by_host": {"worker1": 1},
        "seconds_by_host": {"worker1": 1.5},
    }
    base = done | {"role": "base"}
    content: dict[str, Any] = {
        "schema_version": 2,
        "inventory": "testbed",
        "nodes": {"master": "198.18.0.1"},
        "variables": {"stacks": ["ddp", "spark"]},
        "environment_digest": "e" * 64,
        "started": STARTED,
        "ended": STARTED + timedelta(seconds=90),
        "status": "ok",
        "partial": [],
        "roles": [base, done, ground, inner],
        "ansible": "2.19.14",
        "git": {"revision": None, "dirty": None},
    }
    return Provisioning.model_validate(content | changes)


def keep(folder: Path, setup: Setup) -> None:
    if setup.stacks is not None:
        (folder / STACKS_FILE).write_text(setup.stacks.model_dump_json())
    if setup.provisioning is not None:
        (folder / PROVISIONING_FILE).write_text(setup.provisioning.model_dump_json())


def table(made: Campaign, title: str) -> Table:
    return tables(made)[title]


def rows(made: Campaign, title: str, columns: int = 1) -> dict[tuple[str, ...], list[str]]:
    return {tuple(row[:columns]): row[columns:] for row in table(made, title).texts}


def drawn(found: Table) -> str:
    """A table with all that is said around it, to compare with a kept one."""
    heads = [column.name for column in found.columns]
    lines = [found.title, found.before, *(" | ".join(row) for row in (heads, *found.texts)), *found.after]
    return "".join(f"{line}\n" for line in lines)


def efforts(made: Campaign) -> Installing:
    return installing(figures_of(made))


def seconds(made: Campaign) -> list[list[float | str | None]]:
    """What is shown of seconds, by stack: the roles' own (in all, master, worker), then of those below."""
    return [[each.value for each in row[1:]] for row in table(made, NEEDS).cells if "seconds" in row[0].main]


TWO = Stacks(stacks={"ddp": made_up("ddp"), "spark": made_up("spark", "built in")})
NEEDS, USING = "What each stack needs to be installed", "What using a stack takes"
OFFERED = "What each stack offers"


def test_what_a_campaign_did_not_keep_is_said_to_be_not_recorded(tmp_path: Path) -> None:
    made = quick(tmp_path)
    (only,) = table(made, NEEDS).texts
    assert only[0] == "all" and only[1].startswith(NOT_RECORDED)
    # What the dissertation says stays.
    assert sum("launching" in each for each in table(made, NEEDS).after) == 3
    assert sum("fault tolerance" in each for each in table(made, NEEDS).after) == 3
    assert not {USING, OFFERED} & set(tables(made))
    keep(made.folder, Setup(stacks=TWO))
    assert {each.own for each in efforts(made).stacks.values()} == {RolesEffort(None, None, None)}
    assert seconds(made) == [[NOT_RECORDED] * 2] * 6


def test_what_a_stack_needs_is_shown_with_what_provisioning_took(tmp_path: Path) -> None:
    made = quick(tmp_path)
    keep(made.folder, Setup(stacks=TWO, provisioning=provisioned()))
    found = efforts(made)
    ddp, spark = found.stacks["ddp"], found.stacks["spark"]
    # With the roles that it called; work of another stack's role does not count.
    assert (ddp.roles, ddp.own) == ([], RolesEffort(None, None, None))
    assert (spark.roles, spark.own) == (
        ["spark", "ground"],
        RolesEffort(
            altogether=Effort(tasks=5, changes=3, seconds=14.0),
            on_master=Effort(tasks=4, changes=2, seconds=9.0),
            on_slowest_worker=Effort(tasks=2, changes=0, seconds=4.0),
        ),
    )
    assert spark.below == ddp.below
    assert spark.below.altogether == Effort(tasks=4, changes=0, seconds=3.0)
    assert spark.below.on_master == Effort(tasks=4, changes=0, seconds=9.0)
    assert seconds(made) == [*([NOT_RECORDED, own] for own in (14, 9, 4)), *([own] * 2 for own in (3, 9, 4))]
    assert (found.shared, found.changes) == (["base"], 5)
    assert drawn(table(made, NEEDS)) == kept("needs.txt")
    unchanged = [
        role.model_copy(update={"changed": {}}) for role in provisioned().roles if role.role != "base"
    ]
    keep(made.folder, Setup(provisioning=provisioned(roles=[provisioned().roles[0], *unchanged])))
    assert efforts(made).changes and efforts(made).stacks["spark"].only_checked
    assert any("It changed nothing of spark, so" in each for each in table(made, NEEDS).after)
    quiet = provisioned(roles=[])
    keep(made.folder, Setup(provisioning=quiet))
    assert efforts(made).changes == 0
    assert any("It changed nothing on the nodes" in each for each in table(made, NEEDS).after)


def test_a_record_of_schema_1_says_nothing_by_node(tmp_path: Path) -> None:
    made = quick(tmp_path)
    old = provisioned().model_dump(mode="json")
    old["schema_version"] = 1
    for role in old["roles"]:
        del role["tasks_by_host"], role["seconds_by_host"]
    keep(made.folder, Setup(stacks=TWO, provisioning=Provisioning.model_validate(old)))
    own = efforts(made).stacks["spark"].own
    assert own == RolesEffort(Effort(tasks=5, changes=3, seconds=14.0), None, None)
    assert seconds(made)[:3] == [[NOT_RECORDED, 14.0], [NOT_RECORDED] * 2, [NOT_RECORDED] * 2]


def test_what_was_read_from_tasks_is_shown_and_said_to_be(tmp_path: Path) -> None:
    made = quick(tmp_path)
    node = {"steps": {"files": 3}, "packages": ["p"], "services": [], "configuration": ["/etc/c"]}
    port = {"number": 5432, "variables": ["a_port", "b_port"]}
    needs = {
        "roles": ["ddp"],
        "nodes": {"master": node, "workers": node},
        "ports": [port],
        "not_followed": [],
    }
    installing = {"own": needs, "before": needs}
    stacks = {
        name: {"installing": found, "facts": None, "launcher": None}
        for name, found in (("ddp", installing), ("spark", None))
    }
    old = {"schema_version": 1, "common": [], "stacks": stacks}
    (made.folder / STACKS_FILE).write_text(json.dumps(old))
    found = rows(made, NEEDS)
    assert found["packages",] == ["1: p", "not declared"] and found["files",][0] == "1: /etc/c"
    read = read_setup(made.folder).stacks
    assert read is not None and not read.declared_by_roles and READ_FROM_TASKS in table(made, NEEDS).before
    declares = read.stacks["ddp"].declares
    assert declares is not None
    (listens,) = declares.master.ports
    assert (listens.default, listens.port) == (5432, "a_port, b_port")
    assert f"{listens.default} ({listens.port})" in found["ports",][0]
    del stacks["ddp"]["launcher"]
    (made.folder / STACKS_FILE).write_text(json.dumps(old))
    with pytest.raises(UserError, match=r"stacks\.json\b.*\bschema 1"):
        read_setup(made.folder)


def test_what_using_takes_is_counted_from_a_run_of_this_campaign(tmp_path: Path) -> None:
    launch = {"stack": "ddp", "started": 0.0, "ended": 1.0, "exit_code": 0}
    launch |= {"command": ["run", "it", "now"], "nodes": ["worker1", "worker2"]}
    files = {"logs/worker1.log": "a" * 64, "logs/worker2.log": "b" * 64, "result.json": "c" * 64}
    records = [record("ddp", 1, 5, 6), record("ddp", 2, 3, 4, launch=launch, files=files)]
    plan = [planned("ddp", 1), planned("ddp", 2), planned("spark", 1)]
    made = campaign(tmp_path, plan, records)
    keep(made.folder, Setup(stacks=TWO))
    # Counts come from the run with the most workers. Spark has no run, and so no figures.
    assert drawn(table(made, USING)).replace(records[1].run_id, "RUN") == kept("using.txt")


def test_what_is_offered_is_shown_or_marked(tmp_path: Path) -> None:
    made = quick(tmp_path)
    stacks = {
        "ddp": made_up("ddp", not_shown="nobody tried"),
        "spark": made_up("spark", shown_by=["tests/unit/test_a.py::test_b"], against="a mock"),
    }
    keep(made.folder, Setup(stacks=Stacks(stacks=stacks)))
    found = rows(made, OFFERED, 2)
    # Table 5.11 names four things of Spark, and none of DDP.
    assert len(found) == 2 * len(OFFERS) + 4
    assert found["Fault tolerance", "spark"][0] == "executor restart (limited)"
    unshown, by_a_test = (found["Fault tolerance", stack][3] for stack in stacks)
    assert unshown.startswith("not shown") and unshown.endswith("nobody tried")
    assert "test 1" in by_a_test and "a mock" in by_a_test and "not shown" not in by_a_test
    named, there = table(made, OFFERED).after
    assert "determined" in there and "grid" in there
    assert named.startswith("Test 1:") and named.endswith(" tests/unit/test_a.py::test_b")


def test_the_same_campaign_gives_the_same_bytes_with_all_that_it_keeps(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        made = quick(tmp_path / name)
        stacks = describe_stacks(REPOSITORY, ["ddp", "spark"], DEBIAN)
        keep(made.folder, Setup(stacks=stacks, provisioning=provisioned()))
        assert not list(faults_of(made.folder))
        texts.append([path.read_bytes() for path in write_report(made)[:2]])
    assert texts[0] == texts[1]
    assert "spark-defaults.conf" in texts[0][0].decode()


@pytest.mark.parametrize(("name", "missing"), [(STACKS_FILE, "stacks"), (PROVISIONING_FILE, "inventory")])
def test_what_is_damaged_of_it_is_named(tmp_path: Path, name: str, missing: str) -> None:
    made = quick(tmp_path)
    (made.folder / name).write_text("{}")
    (fault,) = faults_of(made.folder)
    assert str(made.folder / name) in fault and f" {missing}: " in fault


def test_a_stack_that_runs_as_another_is_launched_by_that_ones_role_and_launcher(tmp_path: Path) -> None:
    for name, declared in (("plain", "{}\n"), ("same", "runs_as: plain\n")):
        (tmp_path / "roles" / name / "meta").mkdir(parents=True)
        (tmp_path / "roles" / name / "meta" / "stack.yml").write_text(declared)
    task, launcher = tmp_path / "roles/plain/run.yml", tmp_path / "training/launchers/plain.py"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("a = 1\n")
    before = launching_digest(tmp_path, ["same"])
    task.write_text("changed\n")
    assert launching_digest(tmp_path, ["same"]) != before
    found = describe_stacks(tmp_path, ["same"], DEBIAN).stacks["same"].launcher
    assert found is not None and (found.file, found.lines) == ("training/launchers/plain.py", 1)


def test_what_a_role_says_of_itself_launches_nothing(tmp_path: Path) -> None:
    (tmp_path / "roles" / "plain" / "meta").mkdir(parents=True)
    (tmp_path / "roles" / "plain" / "meta" / "main.yml").write_text("{}")
    before = launching_digest(tmp_path, ["plain"])
    for name in ("meta/facts.yml", "meta/stack.yml", "README.md"):
        (tmp_path / "roles" / "plain" / name).write_text("version_of: plain\n")
    assert launching_digest(tmp_path, ["plain"]) == before
    (tmp_path / "roles" / "plain" / "templates").mkdir()
    (tmp_path / "roles" / "plain" / "templates" / "README.md").write_text("a run may get it\n")
    assert launching_digest(tmp_path, ["plain"]) != before


@pytest.mark.parametrize(
    "name",
    ["filter_plugins/__pycache__/plain.cpython-311.pyc", "plain.pyc", "tasks/.run.yml.swp", "tasks/run.yml~"],
)
def test_what_python_and_editors_leave_in_a_role_launches_nothing(tmp_path: Path, name: str) -> None:
    task = tmp_path / "roles" / "plain" / "tasks" / "run.yml"
    task.parent.mkdir(parents=True)
    task.write_text("---\n")
    before = launching_digest(tmp_path, ["plain"])
    left = tmp_path / "roles" / "plain" / name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("something")
    assert launching_digest(tmp_path, ["plain"]) == before
    task.write_text("--- # changed\n")
    assert launching_digest(tmp_path, ["plain"]) != before


def test_a_campaign_keeps_the_newest_record_of_its_cluster_and_goes_on_after_another(
    workplace: Workplace,
) -> None:
    meta = workplace.root / "roles" / "plain" / "meta"
    meta.mkdir(parents=True)
    (meta / "stack.yml").write_text("master: {packages: [plain]}")
    folder = workplace.root / "results" / "provisioning"
    folder.mkdir(parents=True)
    nodes = dict.fromkeys(("master", "worker1", "worker2"), "198.18.0.1")
    fitting = provisioned(inventory="inventory/testbed", nodes=nodes)
    for name, found in {
        "20261101T000000Z": fitting.model_copy(update={"ansible": "older"}),
        "20261102T000000Z": fitting,
        "20261103T000000Z": fitting.model_copy(update={"status": "failed"}),
        "20261104T000000Z": fitting.model_copy(update={"partial": ["tags=install"]}),
        "20261105T000000Z": fitting.model_copy(update={"inventory": "another"}),
        "20261106T000000Z": fitting.model_copy(update={"environment_digest": "f" * 64}),
        "20261107T000000Z": fitting.model_copy(update={"nodes": {**nodes, "worker1": "198.18.0.9"}}),
    }.items():
        (folder / f"{name}.json").write_text(found.model_dump_json())
    only = ("--only", "plain-w1-*")
    status, output = workplace.run("run", "small", *only)
    assert status == 0, output
    (made,) = workplace.campaigns()
    assert (made / PROVISIONING_FILE).read_bytes() == (folder / "20261102T000000Z.json").read_bytes()
    kept = json.loads((made / STACKS_FILE).read_text())
    assert kept["stacks"]["plain"]["declares"]["master"]["packages"] == ["plain"]
    assert kept["stacks"]["slow"] == {"declares": None, "facts": None, "launcher": None}
    # Its provisioning is not part of a campaign's identity.
    done = workplace.records()
    assert [each.status for each in done.values()] == ["ok"]
    (folder / "20261108T000000Z.json").write_text(fitting.model_dump_json())
    status, output = workplace.run("run", "small", *only)
    assert status == 0, output
    assert workplace.campaigns() == [made] and workplace.records() == done
    assert not [fault for fault in workplace.faults() if "provisioning" in fault or "stacks.json" in fault]

    (folder / "20261109T000000Z.json").write_text("{}")
    status, output = workplace.run("run", "small", "--new", *only)
    assert status == 2 and "20261109T000000Z.json" in output
    assert workplace.campaigns() == [made]
