"""Stacks outside the checkout: their roles and launchers are found and belong to a campaign's identity."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from experiments.campaign.code_archive import launching_digest, source_digest, training_archive
from experiments.cluster.stack_folders import VARIABLE, role_of, stacks_with
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY
from training.util.digest import code_digest


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one stack's role and launcher."""
    (tmp_path / "roles" / "mine" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "mine" / "tasks" / "run.yml").write_text("---\n[]\n")
    (tmp_path / "training" / "launchers").mkdir(parents=True)
    (tmp_path / "training" / "launchers" / "mine.py").write_text("import training.rank\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def _names(archive: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive)).namelist()


def test_a_role_is_looked_for_in_the_checkout_first(outside: Path) -> None:
    (outside / "roles" / "ddp").mkdir()

    assert role_of("ddp") == REPOSITORY / "roles" / "ddp"
    assert role_of("mine") == outside / "roles" / "mine"


def test_a_role_that_another_one_shadows_gives_its_stack_no_tasks(outside: Path) -> None:
    """As for the lookup `stacks_with`, which test_uninstall.py tests."""
    before = stacks_with("search")
    for name in ("ddp", "mine"):
        tasks = outside / "roles" / name / "tasks"
        tasks.mkdir(parents=True, exist_ok=True)
        for task in ("run", "search"):
            (tasks / f"{task}.yml").write_text("---\n[]\n")

    assert stacks_with("search") == sorted([*before, "mine"])
    assert "ddp" not in before and "ddp" in stacks_with("run")


def test_launchers_from_outside_travel_with_the_training_code(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_it = training_archive(REPOSITORY)
    names = _names(with_it)
    monkeypatch.delenv(VARIABLE)

    assert set(names) - set(_names(training_archive(REPOSITORY))) == {"training/launchers/mine.py"}
    assert names == sorted(names)
    (outside / "training.zip").write_bytes(with_it)
    assert source_digest(outside / "training.zip") != code_digest()
    assert (outside / "training" / "launchers" / "mine.py").is_file()


def test_what_launches_a_stack_from_outside_is_part_of_a_campaigns_identity(outside: Path) -> None:
    before = launching_digest(REPOSITORY, ["mine"])
    (outside / "roles" / "mine" / "tasks" / "run.yml").write_text("---\n# changed\n[]\n")

    assert launching_digest(REPOSITORY, ["mine"]) != before


def test_a_launcher_can_not_take_the_place_of_the_checkouts(outside: Path) -> None:
    (outside / "training" / "launchers" / "ddp.py").write_text("")

    with pytest.raises(UserError, match=r"ddp\.py has the name of a launcher"):
        training_archive(REPOSITORY)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing"))

    with pytest.raises(UserError, match=r"TRAINBED_STACKS names .*nothing"):
        role_of("mine")


def test_the_digest_of_an_archive_is_that_of_the_code_in_it(tmp_path: Path) -> None:
    (tmp_path / "training.zip").write_bytes(training_archive(REPOSITORY))

    assert source_digest(tmp_path / "training.zip") == code_digest()
    with pytest.raises(UserError, match=r"none\.zip, can't be read"):
        source_digest(tmp_path / "none.zip")
