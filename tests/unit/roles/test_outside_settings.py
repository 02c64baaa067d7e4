"""How nodes inherit access to the outside: apt sources, pip settings, credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.roles.loading import load

outside = load("roles/testbed/library/outside_settings.py")

DEB822 = """\
# comment
Types: deb deb-src
URIs: https://ada:s3kret@mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://vendor.example/apt
Suites: stable
Components: main

Types: deb
URIs: https://mirror.example/debian-security
Suites: bookworm-security
Components: main
Enabled: no
"""
ONE_LINE = """\
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main # the mirror
deb-src http://mirror.example/debian bookworm main
deb http://vendor.example/apt cloud-sdk-bookworm main
deb file:/srv/mirror bookworm main
"""


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(DEB822, encoding="utf-8")
    (tmp_path / "sources.list").write_text(ONE_LINE, encoding="utf-8")
    return tmp_path


def test_sources_hold_no_credentials_and_only_the_distributions_own(apt: Path) -> None:
    settings = outside.apt_settings(apt, "bookworm")
    text = "\n".join(settings["apt_sources"])
    assert "s3kret" not in text
    assert "vendor" not in text
    assert "bookworm-security" not in text, "a disabled source was taken"
    assert settings["apt_auth"] == ["machine https://mirror.example/debian login ada password s3kret"]
    assert "https://mirror.example/debian bookworm-updates main contrib" in text
    assert settings["directories"] == ["/srv/mirror"]
    # The distribution's own keyring is on every node; others are copied, to a place of their own.
    assert settings["keyrings"] == ["/k.gpg"]
    assert "signed-by=/etc/apt/keyrings/k.gpg" in text
    assert "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg" in text


def test_another_release_is_taken_from_the_same_mirror(apt: Path) -> None:
    suites = {
        source.split()[-3 if source.endswith("contrib") else -2]
        for source in outside.apt_settings(apt, "trixie")["apt_sources"]
    }
    assert suites == {"trixie", "trixie-updates"}


def test_another_distributions_mirror_is_not_taken(apt: Path) -> None:
    (apt / "sources.list").write_text("deb http://ubuntu.example noble main universe\n", encoding="utf-8")
    assert "ubuntu" not in "\n".join(outside.apt_settings(apt, "bookworm")["apt_sources"])
    found = outside.apt_settings(apt, "jammy")["apt_sources"]
    assert found == ["deb http://ubuntu.example jammy main universe"]


def test_pip_settings_of_the_environment_win_and_keep_every_index(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    simple = tmp_path / "index" / "simple"
    for directory in (wheels, simple):
        directory.mkdir(parents=True)
    listing = "\n".join(
        [
            "global.index-url='https://one.example/simple'",
            "global.cert='/private/ca.pem'",
            f"global.extra-index-url='file://{simple} https://two.example/simple'",
            ":env:.index-url='https://ada:s3kret@three.example/simple'",
            f":env:.find-links='{wheels}'",
            ":env:.timeout='180'",
        ]
    )
    text, directories = outside.pip_settings(listing)
    assert "index-url = https://ada:s3kret@three.example/simple" in text
    assert "one.example" not in text
    assert f"file://{simple}\n    https://two.example/simple" in text
    assert f"find-links = {wheels}" in text
    assert "cert = /etc/ssl/certs/ca-certificates.crt" in text
    # An index's pages point at files beside it, so nodes need its parent.
    assert directories == [str(simple.parent), str(wheels)]


def test_directories_within_others_are_left_out() -> None:
    assert outside.outermost(["/opt/a/b", "/opt/a", "/opt/ab"]) == ["/opt/a", "/opt/ab"]


def test_certificates_named_in_the_environment_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("x", encoding="ascii")
    monkeypatch.setenv("PIP_CERT", str(bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    assert outside.certificates(tmp_path / "none") == [str(bundle)]
