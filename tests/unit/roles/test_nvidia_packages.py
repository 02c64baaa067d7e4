"""The packages that the tables name are in the distributions' indexes, with the branch that the tables state.

Asks apt itself, in folders of its own, with the mirror that this machine's apt uses. The rows of a
distribution that can't be reached from here are skipped, with that reason.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT

TABLES = yaml.safe_load((ROOT / "roles/nvidia/vars/main.yml").read_text(encoding="utf-8"))
RELEASES = {"Debian-12": "bookworm", "Debian-13": "trixie", "Ubuntu-24": "noble"}
ROWS = [(system, row) for system, rows in TABLES["nvidia_drivers"].items() for row in rows]


class Apt:
    """apt with folders of its own and one release's sources."""

    def __init__(self, folder: Path, source: str) -> None:
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text(source + "\n", encoding="utf-8")
        (folder / "status").touch()
        self._options = [
            f"-oDir::State={folder}/state",
            f"-oDir::State::status={folder}/status",
            f"-oDir::Cache={folder}/cache",
            f"-oDir::Etc::sourcelist={folder}/sources.list",
            "-oDir::Etc::sourceparts=/dev/null",
            "-oAcquire::http::Timeout=10",
            "-oAcquire::Retries=0",
        ]

    def __call__(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *self._options, *arguments], capture_output=True, text=True, check=False, timeout=120
        )


def mirror(origin: str) -> str | None:
    """This machine's apt mirror of a distribution; None if it has none."""
    question = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Origin: {origin}",
    ]
    listed = subprocess.run(question, capture_output=True, text=True, check=False).stdout.split()
    return next((place for place in listed if "security" not in place), None)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Apt | str]:
    """For every system its apt, or the reason why it has none."""
    found: dict[str, Apt | str] = {}
    for system, release in RELEASES.items():
        origin = system.split("-")[0]
        place = mirror(origin)
        if place is None:
            found[system] = f"this machine's apt knows no mirror of {origin}"
            continue
        signed = f"[arch=amd64 signed-by=/usr/share/keyrings/{origin.lower()}-archive-keyring.gpg]"
        more = TABLES["nvidia_fabric_components"].get(system, [])
        parts = " ".join(["main", *TABLES["nvidia_components"][system], *more])
        apt = Apt(tmp_path_factory.mktemp(system), f"deb {signed} {place} {release} {parts}")
        done = apt("apt-get", "update", "--error-on=any")
        found[system] = apt if done.returncode == 0 else f"the index of {system} can't be read from here"
    return found


@pytest.mark.parametrize(
    ("system", "row"), ROWS, ids=[f"{system}-{row['branch']}-{row['modules']}" for system, row in ROWS]
)
def test_a_rows_packages_are_there(indexes: dict[str, Apt | str], system: str, row: dict[str, Any]) -> None:
    apt = indexes[system]
    if isinstance(apt, str):
        pytest.skip(apt)
    flavours = [kernel["flavour"] for kernel in TABLES["nvidia_kernels"][system]]
    headers = [f"linux-headers-{flavour}" for flavour in flavours] if system.startswith("Debian") else []
    built = ("generic", "generic-hwe-24.04", "aws", "azure", "gcp") if "prebuilt" in row else ()
    prebuilt = [f"{row['prebuilt']}-{flavour}" for flavour in built]
    wanted = [*row["packages"], row["dkms"], "dkms", *headers, *prebuilt]
    for package in [*wanted, *([row["fabric"]] if "fabric" in row else [])]:
        versions = apt("apt-cache", "policy", package).stdout
        candidate = re.search(r"Candidate: (?:\d+:)?(\d+)", versions)
        assert candidate, f"{system} has no {package}"
        if package == row["dkms"]:
            assert int(candidate[1]) == row["branch"]
