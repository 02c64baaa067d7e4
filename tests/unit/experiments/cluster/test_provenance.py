"""Where runs come from: only what they are made of counts, and what was not committed is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from experiments.cluster.provenance import git_state, inventory_in_use, patch_name
from experiments.util.files import sha256


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, *files: str) -> Path:
    """A repository with these files, committed."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(
        tmp_path / "checkout", "training/loop.py", "roles/ddp/vars/main.yml", "playbooks/run.yml", "docs/a.md"
    )


def test_a_clean_checkout(checkout: Path) -> None:
    state, patch = git_state(checkout)
    revision = git(checkout, "rev-parse", "HEAD")
    assert (state.revision, state.dirty, state.changed, state.patch, patch) == (revision, False, [], None, "")
    assert state.text == revision[:12]


def test_what_does_not_go_into_runs_may_have_changed(checkout: Path) -> None:
    (checkout / "docs/a.md").write_text("changed", encoding="utf-8")
    (checkout / "inventory/mine").mkdir(parents=True)
    (checkout / "inventory/mine/hosts.yml").write_text("all: {}", encoding="utf-8")
    places = {"inventory": checkout / "inventory/mine", "matrix": checkout / "mine.yml", "workload": None}
    assert git_state(checkout, places)[0].dirty is False


def test_changes_are_listed_and_their_patch_restores_them(checkout: Path, tmp_path: Path) -> None:
    (checkout / "roles/ddp/vars/main.yml").write_text("changed: true\n", encoding="utf-8")
    (checkout / "training/new module.py").write_text("NEW = 'é'\n", encoding="utf-8")
    (checkout / "playbooks/run.yml").unlink()
    state, patch = git_state(checkout)
    assert state.dirty is True
    assert state.changed == ["playbooks/run.yml", "roles/ddp/vars/main.yml", "training/new module.py"]
    assert state.patch == sha256(patch.encode()) and patch_name(state.patch).startswith("changes-")
    assert state.text.endswith(
        "with uncommitted changes (playbooks/run.yml, roles/ddp/vars/main.yml, training/new module.py)"
    )
    again = tmp_path / "again"
    git(tmp_path, "clone", "--quiet", str(checkout), str(again))
    subprocess.run(["git", "-C", str(again), "apply", "-"], input=patch, text=True, check=True)
    for name in ("roles/ddp/vars/main.yml", "training/new module.py"):
        assert (again / name).read_bytes() == (checkout / name).read_bytes()
    assert not (again / "playbooks/run.yml").exists()


def test_what_lies_outside_has_a_revision_of_its_own(checkout: Path, tmp_path: Path) -> None:
    site = repository(tmp_path / "site", "lab/hosts.yml", "mine.yml", "other.yml", "mine/settings.py")
    (site / "other.yml").write_text("changed", encoding="utf-8")
    (site / "mine/settings.py").write_text("changed", encoding="utf-8")
    places = {"inventory": site / "lab", "matrix": site / "mine.yml", "workload": site / "mine"}
    state, _ = git_state(checkout, places)
    assert state.dirty is False
    revision = git(site, "rev-parse", "HEAD")
    assert {what: (each.revision, each.dirty) for what, each in state.outside.items()} == {
        "inventory": (revision, False),
        "matrix": (revision, False),
        "workload": (revision, True),
    }
    assert state.outside["workload"].changed == ["mine/settings.py"]


def test_a_workload_in_the_checkout_counts(checkout: Path) -> None:
    (checkout / "mine").mkdir()
    (checkout / "mine/settings.py").write_text("new", encoding="utf-8")
    assert git_state(checkout)[0].dirty is False
    assert git_state(checkout, {"workload": checkout / "mine"})[0].changed == ["mine/settings.py"]


def test_without_git_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    state, patch = git_state(tmp_path, {"matrix": tmp_path.parent / "mine.yml"})
    assert (state.revision, state.dirty, patch, state.text) == (None, None, "", "unknown")
    assert state.outside["matrix"].text == "unknown"


def test_the_inventory_is_the_one_that_ansible_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\ninventory = inventory/testbed\n", encoding="utf-8")
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    assert inventory_in_use(tmp_path) == tmp_path / "inventory/testbed"
    monkeypatch.setenv("ANSIBLE_INVENTORY", "/site/lab")
    assert inventory_in_use(tmp_path) == Path("/site/lab")
    monkeypatch.setenv("ANSIBLE_INVENTORY", "one,two")
    assert inventory_in_use(tmp_path) is None
