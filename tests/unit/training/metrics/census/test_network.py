"""What a rank notes of the network: stable where names are drawn, silent where the kernel is."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from training.metrics.census import network, queueing


def interface(sys: Path, name: str, *, driver: str = "", **files: str) -> None:
    """An interface in a made-up /sys."""
    folder = sys / "class" / "net" / name
    folder.mkdir(parents=True)
    for file, content in files.items():
        (folder / file).write_text(f"{content}\n")
    if driver:
        (sys / "bus" / "drivers" / driver).mkdir(parents=True)
        (folder / "device").mkdir()
        (folder / "device" / "driver").symlink_to(sys / "bus" / "drivers" / driver)


@pytest.fixture
def sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /sys and a /proc of which nothing is known yet, on a kernel that says nothing of disciplines."""
    monkeypatch.setattr(network, "SYS", tmp_path / "sys")
    monkeypatch.setattr(network, "PROC", tmp_path / "proc")
    monkeypatch.setattr(network, "disciplines", dict)
    return tmp_path / "sys"


def test_an_interface_is_noted_as_far_as_the_kernel_says(sys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interface(sys, "eth0", driver="mlx5_core", operstate="up", mtu="9000", speed="100000", ifindex="2")
    interface(sys, "eth1", driver="virtio_net", operstate="up", mtu="1500", speed="-1", ifindex="3")
    interface(sys, "eth2", operstate="down", mtu="1500", speed="4294967295", ifindex="4")
    (sys / "class" / "net" / "bonding_masters").write_text("\n")
    monkeypatch.setattr(network, "disciplines", lambda: {2: "mq fq_codel", 3: "tbf"})
    assert network.network() == {
        "interface eth0": "state up, MTU 9000, 100000 Mbit/s, driver mlx5_core, queueing mq fq_codel",
        "interface eth1": "state up, MTU 1500, driver virtio_net, queueing tbf",
        "interface eth2": "state down, MTU 1500",
    }


def test_names_that_are_drawn_do_not_count(sys: Path) -> None:
    drawn = ["veth9406d40", "vethabcdefa", "br-9380e5906d30", "cali0a1b2c3d4e5", "tap1a2b3c4d-5e", "vnet12"]
    kept = ["docker0", "bond0", "virbr0", "br-lan", "eth0.1234", "wg0", "cni0"]
    for name in (*drawn, *kept, "veth7c134de"):
        interface(sys, name, operstate="up", mtu="1450" if name == "veth7c134de" else "1500")
    interface(sys, "enx78e7d1ea46da", driver="r8152", operstate="up", mtu="1500")
    found = network.network()
    stars = ["br-*", "cali*", "tap*", "veth*", "vnet*"]
    assert {*found} == {f"interface {name}" for name in (*stars, *kept, "enx78e7d1ea46da")}
    assert found["interface veth*"] == "state up, MTU 1450; state up, MTU 1500"


def test_settings_of_tcp_are_noted_where_there_are_any(sys: Path, tmp_path: Path) -> None:
    assert network.network() == {}
    settings = tmp_path / "proc" / "sys" / "net" / "ipv4"
    settings.mkdir(parents=True)
    (settings / "tcp_rmem").write_text("4096\t131072\t33554432\n")
    (settings / "tcp_congestion_control").write_text("bbr\n")
    assert network.network() == {
        "TCP's receive buffers in bytes": "4096 131072 33554432",
        "congestion control": "bbr",
    }
    assert not sys.exists()


def test_the_kernel_says_how_packets_wait() -> None:
    found = queueing.disciplines()
    # Nothing waits for the loopback interface; while it is down, all is dropped.
    assert found[socket.if_nametoindex("lo")] in ("noqueue", "noop")


def message(kind: int, content: bytes) -> bytes:
    """A message of netlink."""
    return struct.pack("=IHHII", 16 + len(content), kind, 0, 1, 0) + content


def discipline(index: int, name: bytes) -> bytes:
    """A message about a discipline: an attribute that is of no interest, and its kind."""
    other = struct.pack("=HH5sxxx", 9, 2, b"other")
    own = struct.pack("=HH", 5 + len(name), 1) + name + b"\0"
    return message(36, struct.pack("=BxxxiIII", 0, index, 0, 0, 0) + other + own + b"\0" * (-len(own) % 4))


def test_disciplines_are_read_from_the_kernels_answers() -> None:
    root = discipline(2, b"mq") + discipline(2, b"fq_codel")
    answers = [root, discipline(2, b"fq_codel") + discipline(3, b"tbf"), message(3, bytes(4))]
    assert queueing.names_in(iter(answers)) == {2: "mq fq_codel", 3: "tbf"}
    with pytest.raises(PermissionError, match="not permitted"):
        queueing.names_in(iter([message(2, struct.pack("=i", -1))]))
    with pytest.raises(OSError, match="has no end"):
        queueing.names_in(iter([root]))


def test_a_process_that_may_not_ask_notes_no_disciplines(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", forbidden)
    assert queueing.disciplines() == {}


def test_an_answer_that_cannot_be_read_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "_answers", lambda: iter([message(36, b"short")]))
    assert queueing.disciplines() == {}
