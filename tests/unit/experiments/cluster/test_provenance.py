"""Where runs come from: only what they are made of counts, and what was not committed is kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.cluster.provenance import git_state, inventory_in_use, locks_of, patch_name
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


def restored(repository: Path, patch: bytes, to: Path) -> Path:
    """A new clone of a repository's last commit, with a patch applied."""
    git(repository, "clone", "--quiet", str(repository), str(to))
    subprocess.run(["git", "-C", str(to), "apply", "-"], input=patch, check=True)
    return to


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(
        tmp_path / "checkout", "training/loop.py", "roles/ddp/vars/main.yml", "playbooks/run.yml", "docs/a.md"
    )


def test_a_clean_checkout(checkout: Path) -> None:
    state, patch = git_state(checkout)
    revision = git(checkout, "rev-parse", "HEAD")
    assert (state.revision, state.dirty, state.changed, state.patch, patch) == (revision, False, [], None, {})
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
    state, patches = git_state(checkout)
    assert state.dirty is True
    assert state.changed == ["playbooks/run.yml", "roles/ddp/vars/main.yml", "training/new module.py"]
    ((digest, patch),) = patches.items()
    assert state.patches == [state.patch] == [digest] == [sha256(patch)]
    assert patch_name(digest).startswith("changes-")
    assert state.text.endswith(
        "with uncommitted changes (playbooks/run.yml, roles/ddp/vars/main.yml, training/new module.py)"
    )
    again = restored(checkout, patch, tmp_path / "again")
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


def test_the_changes_of_a_workload_outside_are_kept(checkout: Path, tmp_path: Path) -> None:
    site = repository(tmp_path / "site", "lab/hosts.yml", "mine/settings.py")
    for name in ("lab/hosts.yml", "mine/settings.py", "mine/model.py"):
        (site / name).write_text("changed\n", encoding="utf-8")
    state, patches = git_state(checkout, {"inventory": site / "lab", "workload": site / "mine"})
    assert state.outside["inventory"].dirty is True
    assert state.outside["inventory"].patch is None  # records hold what counts of it, and it may hold secrets
    ((digest, patch),) = patches.items()
    assert [state.outside["workload"].patch] == state.patches == [digest]
    again = restored(site, patch, tmp_path / "again")
    for name in ("settings.py", "model.py"):
        assert (again / "mine" / name).read_bytes() == (site / "mine" / name).read_bytes()
    assert (again / "lab/hosts.yml").read_text(encoding="utf-8") == "lab/hosts.yml\n"


def test_stacks_outside_are_judged_by_their_roles_and_launchers(checkout: Path, tmp_path: Path) -> None:
    stacks = repository(
        tmp_path / "stacks", "roles/mine/tasks/run.yml", "training/launchers/mine.py", "README"
    )
    (stacks / "README").write_text("changed", encoding="utf-8")
    state, patches = git_state(checkout, {"stacks": stacks})
    assert (state.outside["stacks"].revision, state.outside["stacks"].dirty, patches) == (
        git(stacks, "rev-parse", "HEAD"),
        False,
        {},
    )
    (stacks / "roles/mine/tasks/run.yml").write_text("changed\n", encoding="utf-8")
    state, patches = git_state(checkout, {"stacks": stacks})
    assert state.outside["stacks"].changed == ["roles/mine/tasks/run.yml"]
    assert state.patches == [state.outside["stacks"].patch] == list(patches)
    # In the checkout, they count as the rest of it does.
    mine = checkout / "mine"
    shutil.copytree(stacks / "roles", mine / "roles")
    assert git_state(checkout)[0].dirty is False
    assert git_state(checkout, {"stacks": mine})[0].changed == ["mine/roles/mine/tasks/run.yml"]


@pytest.mark.parametrize("ignored", [False, True])
def test_an_inventorys_own_locks_count_even_if_git_ignores_them(
    ignored: bool, checkout: Path, tmp_path: Path
) -> None:
    inventory = checkout / "inventory/mine"
    assert locks_of(None) is None and locks_of(inventory) is None
    (inventory / "locks/newest").mkdir(parents=True)
    (inventory / "hosts.yml").write_text("all: {}", encoding="utf-8")
    for name in ("cu126-py3.12.txt", "newest/cu126-py3.12.txt"):
        (inventory / "locks" / name).write_text("torch\n", encoding="utf-8")
    if ignored:
        (checkout / ".git/info/exclude").write_text("/inventory/mine/\n", encoding="utf-8")
    assert locks_of(inventory) == locks_of(inventory / "hosts.yml") == inventory / "locks"
    places = {"inventory": inventory, "locks": locks_of(inventory)}
    state, patches = git_state(checkout, places)
    assert (state.dirty, state.changed) == (
        True,
        ["inventory/mine/locks/cu126-py3.12.txt", "inventory/mine/locks/newest/cu126-py3.12.txt"],
    )
    assert state.patch is not None and state.outside == {}
    again = restored(checkout, patches[state.patch], tmp_path / "again")
    assert [(again / name).read_text(encoding="utf-8") for name in state.changed] == ["torch\n"] * 2


def test_an_inventory_in_the_checkout_may_be_a_repository_of_its_own(checkout: Path) -> None:
    (checkout / ".git/info/exclude").write_text("/inventory/mine/\n", encoding="utf-8")
    inventory = repository(checkout / "inventory/mine", "hosts.yml", "locks/cu126-py3.12.txt")
    places = {"inventory": inventory, "locks": locks_of(inventory)}
    state, patches = git_state(checkout, places)
    revision = git(inventory, "rev-parse", "HEAD")
    assert (state.dirty, patches) == (False, {})
    assert {what: (each.revision, each.dirty) for what, each in state.outside.items()} == {
        "inventory": (revision, False),
        "locks": (revision, False),
    }
    (inventory / "locks/cu126-py3.12.txt").write_text("changed\n", encoding="utf-8")
    state, patches = git_state(checkout, places)
    assert state.outside["locks"].changed == ["locks/cu126-py3.12.txt"]
    assert state.patches == [state.outside["locks"].patch] == list(patches)


def test_changes_that_git_cannot_tell_are_not_called_none(checkout: Path) -> None:
    (checkout / ".git/index").write_bytes(b"damaged")
    state, patches = git_state(checkout)
    revision = git(checkout, "rev-parse", "HEAD")
    assert (state.revision, state.dirty, patches) == (revision, None, {})
    assert state.text == f"{revision[:12]} with unknown changes"


def test_a_checkout_without_a_commit_has_nothing_to_patch(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "training").mkdir()
    (tmp_path / "training/loop.py").write_text("new", encoding="utf-8")
    state, patches = git_state(tmp_path)
    assert (state.dirty, patches, state.text) == (True, {}, "unknown")


def test_a_workload_in_the_checkout_counts(checkout: Path) -> None:
    (checkout / "mine").mkdir()
    (checkout / "mine/settings.py").write_text("new", encoding="utf-8")
    assert git_state(checkout)[0].dirty is False
    assert git_state(checkout, {"workload": checkout / "mine"})[0].changed == ["mine/settings.py"]


def test_without_git_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    state, patch = git_state(tmp_path, {"matrix": tmp_path.parent / "mine.yml"})
    assert (state.revision, state.dirty, patch, state.text) == (None, None, {}, "unknown")
    assert state.outside["matrix"].text == "unknown"


def test_the_inventory_is_the_one_that_ansible_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\ninventory = inventory/testbed\n", encoding="utf-8")
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    assert inventory_in_use(tmp_path) == tmp_path / "inventory/testbed"
    monkeypatch.setenv("ANSIBLE_INVENTORY", "/site/lab")
    assert inventory_in_use(tmp_path) == Path("/site/lab")
    monkeypatch.setenv("ANSIBLE_INVENTORY", "one,two")
    assert inventory_in_use(tmp_path) is None
