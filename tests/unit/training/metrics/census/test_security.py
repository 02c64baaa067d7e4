"""What a rank notes of security modules, in made-up trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.metrics.census import security


def noted(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> dict[str, str]:
    """What is noted where /proc and /sys have these files."""
    names = {
        "lsm": "sys/kernel/security/lsm",
        "apparmor": "sys/module/apparmor/parameters/enabled",
        "selinux": "sys/fs/selinux/enforce",
        "label": "proc/self/attr/current",
        "status": "proc/self/status",
    }
    for name, content in files.items():
        (folder / names[name]).parent.mkdir(parents=True, exist_ok=True)
        (folder / names[name]).write_text(content)
    monkeypatch.setattr(security, "PROC", folder / "proc")
    monkeypatch.setattr(security, "SYS", folder / "sys")
    return security.security()


def test_in_a_container_with_apparmor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = noted(
        tmp_path,
        monkeypatch,
        apparmor="Y\n",
        label="docker-default (enforce)\n",
        status="Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n",
    )
    assert found == {"label": "docker-default (enforce)", "filters of system calls": "1", "AppArmor": "on"}


def test_on_a_machine_with_selinux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = noted(
        tmp_path,
        monkeypatch,
        lsm="lockdown,capability,selinux,bpf",
        apparmor="N\n",
        selinux="0",
        label="unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0",
    )
    assert found == {
        "modules": "lockdown,capability,selinux,bpf",
        "label": "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023",
        "AppArmor": "off",
        "SELinux": "permissive",
    }


def test_what_a_machine_does_not_tell_has_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert noted(tmp_path, monkeypatch) == {}
