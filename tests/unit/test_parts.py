"""The parts of the verbs that run tests, and the answer to an unknown part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import VERBS, Part
from tests.stacks import ROOT
from tests.standins import given
from tests.unit.conftest import SLOW_MODULES


def run(verb: str, only: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call tests/run.py as the Makefile does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.run", verb, only],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("verb", VERBS)
def test_parts_are_listed(verb: str) -> None:
    done = run(verb, "?")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [part.name for part in VERBS[verb]]


def test_an_unknown_part_is_one_sentence_with_those_there_are() -> None:
    done = run("test", "loop nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert "nonsense" in said
    assert all(part.name in said for part in VERBS["test"])


def test_packages_of_determined_that_are_not_there_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / given.NAMES[0]).touch()
    done = run("test", "lint", **{given.VARIABLE: str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said == f"determined_packages names {tmp_path}, which has no {given.NAMES[1]}: it must hold both."


def test_what_tests_of_determined_run_on_is_told_and_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(given.VARIABLE, raising=False)
    assert given.is_standin() and given.digest() is None and "its stand-in (" in given.said()
    assert sorted(path.name for path in given.prepared(tmp_path / "built").iterdir()) == sorted(given.NAMES)
    for name in given.NAMES:
        (tmp_path / name).write_text(name, encoding="ascii")
    monkeypatch.setenv(given.VARIABLE, str(tmp_path))
    assert not given.is_standin() and given.said() == f"Determined: the packages in {tmp_path}"
    assert given.prepared(tmp_path / "other") == tmp_path and not (tmp_path / "other").exists()
    before = given.digest()
    (tmp_path / given.NAMES[0]).write_text("another build", encoding="ascii")
    assert before is not None and before != given.digest()


@pytest.mark.parametrize(
    "part", [part for parts in VERBS.values() for part in parts], ids=lambda part: part.name
)
def test_parts_name_tests_that_are_there(part: Part) -> None:
    named = [
        argument.removeprefix("--ignore=")
        for command in part.commands
        for argument in command
        if "tests/" in argument
    ]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_contributors_read_what_each_part_proves() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    parts = [part for verb in ("test", "test-wide") for part in VERBS[verb]]
    rows = [f"| `{part.name}` | {part.proves} |" for part in parts]
    assert [line for line in text if line in rows] == rows


def test_what_is_called_slow_is_there() -> None:
    modules = {path.stem for path in (ROOT / "tests" / "unit").rglob("test_*.py")}
    assert modules >= SLOW_MODULES


def test_every_end_to_end_test_is_in_a_part() -> None:
    files = {path.name for path in (ROOT / "tests" / "e2e").glob("test_*.py")}
    named = {
        argument.rsplit("/", 1)[-1]
        for parts in (VERBS["test"], VERBS["test-wide"])
        for part in parts
        for command in part.commands
        for argument in command
        if argument.startswith("tests/e2e/")
    }
    assert named == files
