"""Patches of uncommitted changes: whatever git is configured to do, they apply, and are never partial."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from experiments.util import git
from experiments.util.errors import UserError
from experiments.util.git import changes_as_patch

FILES = {
    "plain.txt": b"".join(b"line %d\n" % number for number in range(20)),
    "windows.txt": b"one\r\ntwo\r\n",
    "old latin.txt": b"\xe9t\xe9\n",
    "binary.dat": bytes(range(256)),
}
CHANGED = {
    "plain.txt": FILES["plain.txt"].replace(b"line 9\n", b"line nine\n"),
    "windows.txt": b"one\r\nthree\r\n",
    "old latin.txt": b"\xe8re\n",
    "binary.dat": bytes(reversed(range(256))),
    "new/café 1.txt": b"new\r\n",
    "new/binary.dat": bytes(range(255, 0, -1)),
    "new/empty": b"",
}
CONFIGURATION = """\
[user]
    name = somebody
    email = somebody@example.org
[diff]
    noprefix = true
    mnemonicPrefix = true
    external = false
    context = 0
    renames = copies
    relative = true
    algorithm = patience
[diff "upper"]
    textconv = tr a-z A-Z <
[color]
    ui = always
[core]
    attributesFile = {attributes}
    abbrev = 4
[status]
    showUntrackedFiles = no
"""


def run(folder: Path, *arguments: str, said: bytes | None = None) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], input=said, check=True, capture_output=True)


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def path_with(folder: Path, first: str) -> str:
    """A PATH on which git runs a shell line before it does its work."""
    (folder / "bin").mkdir()
    real = subprocess.run(["sh", "-c", "command -v git"], check=True, capture_output=True, text=True).stdout
    (folder / "bin/git").write_text(f'#!/bin/sh\n{first}\nexec {real.strip()} "$@"\n', encoding="utf-8")
    (folder / "bin/git").chmod(0o755)
    return f"{folder / 'bin'}:{os.environ['PATH']}"


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with uncommitted changes of every kind."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.delenv("GIT_DIFF_OPTS", raising=False)
    folder = tmp_path / "changed"
    folder.mkdir()
    run(folder, "init", "--quiet")
    write(folder, FILES)
    run(folder, "add", ".")
    run(folder, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "all")
    write(folder, CHANGED)
    return folder


def test_a_patch_is_the_same_under_any_configuration_and_applies(
    changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = changes_as_patch(changed)
    attributes = tmp_path / "attributes"
    attributes.write_text("*.txt diff=upper\n", encoding="utf-8")
    configuration = tmp_path / "configuration"
    configuration.write_text(CONFIGURATION.format(attributes=attributes), encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(configuration))
    monkeypatch.setenv("GIT_DIFF_OPTS", "--unified=0")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    assert changes_as_patch(changed) == patch
    again = tmp_path / "again"
    run(tmp_path, "clone", "--quiet", str(changed), str(again))
    run(again, "apply", "-", said=patch)
    assert {name: (again / name).read_bytes() for name in CHANGED} == CHANGED


def test_a_git_that_fails_is_said(changed: Path) -> None:
    (changed / ".git/index").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"can't be kept with the campaign: git diff failed \(.*index.*\)"):
        changes_as_patch(changed)


def test_a_git_that_fails_for_a_single_file_is_said(
    changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = 'case "$*" in *--no-index*empty) echo "error: unreadable" >&2; exit 1;; esac'
    monkeypatch.setenv("PATH", path_with(tmp_path, first))
    with pytest.raises(UserError, match=r"git diff failed \(error: unreadable\)\. Correct that, or commit"):
        changes_as_patch(changed)


def test_a_git_that_does_not_answer_is_said(
    changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path, 'case "$*" in *ls-files*) exec sleep 60;; esac'))
    monkeypatch.setattr(git, "TIMEOUT_S", 2)
    with pytest.raises(UserError, match=r"git ls-files failed \(no answer within 2 s\)"):
        changes_as_patch(changed)


def test_a_repository_within_is_named(changed: Path) -> None:
    (changed / "within").mkdir()
    run(changed / "within", "init", "--quiet")
    write(changed / "within", {"file": b"content"})
    with pytest.raises(UserError, match=r"changed/within is a git repository in another one"):
        changes_as_patch(changed)
