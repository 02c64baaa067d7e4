"""Components are added to apt's sources from the same places, with the same keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.roles.loading import load

script = load("roles/nvidia/files/more-components")

DEB822 = """\
# A comment, which is no paragraph.

Types: deb
URIs: http://mirror.invalid/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.pgp

Types: deb
URIs: http://mirror.invalid/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
"""
LIST = """\
# deb http://mirror.invalid/old old main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.invalid/ubuntu noble main restricted
deb http://mirror.invalid/ubuntu noble-updates main
"""
WANTED = ["contrib", "non-free"]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "debian.sources").write_text(DEB822, encoding="utf-8")
    (tmp_path / "sources.list").write_text(LIST, encoding="utf-8")
    return tmp_path


DEBIAN, SECURITY = "http://mirror.invalid/debian/", "http://mirror.invalid/security/"
UBUNTU = "http://mirror.invalid/ubuntu/"


@pytest.mark.parametrize(
    ("file", "place", "release", "key"),
    [
        ("debian.sources", DEBIAN, "bookworm", "/usr/share/keyrings/debian-archive-keyring.pgp"),
        (
            "debian.sources",
            SECURITY,
            "bookworm-security",
            "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc",
        ),
        ("debian.sources", DEBIAN, "bookworm-updates", ""),
        ("sources.list", UBUNTU, "noble", "/k.gpg"),
        ("sources.list", UBUNTU, "noble-updates", ""),
        ("sources.list", "http://mirror.invalid/old", "old", ""),
    ],
)
def test_the_key_is_that_of_the_source(sources: Path, file: str, place: str, release: str, key: str) -> None:
    assert script.signed_by(sources / file, place, release) == key


def test_what_lacks_is_added_where_it_lacks(sources: Path) -> None:
    at, own = f"{sources}/debian.sources", f"{sources}/own.sources"
    rows = [
        ("http://mirror.invalid/debian/", "bookworm", "main", f"{at}:1"),
        ("http://mirror.invalid/debian/", "bookworm", "contrib", f"{at}:1"),
        ("http://mirror.invalid/security/", "bookworm-security", "main", f"{at}:2"),
        ("http://mirror.invalid/security/", "bookworm-security", "contrib", f"{own}:1"),
    ]
    first, second = script.stanzas(script.more(rows, own, WANTED))
    assert first == {
        "types": "deb",
        "uris": "http://mirror.invalid/debian/",
        "suites": "bookworm",
        "components": "non-free",
        "signed-by": "/usr/share/keyrings/debian-archive-keyring.pgp",
    }
    # What this file itself added counts as lacking; otherwise rewriting the file would drop it.
    assert second["components"] == "contrib non-free"
    assert second["signed-by"].endswith(" abc")


def test_nothing_is_added_where_nothing_lacks(sources: Path) -> None:
    at = f"{sources}/sources.list"
    rows = [("http://mirror.invalid/ubuntu/", "noble", part, f"{at}:2") for part in ("main", "restricted")]
    assert script.more(rows, "own", ["restricted"]) == ""
    (one,) = script.stanzas(script.more([(UBUNTU, "noble-updates", "main", f"{at}:3")], "own", ["x"]))
    assert "signed-by" not in one
