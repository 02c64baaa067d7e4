"""Campaigns that go on: what has not changed is adopted, and the newest one that matches is resumed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.campaign.campaign import open_campaign
from experiments.records.record import read_record
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace

MORE_SEEDS = MATRIX.replace("seed: [1]\norder", "seed: [1, 2]\norder")
ONE_STACK = MATRIX.replace("stack: [plain, slow]", "stack: [plain]")
SHORTER_TEXTS = MATRIX.replace("seed: [1]\norder", "seed: [1]\n  data.max_length: [16, 8]\norder")
LONGER = MATRIX.replace("epochs: [2]", "epochs: [2, 3]")


def made(workplace: Workplace) -> list[str]:
    """The runs that were made since the last time, such as `plain-w1`."""
    calls = [call.split() for call in workplace.calls()]
    workplace.forget_calls()
    return [call[1] for call in calls if call[0] == "run"]


def adopted(output: str) -> dict[str, int]:
    """How many runs were adopted, by campaign."""
    return {
        name: int(number)
        for name, number in re.findall(r"Adopted from campaign (\w+), .*: (\d+) run", output)
    }


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        (MATRIX, MORE_SEEDS, ["plain-w1", "plain-w2", "slow-w1", "slow-w2"]),
        (MATRIX, LONGER, ["plain-w1", "plain-w2", "slow-w1", "slow-w2"]),
        (ONE_STACK, MATRIX, ["slow-w1", "slow-w2"]),
        (MATRIX, SHORTER_TEXTS, ["plain-w1", "plain-w2", "slow-w1", "slow-w2"]),
    ],
    ids=["more seeds", "another length", "another stack", "other data"],
)
def test_what_has_not_changed_is_adopted_and_only_the_rest_is_made(
    workplace: Workplace, before: str, after: str, runs: list[str]
) -> None:
    workplace.matrix(before)
    assert workplace.run("run", "small")[0] == 0
    first, there = workplace.campaigns()[-1], len(made(workplace))
    workplace.matrix(after)
    status, output = workplace.run("run", "small")
    assert status == 0, output
    assert adopted(output) == {first.name: there}
    assert sorted(made(workplace)) == runs
    second = workplace.campaigns()[-1]
    records = [read_record(path) for path in second.glob("*/01/record.json")]
    assert {record.campaign for record in records} == {first.name, second.name}
    assert not workplace.faults()
    assert workplace.run("report", "small")[0] == 0
    report = (second / "report.md").read_text(encoding="utf-8")
    assert f"Adopted: {there} runs of {len(records)} were made in {first.name}" in report

    # Taken away again: the campaign that it was before goes on, and nothing is made.
    workplace.matrix(before)
    status, output = workplace.run("run", "small")
    assert status == 0 and f"Resuming campaign {first.name} of small. Newer ones don't match" in output
    assert made(workplace) == [] and len(workplace.campaigns()) == 2
    # And once more as it was.
    workplace.matrix(after)
    status, output = workplace.run("run", "small")
    assert status == 0 and f"Resuming campaign {second.name} of small." in output and not adopted(output)
    assert made(workplace) == [] and len(workplace.campaigns()) == 2


def test_a_campaign_of_several_data_sets_keeps_and_checks_them_all(workplace: Workplace) -> None:
    workplace.matrix(SHORTER_TEXTS)
    status, output = workplace.run("plan", "small", "--json")
    assert status == 0 and "preparing the cluster and 2 data sets" in output
    told = json.loads(output[output.index("{\n") :])["runs"]
    assert [run["axes"]["data.max_length"] for run in told] == [16, 8] * 4
    only = ("--only", "plain-w1-*")
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and "64 to train and 100 to validate, 2 data sets in all." in output
    (folder,) = workplace.campaigns()
    campaign = open_campaign(folder)
    lengths = {digest: each["spec"]["max_length"] for digest, each in campaign.file.every_dataset.items()}
    assert list(lengths.values()) == [16, 8] and campaign.file.identity.datasets == list(lengths)
    assert campaign.file.dataset["spec"]["max_length"] == 16
    assert campaign.file.identity.dataset == campaign.file.dataset["digest"]
    for path in folder.glob("plain-w1-*/01/record.json"):
        work = read_record(path).specification.work
        assert lengths.pop(work.data_digest) == work.data.tokens_per_sample
    assert not lengths and not any("data set" in fault for fault in workplace.faults())
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and f"Resuming campaign {folder.name}" in output

    file = folder / "campaign.json"
    content = json.loads(file.read_text())
    other = content["datasets"][1]["digest"]
    file.write_text(file.read_text().replace(other, "0" * 64))
    assert sum("used a data set other than the campaign's" in fault for fault in workplace.faults()) == 1
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and f"Changed since campaign {folder.name}: the data sets. This starts" in output


def test_a_campaign_of_one_data_set_is_what_it_was_before_there_could_be_several(
    workplace: Workplace,
) -> None:
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    (folder,) = workplace.campaigns()
    content = json.loads((folder / "campaign.json").read_text())
    assert content.pop("datasets") == [] and content["identity"].pop("datasets") == []
    (folder / "campaign.json").write_text(json.dumps(content))
    assert not any("data set" in fault for fault in workplace.faults())
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and f"Resuming campaign {folder.name}" in output
    workplace.matrix(SHORTER_TEXTS)
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and adopted(output) == {folder.name: 1}
    assert f"Changed since campaign {folder.name}: the matrix, the data sets." in output


def test_what_was_adopted_is_adopted_again_and_names_where_it_was_made(workplace: Workplace) -> None:
    assert workplace.run("run", "small")[0] == 0
    first = workplace.campaigns()[-1]
    workplace.matrix(MORE_SEEDS)
    assert workplace.run("run", "small")[0] == 0
    second = workplace.campaigns()[-1]
    workplace.matrix(MORE_SEEDS.replace("epochs: [2]", "epochs: [2, 3]"))
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0 and adopted(output) == {first.name: 4, second.name: 4}
    third = open_campaign(workplace.campaigns()[-1])
    counting = [third.counting(run.run_id) for run in third.file.plan]
    assert {record.campaign for record in counting if record} == {first.name, second.name, third.file.name}


@pytest.mark.parametrize(
    "change",
    [
        lambda workplace: (workplace.root / "training" / "extra.py").write_text("CHANGED = True\n"),
        lambda workplace: workplace.cluster(image={"reference": "other", "id": "sha256:other"}),
        lambda workplace: workplace.cluster(workers=["worker2", "worker1"]),
        lambda workplace: workplace.cluster(settings={"plain": "1" * 64, "slow": "2" * 64}),
    ],
    ids=["code", "image", "workers", "settings"],
)
def test_what_may_change_figures_keeps_records_from_being_adopted(
    workplace: Workplace, change: Callable[[Workplace], object]
) -> None:
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    made(workplace)
    workplace.matrix(MORE_SEEDS)
    change(workplace)
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and not adopted(output)
    assert made(workplace) == ["plain-w1", "plain-w1"]


@pytest.mark.parametrize("first", [{"slow": "It is a toy."}, {}], ids=["the real one", "the stand-in"])
def test_what_a_stand_in_made_is_made_again_by_the_real_software_and_the_other_way_round(
    workplace: Workplace, first: dict[str, str]
) -> None:
    workplace.matrix(MATRIX.replace("workers: [1, 2]", "workers: [1]"))
    workplace.cluster(standins=first)
    assert workplace.run("run", "small")[0] == 0
    made(workplace)
    workplace.cluster(standins={} if first else {"slow": "It is a toy."})
    status, output = workplace.run("run", "small")
    assert status == 0 and list(adopted(output).values()) == [1]
    assert ": which stacks a stand-in is run for. This starts a new campaign." in output
    assert made(workplace) == ["slow-w1"]


def test_a_stack_whose_own_environment_changed_is_made_again_and_the_others_are_not(
    workplace: Workplace,
) -> None:
    workplace.matrix(MATRIX.replace("workers: [1, 2]", "workers: [1]"))
    workplace.cluster(environments={"slow": "e" * 64, "none": "a" * 64})
    assert workplace.run("run", "small")[0] == 0
    made(workplace)
    (folder,) = workplace.campaigns()
    assert open_campaign(folder).file.environment.environments == {"slow": "e" * 64}
    workplace.cluster(environments={"slow": "f" * 64})
    status, output = workplace.run("run", "small", "--only", "plain-*")
    assert status == 0 and list(adopted(output).values()) == [1]
    assert ": an environment beside the cluster's. This starts a new campaign." in output
    assert made(workplace) == []


def test_runs_with_newer_libraries_are_made_again_and_the_others_are_not(workplace: Workplace) -> None:
    axes = "workers: [1]\n  libraries: [locked, newest]"
    workplace.matrix(ONE_STACK.replace("workers: [1, 2]", axes))
    declared = workplace.root / "roles/plain/meta/conditions.yml"
    declared.parent.mkdir(parents=True)
    declared.write_text("libraries: {newest: true}\n", encoding="utf-8")
    workplace.cluster(environments={"newest": "a" * 64})
    status, output = workplace.run("run", "small")
    assert status == 0, output
    assert made(workplace) == ["plain-w1", "plain-w1"]
    (folder,) = workplace.campaigns()
    assert open_campaign(folder).file.environment.environments == {"newest": "a" * 64}
    workplace.cluster(environments={"newest": "f" * 64})
    status, output = workplace.run("run", "small")
    assert status == 0 and list(adopted(output).values()) == [1]
    assert ": an environment beside the cluster's. This starts a new campaign." in output
    assert made(workplace) == ["plain-w1"]
    assert open_campaign(workplace.campaigns()[-1]).file.identity.environments == {"newest": "f" * 64}


def test_a_stack_whose_own_role_changed_is_made_again_and_the_others_are_not(workplace: Workplace) -> None:
    workplace.matrix(MATRIX.replace("workers: [1, 2]", "workers: [1]"))
    assert workplace.run("run", "small")[0] == 0
    made(workplace)
    (workplace.root / "roles" / "slow" / "vars").mkdir(parents=True)
    (workplace.root / "roles" / "slow" / "vars" / "main.yml").write_text("changed: true\n")
    status, output = workplace.run("run", "small")
    assert status == 0 and list(adopted(output).values()) == [1]
    assert made(workplace) == ["slow-w1"]


def test_a_new_campaign_on_request_adopts_nothing(workplace: Workplace) -> None:
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    made(workplace)
    status, output = workplace.run("run", "small", "--new", *only)
    assert status == 0 and not adopted(output)
    assert made(workplace) == ["plain-w1"]


def test_a_campaign_can_be_named(workplace: Workplace) -> None:
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    assert workplace.run("run", "small", "--new", *only)[0] == 0
    first, second = (folder.name for folder in workplace.campaigns())
    assert f"Resuming campaign {second} of small." in workplace.run("run", "small", *only)[1]
    status, output = workplace.run("run", "small", *only, "--campaign", first)
    assert status == 0 and f"Resuming campaign {first} of small." in output
    status, output = workplace.run("run", "small", *only, "--campaign", "20200101T000000Z")
    assert status == 2 and "There is no campaign 20200101T000000Z in " in output and first in output
    workplace.matrix(MORE_SEEDS)
    status, output = workplace.run("run", "small", *only, "--campaign", first)
    assert status == 2 and f"Campaign {first} does not match; changed since: the matrix. Change" in output
    status, output = workplace.run("run", "small", "--new", "--campaign", first)
    assert status == 2 and "leave out one of --new and --campaign" in output
    assert len(workplace.campaigns()) == 2


def test_a_damaged_note_of_an_adopted_run_is_said(workplace: Workplace) -> None:
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    workplace.matrix(MORE_SEEDS)
    assert workplace.run("run", "small", *only)[0] == 0
    (note,) = workplace.campaigns()[-1].glob("*/01/adopted.json")
    assert json.loads(note.read_text()) == {"campaign": workplace.campaigns()[0].name, "attempt": 1}
    note.unlink()
    note.write_text("{")
    (fault,) = [fault for fault in workplace.faults() if "adopted" in fault]
    assert fault.startswith(f"{note} can't be read") and Path(note).exists()


def commit_all(folder: Path) -> None:
    """Make a folder a repository with everything committed."""
    (folder / ".gitignore").write_text("__pycache__/\n/inventory/mine/\n")
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def test_what_was_not_committed_outside_and_in_locks_is_kept_and_goes_along(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_all(workplace.root)
    role, locks = tmp_path / "stacks/roles/mine", workplace.root / "inventory/mine/locks"
    for folder in (role, locks):
        folder.mkdir(parents=True)
        (folder / "content").write_text("content\n")
    (locks / "newest").mkdir()
    (locks / "newest/cpu-py3.11.txt").write_text("torch\n")
    commit_all(tmp_path / "stacks")
    (role / "content").write_text("changed\n")
    monkeypatch.setenv("TRAINBED_STACKS", str(tmp_path / "stacks"))
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(locks.parent))
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    workplace.matrix(MORE_SEEDS)
    assert workplace.run("run", "small", *only)[0] == 0
    for campaign in workplace.campaigns():
        for path in campaign.glob("*/01/record.json"):
            state = read_record(path).environment.git
            assert state.changed == [
                f"inventory/mine/locks/{name}" for name in ("content", "newest/cpu-py3.11.txt")
            ]
            assert state.outside["stacks"].changed == ["roles/mine/content"]
            assert len(state.patches) == 2
        assert {f"changes-{digest[:12]}.patch" for digest in state.patches} == {
            path.name for path in campaign.glob("changes-*.patch")
        }
        (lock,) = campaign.glob("lock-newest-cpu-py3.11-*.txt")
        assert lock.read_text() == "torch\n"
    assert not any("patch" in fault for fault in workplace.faults())
    assert state.outside["stacks"].patch is not None
    (campaign / f"changes-{state.outside['stacks'].patch[:12]}.patch").unlink()
    assert any("patch is missing: uncommitted changes" in fault for fault in workplace.faults())


def test_what_was_not_committed_is_kept_and_goes_along(workplace: Workplace) -> None:
    commit_all(workplace.root)
    only = ("--only", "plain-w1-*")
    (workplace.root / "training" / "extra.py").write_text("CHANGED = True\n")
    assert workplace.run("run", "small", *only)[0] == 0
    workplace.matrix(MORE_SEEDS)  # which is not what runs are made of
    assert workplace.run("run", "small", *only)[0] == 0
    for campaign in workplace.campaigns():
        (patch,) = campaign.glob("changes-*.patch")
        assert "+CHANGED = True" in patch.read_text()
        for path in campaign.glob("*/01/record.json"):
            state = read_record(path).environment.git
            assert (state.dirty, state.changed) == (True, ["training/extra.py"])
    assert not any("patch" in fault for fault in workplace.faults())
    patch.unlink()
    faults = [fault for fault in workplace.faults() if "patch" in fault]
    assert len(faults) == 2 and faults[0].startswith(f"{patch} is missing: uncommitted changes that ")
