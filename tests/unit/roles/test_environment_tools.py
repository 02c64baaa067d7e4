"""The scripts that fetch an environment and name it by its content."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

from tests.unit.roles.loading import ROOT, load

fetch = load("roles/artifacts/files/fetch-wheels")
CONTENT = ROOT / "roles/python_env/files/environment-content"
FETCH = ROOT / "roles/artifacts/files/fetch-wheels"


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


def test_a_wheel_that_cannot_be_had_is_said_in_one_sentence(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("", encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            str(FETCH),
            "--lock",
            str(lock),
            "--torch",
            "torch==0.0.0+none",
            "--cache",
            str(tmp_path / "cache"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={
            "TORCH_INDEX": "http://127.0.0.1:9/whl",
            "PATH": "/usr/bin:/bin",
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": "/dev/null",
            "HOME": str(tmp_path),
        },
    )
    assert done.returncode == 3
    sentence = done.stderr.strip().splitlines()[-1]
    assert sentence.startswith("torch==0.0.0+none cannot be had")
    assert "does not answer" in sentence
    assert not list((tmp_path / "cache").glob("*/DIGEST"))


def test_asking_only_fetches_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(FETCH),
            "--lock",
            str(tmp_path / "none"),
            "--torch",
            "torch==1",
            "--cache",
            str(tmp_path / "cache"),
            "--check",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"changed": True, "digest": "", "key": ""}
    assert not (tmp_path / "cache").exists()


def test_credentials_do_not_reach_the_log() -> None:
    line = "Looking in indexes: https://ada:s3kret@mirror.example/simple, http://b@c.example/"
    assert (
        fetch.without_credentials(line)
        == "Looking in indexes: https://mirror.example/simple, http://c.example/"
    )


def test_names_of_wheels_are_normalised() -> None:
    wheel = Path("ruamel_yaml-0.19.1+cpu-py3-none-any.whl")
    assert fetch.distribution(wheel) == ("ruamel-yaml", "0.19.1+cpu")
