"""`make inventory`: what it writes, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inventory import new

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = ["--master", "192.0.2.10", "--workers", "192.0.2.11", "192.0.2.12", "--user", "ada"]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "site" / "lab"


def written(folder: Path) -> Any:
    """What Ansible reads in it."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-inventory", "--inventory", folder, "--list"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What it says on being refused; one line."""
    assert new.main([*options]) == new.USAGE_ERROR
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


def test_the_options_become_hosts_and_variables_that_ansible_reads(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new.main([*OPTIONS, "--device", "cuda", "--directory", str(target)]) == 0

    found = written(target)
    hosts = found["_meta"]["hostvars"]
    assert found["master"]["hosts"] == ["master"] and found["workers"]["hosts"] == ["worker1", "worker2"]
    assert found["cluster"]["children"] == ["master", "workers"]
    assert [hosts[name]["ansible_host"] for name in ("master", "worker1", "worker2")] == [
        "192.0.2.10",
        "192.0.2.11",
        "192.0.2.12",
    ]
    assert hosts["worker2"]["ansible_user"] == "ada" and hosts["worker2"]["worker_device"] == "cuda"
    assert hosts["worker2"]["shared_storage_kind"] == "nfs" and hosts["worker2"]["trainbed_uid"] == 6100
    assert f"export ANSIBLE_INVENTORY={target}" in capsys.readouterr().out
    assert [path.name for path in target.parent.iterdir()] == ["lab"]  # no draft is left


def test_a_master_among_the_workers_is_one_host_in_both_groups(target: Path) -> None:
    options = ["--master", "192.0.2.10", "--workers", "192.0.2.10,192.0.2.11", "--user", "ada"]
    assert new.main([*options, "--directory", str(target)]) == 0

    found = written(target)
    assert found["workers"]["hosts"] == ["master", "worker1"]
    assert found["_meta"]["hostvars"]["master"]["ansible_host"] == "192.0.2.10"
    assert found["_meta"]["hostvars"]["master"]["worker_device"] == "cpu"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--master", "gate.example"], "'gate.example' is not an address"),
        (["--master", "2001:db8::1"], "IPv6"),
        (["--master", "127.0.1.1"], "Other nodes can't reach 127.0.1.1"),
        (["--workers", "192.0.2.11", "192.0.2.11"], "Two workers have the address 192.0.2.11"),
        (["--workers", ","], "There is no worker"),
        (["--user", "two words"], "'two words' is not a user's name"),
        (["--device", "tpu"], "'tpu' is neither cpu nor cuda"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    options: list[str], says: str, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(capsys, *OPTIONS, *options, "--directory", str(target))
    assert not target.exists()


@pytest.mark.parametrize("missing", ["master", "workers"])
def test_without_a_terminal_a_missing_option_is_named(
    missing: str, target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    given = {"master": ["--master", "192.0.2.10"], "workers": ["--workers", "192.0.2.11"]}
    del given[missing]
    options = [each for values in given.values() for each in values]
    assert f"--{missing} is missing" in refused(capsys, *options, "--directory", str(target))


def test_an_inventory_that_is_there_is_not_overwritten(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target.mkdir(parents=True)
    (target / "hosts.yml").write_text("mine")

    assert "is not overwritten" in refused(capsys, *OPTIONS, "--directory", str(target))
    assert (target / "hosts.yml").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert "can't be written" in refused(capsys, *OPTIONS, "--directory", str(tmp_path / "file" / "lab"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is typed, line by line; all of it must be read."""
    lines: list[str] = []

    def read(_: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    yield lines
    assert not lines


def test_what_is_not_given_is_asked_and_asked_again_if_it_is_wrong(
    target: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    taken = target.parent / "taken"
    (taken / "group_vars").mkdir(parents=True)
    answers += ["", "192.0.2.10", "192.0.2.11 192.0.2.11", "192.0.2.11, 192.0.2.12"]
    answers += ["ada", "gpu", "cuda", str(taken), str(target)]

    assert new.main([]) == 0

    said = capsys.readouterr().out
    assert "'' is not an address" in said and "Two workers have" in said and "not overwritten" in said
    assert written(target)["_meta"]["hostvars"]["worker2"]["worker_device"] == "cuda"


def test_whoever_gives_up_leaves_nothing(
    target: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers += ["192.0.2.10"]
    assert new.main(["--directory", str(target)]) == 130
    assert "Nothing was written." in capsys.readouterr().err
    assert not target.parent.exists()
