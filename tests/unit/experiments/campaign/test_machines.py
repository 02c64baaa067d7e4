"""Two labs whose nodes have the same names share nothing; results are chosen by the machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.campaign import open_campaign
from experiments.campaign.identity import are_others
from experiments.records.record import read_record
from tests.unit.experiments.campaign.test_adoption import MORE_SEEDS, adopted, made
from tests.unit.experiments.kept_campaigns import kept_campaigns, name_of
from tests.unit.experiments.made_up_workplace import Workplace, wait_until

ONLY = ("--only", "plain-w1-*")


class Labs:
    """One checkout that is used with several inventories, whose nodes all have the same names."""

    def __init__(self, workplace: Workplace, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workplace = workplace
        self._folder = folder
        self._monkeypatch = monkeypatch

    def go_to(self, lab: str, **changes: Any) -> None:
        """Uses the inventory of this lab, with its machines; the first word of their ids is the lab's."""
        inventory = self._folder / lab
        inventory.mkdir(exist_ok=True)
        (inventory / "hosts.yml").write_text("the same names everywhere\n", encoding="utf-8")
        self._monkeypatch.setenv("ANSIBLE_INVENTORY", str(inventory))
        self.workplace.cluster()
        path = self.workplace.cluster_folder / "cluster.json"
        content = json.loads(path.read_text())
        for name, node in content["nodes"].items():
            node["machine"] = f"{lab} {name}"
        path.write_text(json.dumps(content | {"inventory": lab} | changes))

    def run(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        status, output = self.workplace.run(*arguments)
        assert status == 0, output
        return " ".join(output.split())

    def reports(self) -> list[str]:
        """The campaigns that have a report; it is removed."""
        found = [path for path in self.workplace.campaigns() if (path / "report.md").exists()]
        for path in found:
            (path / "report.md").unlink()
        return [path.name for path in found]


@pytest.fixture
def labs(workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Labs:
    return Labs(workplace, tmp_path, monkeypatch)


def test_labs_with_the_same_names_share_no_campaign_and_adopt_nothing(labs: Labs) -> None:
    labs.go_to("here")
    labs.run("run", "small", *ONLY)
    (first,) = labs.workplace.campaigns()
    assert len(made(labs.workplace)) == 1
    labs.go_to("there")
    output = labs.run("run", "small", *ONLY)
    assert f"Changed since campaign {first.name}: the machines. This starts a new campaign." in output
    assert not adopted(output) and len(made(labs.workplace)) == 1
    second = labs.workplace.campaigns()[-1]
    # More seeds: only what was made on these very machines is adopted.
    labs.workplace.matrix(MORE_SEEDS)
    assert adopted(labs.run("run", "small", *ONLY)) == {second.name: 1}
    labs.go_to("here")
    assert adopted(labs.run("run", "small", *ONLY)) == {first.name: 1}
    assert len(labs.workplace.campaigns()) == 4
    for folder in labs.workplace.campaigns():
        campaign = open_campaign(folder)
        records = [read_record(path) for path in folder.glob("*/*/record.json")]
        of = {node.machine for record in records for node in record.environment.nodes.values()}
        assert of == set(campaign.file.identity.machines.values()) and len(of) == 3


def test_reading_commands_take_the_campaigns_of_this_inventorys_machines(labs: Labs) -> None:
    for lab in ("here", "there"):
        labs.go_to(lab)
        labs.run("run", "small", *ONLY)
    here, there = (path.name for path in labs.workplace.campaigns())
    labs.workplace.forget_calls()

    assert "other machines" not in labs.run("report", "small") and labs.reports() == [there]
    labs.go_to("here")
    assert (
        f"The newest campaign of small, {there}, is of other machines than this inventory's "
        f"(CAMPAIGN={there} chooses it): {here} is taken."
    ) in labs.run("report", "small")
    assert labs.reports() == [here]
    assert "other machines" not in labs.run("report", "small", "--campaign", there)
    assert labs.reports() == [there]
    output = labs.run("compare", "results/small", f"results/small/{there}")
    assert f"(results/small/{there} chooses it): {here} is taken." in output
    assert f"A: small, {here}. B: small, {there}. Not the same: the machines." in output
    printed = labs.workplace.run("campaigns", "small", "--json")[1]
    listed = json.loads(printed[printed.index("{\n") :])["campaigns"]
    assert {each["campaign"]: each["differs"] for each in listed} == {here: [], there: ["the machines"]}

    labs.go_to("elsewhere")
    status, output = labs.workplace.run("report", "small")
    assert (status, labs.reports()) == (2, [])
    assert output == (
        "There are campaigns of small of different machines, and which machines this inventory has is not "
        f"known before it is used (make plan). Name one of them; CAMPAIGN={there} is the newest.\n"
    )
    labs.run("report", "small", "--campaign", there)
    assert labs.reports() == [there]
    assert not (labs.workplace.cluster_folder / "calls.jsonl").exists(), "no node was asked"
    labs.run("plan", "small")
    status, output = labs.workplace.run("report", "small")
    assert (status, labs.reports()) == (2, [])
    assert output == (
        f"No campaign of small is of this inventory's machines. The newest, {there}, is of others: "
        f"CAMPAIGN={there} chooses it.\n"
    )


def test_an_inventory_whose_hosts_or_testbed_change_is_not_taken_for_what_it_was(
    labs: Labs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for lab in ("here", "there"):
        labs.go_to(lab)
        labs.run("run", "small", *ONLY)
    labs.go_to("here")
    assert "is of other machines" in labs.run("report", "small")
    with monkeypatch.context() as other:
        other.setenv("TESTBED", "another")
        assert "is not known before it is used" in labs.workplace.run("report", "small")[1]
    (tmp_path / "here/hosts.yml").write_text("others\n", encoding="utf-8")
    assert "is not known before it is used" in labs.workplace.run("report", "small")[1]


def test_an_inventory_not_used_yet_takes_the_newest_where_there_are_no_others(labs: Labs) -> None:
    labs.go_to("here")
    labs.run("run", "small", *ONLY)
    (only,) = labs.workplace.campaigns()
    labs.go_to("elsewhere")
    output = labs.run("report", "small")
    assert f"The newest campaign of small is taken, {only.name}: which machines this inventory has" in output
    assert labs.reports() == [only.name]


def test_a_lab_is_its_machines_whatever_their_names_and_number(labs: Labs) -> None:
    labs.go_to("here")
    labs.run("run", "small", *ONLY)
    (first,) = labs.workplace.campaigns()
    # The same machines under other names: its results are this inventory's, but nothing is resumed.
    path = labs.workplace.cluster_folder / "cluster.json"
    whole = json.loads(path.read_text())
    renamed = {name.replace("worker", "node"): node for name, node in whole["nodes"].items()}
    path.write_text(json.dumps(whole | {"nodes": renamed, "workers": ["node1", "node2"]}))
    labs.run("plan", "small")
    assert "of other machines" not in labs.run("report", "small") and labs.reports() == [first.name]
    # Some of them: another lab.
    some = {name: node for name, node in whole["nodes"].items() if name != "worker2"}
    path.write_text(json.dumps(whole | {"nodes": some, "workers": ["worker1"]}))
    labs.run("plan", "small", *ONLY)
    status, output = labs.workplace.run("report", "small")
    assert status == 2 and "No campaign of small is of this inventory's machines." in output
    # All of them, two in each other's place: what they make now is not the same.
    path.write_text(json.dumps(whole))
    swapped = json.loads(path.read_text())
    nodes = swapped["nodes"]
    nodes["worker1"]["machine"], nodes["worker2"]["machine"] = "here worker2", "here worker1"
    path.write_text(json.dumps(swapped))
    output = labs.run("run", "small", *ONLY)
    assert "the machines. This starts a new campaign." in output and not adopted(output)


def test_times_of_other_machines_are_no_estimate(labs: Labs) -> None:
    labs.go_to("here")
    labs.run("run", "small", *ONLY)

    def expected() -> list[float | None]:
        printed = labs.workplace.run("plan", "small", *ONLY, "--json")[1]
        return [run["expected_s"] for run in json.loads(printed[printed.index("{\n") :])["runs"]]

    assert None not in expected()
    labs.go_to("there")
    assert expected() == [None]


def test_campaigns_of_earlier_versions_are_judged_by_all_the_rest(labs: Labs) -> None:
    labs.go_to("here")
    labs.run("run", "small", *ONLY)
    (folder,) = labs.workplace.campaigns()
    path = folder / "campaign.json"
    content = json.loads(path.read_text())
    assert content["identity"].pop("machines")
    for node in content["environment"]["nodes"].values():
        del node["machine"]
    path.write_text(json.dumps(content))
    labs.go_to("there")
    assert f"Resuming campaign {folder.name}" in labs.run("run", "small", *ONLY)
    assert "machines" not in labs.run("report", "small")
    assert labs.reports() == [folder.name]


def test_what_a_controller_left_on_other_machines_is_left_to_them(labs: Labs) -> None:
    labs.go_to("here")
    labs.workplace.behaviour(runs={"plain-w1": {"hangs": True}})
    process = labs.workplace.start("run", "small", *ONLY)
    labs.workplace.wait_for("hanging")
    process.kill()
    process.communicate()
    labs.workplace.behaviour()
    (first,) = labs.workplace.campaigns()
    labs.go_to("there")
    labs.run("run", "small", *ONLY)
    assert not list(first.glob("*/01/record.json"))
    labs.go_to("here")
    labs.run("run", "small", *ONLY)
    wait_until(lambda: len(list(first.glob("*/0*/record.json"))) == 2)
    assert read_record(next(first.glob("*/01/record.json"))).status == "interrupted"


def test_damaged_notes_are_named(labs: Labs) -> None:
    labs.go_to("here")
    labs.run("run", "small", *ONLY)
    (labs.workplace.root / "results/machines.json").write_text("[]")
    status, output = labs.workplace.run("report", "small")
    assert status == 2 and "machines.json is not valid" in output and "Remove it" in output


@pytest.mark.parametrize(
    ("machines", "others", "found"),
    [
        ({}, {"a": "1"}, False),
        ({"a": "1"}, {}, False),
        ({"a": "1"}, {"a": "1", "b": "2"}, True),
        ({"a": "1", "b": "2"}, {"a": "1", "b": "3"}, True),
        ({"a": "1"}, {"b": "1"}, False),
        ({"a": "1", "b": "2"}, {"a": "2", "b": "1"}, False),
    ],
)
def test_machines_are_others_where_that_is_known(
    machines: dict[str, str], others: dict[str, str], found: bool
) -> None:
    assert are_others(machines, others) == found


@pytest.mark.parametrize("folder", kept_campaigns(), ids=name_of)
def test_kept_campaigns_are_read_as_before(folder: Path) -> None:
    file = open_campaign(folder).file
    identity = file.identity
    assert identity.machines == {} and identity.differences(identity) == []
    known = identity.model_copy(update={"machines": {"master": "1"}})
    assert known.differences(identity) == [] and identity.launches_alike(known, file.plan[0].specification)
