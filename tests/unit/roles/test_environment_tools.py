"""The module that fetches an environment and the script that names it by its content."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT, call, load

wheels = load("roles/artifacts/library/locked_wheels.py")
CONTENT = ROOT / "roles/python_env/files/environment-content"


def installed(root: Path, text: str) -> Path:
    """An environment with one small distribution in it."""
    site = root / "lib" / "python3.11" / "site-packages"
    (site / "one-1.0.dist-info").mkdir(parents=True)
    (site / "one.py").write_text(text, encoding="utf-8")
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    rows = [
        f"one.py,sha256={digest},{len(text)}",
        "one.pyc,sha256=x,1",
        "one-1.0.dist-info/RECORD,,",
        f"one-1.0.dist-info/INSTALLER,sha256={root.name},3",
    ]
    (site / "one-1.0.dist-info" / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return site


def content(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CONTENT), str(root), *arguments], capture_output=True, text=True, check=False
    )


def test_same_content_has_the_same_name_wherever_it_lies(tmp_path: Path) -> None:
    installed(tmp_path / "a", "x = 1\n")
    installed(tmp_path / "b", "x = 1\n")
    installed(tmp_path / "c", "x = 2\n")
    assert content(tmp_path / "a").stdout == content(tmp_path / "b").stdout
    assert content(tmp_path / "a").stdout != content(tmp_path / "c").stdout


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    site = installed(tmp_path / "a", "x = 1\n")
    assert content(tmp_path / "a", "--verify").returncode == 0
    (site / "one.py").write_text("x = 3\n", encoding="utf-8")
    done = content(tmp_path / "a", "--verify")
    assert done.returncode == 1
    assert "one.py is not the file that was installed" in done.stderr


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Any]:
    """The module's arguments, with a lock of a build of torch that nobody has."""
    lock = tmp_path / "lock.txt"
    lock.write_text(f"torch==0.0.0+none \\\n    --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    (tmp_path / "cache").mkdir()
    return {"cache": str(tmp_path / "cache"), "key": "k", "state": "present", "lock": str(lock)} | {
        "torch_index": "http://127.0.0.1:9/whl"
    }


def test_a_wheel_that_cannot_be_had_is_said_in_one_sentence(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    result = call(wheels, **asked, torch_login="ada:s3kret")
    assert result["failed"]
    assert result["msg"].startswith("torch==0.0.0+none is unavailable")
    assert "does not answer" in result["msg"] and "s3kret" not in result["msg"]
    assert not list((tmp_path / "cache").glob("*/DIGEST"))


def test_looking_and_asking_fetch_nothing(asked: dict[str, Any], tmp_path: Path) -> None:
    looked = call(wheels, **{**asked, "state": "read"})
    assert (looked["changed"], looked["digest"]) == (False, "")
    would = call(wheels, check=True, **asked)
    assert (would["changed"], would["digest"]) == (True, "")
    assert not list((tmp_path / "cache").iterdir())


def test_what_is_there_is_not_fetched_again(asked: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "cache" / "k").mkdir()
    (tmp_path / "cache" / "k" / "DIGEST").write_text("d1\n", encoding="ascii")
    found = call(wheels, **asked)
    assert (found["changed"], found["key"], found["digest"]) == (False, "k", "d1")


def test_credentials_do_not_reach_the_log() -> None:
    line = "Looking in indexes: https://ada:s3kret@mirror.example/simple, http://b@c.example/"
    assert (
        wheels.without_credentials(line)
        == "Looking in indexes: https://mirror.example/simple, http://c.example/"
    )


def test_names_of_wheels_are_normalised() -> None:
    wheel = Path("ruamel_yaml-0.19.1+cpu-py3-none-any.whl")
    assert wheels.distribution(wheel) == ("ruamel-yaml", "0.19.1+cpu")
