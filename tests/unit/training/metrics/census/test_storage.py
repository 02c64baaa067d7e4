"""What a rank notes of the disks under its places, in a made-up /sys, and of its I/O priority."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from training.metrics.census import machine, storage


def disk(folder: Path, scheduler: str, rotational: str, ahead: str = "128") -> None:
    """A disk's queue."""
    (folder / "queue").mkdir(parents=True)
    (folder / "queue" / "scheduler").write_text(f"{scheduler}\n")
    (folder / "queue" / "rotational").write_text(f"{rotational}\n")
    (folder / "queue" / "read_ahead_kb").write_text(f"{ahead}\n")


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of devices in a /sys of two disks, the second with a partition, and a volume on them."""
    sys = tmp_path / "sys"
    found = sys / "devices"
    disk(found / "sda", "[none] mq-deadline kyber", "0")
    disk(found / "sdb", "none [mq-deadline]", "1")
    (found / "sdb" / "sdb1").mkdir()
    (found / "sdb" / "sdb1" / "partition").write_text("1\n")
    disk(found / "dm-0", "none", "1", ahead="4096")
    (found / "dm-0" / "slaves").mkdir()
    for part in ("sda", "sdb/sdb1"):
        (found / "dm-0" / "slaves" / Path(part).name).symlink_to(found / part)
    (sys / "dev" / "block").mkdir(parents=True)
    (sys / "class" / "block").mkdir(parents=True)
    for number, name in (("8:0", "sda"), ("8:17", "sdb/sdb1"), ("254:0", "dm-0")):
        (sys / "dev" / "block" / number).symlink_to(found / name)
        (sys / "class" / "block" / Path(name).name).symlink_to(found / name)
    (sys / "class" / "bdi" / "0:53").mkdir(parents=True)
    (sys / "class" / "bdi" / "0:53" / "read_ahead_kb").write_text("15360\n")
    monkeypatch.setattr(storage, "SYS", sys)
    monkeypatch.setattr(machine, "PROC", tmp_path / "proc")
    return found


@pytest.mark.parametrize(
    ("mount", "found"),
    [
        ("8:0 / {} rw - ext4 /dev/sda rw", ("none", "128", "no")),
        ("8:17 / {} rw - ext4 /dev/sdb1 rw", ("mq-deadline", "128", "yes")),
        ("254:0 / {} rw - xfs /dev/mapper/volume rw", ("mq-deadline, none", "4096", "no, yes")),
        ("0:40 /@ {} rw - btrfs /dev/sdb1 rw", ("mq-deadline", "128", "yes")),
        ("0:53 / {} rw - nfs4 master:/shared rw", (None, "15360", None)),
        ("0:60 / {} rw - overlay overlay rw", (None, None, None)),
    ],
)
def test_the_disks_under_a_place_are_noted(
    devices: Path, tmp_path: Path, mount: str, found: tuple[str | None, ...]
) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "mountinfo").write_text(f"20 1 {mount.format(tmp_path)}\n")
    noted = storage.input_and_output({"data": tmp_path})
    del noted["priority"]
    names = ("data, scheduler", "data, read-ahead in KiB", "data, rotates")
    wanted = {name: text for name, text in zip(names, found, strict=True) if text}
    assert noted == wanted and devices.exists()


@pytest.mark.parametrize(
    ("given", "shown"),
    [((0, 4), "by niceness"), ((1, 3), "real time, 3"), ((2, 0), "best effort, 0"), ((3, 0), "idle")],
)
def test_a_priority_has_a_level_where_its_class_has_levels(
    monkeypatch: pytest.MonkeyPatch, given: tuple[int, int], shown: str
) -> None:
    monkeypatch.setattr(psutil.Process, "ionice", lambda _: given)
    assert storage.input_and_output({}) == {"priority": shown}


def test_a_process_that_may_not_ask_has_no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: psutil.Process) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "ionice", denied)
    assert storage.input_and_output({}) == {}
