"""What a rank uses while it trains: real processes, a real network namespace, made-up energy counters."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.unit.training.training_helpers import Datasets, Run, data_spec, load, run_spec
from training.metrics import energy
from training.metrics import resource_use as use
from training.metrics.resource_use import Meter

PARTS = {"cpu", "waiting", "memory", "disk", "network", "way", "machine", "energy"}
NOBODY = 65534
ROOT = Path(__file__).resolve().parents[4]


def burn(seconds: float) -> None:
    """Use this much of this thread's processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_every_part_says_who_read_it_and_has_its_figures() -> None:
    used = Meter().stop()
    assert set(used) == PARTS | {"seconds"} and used["seconds"] >= 0
    for name in PARTS:
        assert used[name]["by"], name
        figures = {key: value for key, value in used[name].items() if key not in ("by", "trouble")}
        assert used[name]["trouble"] or None not in figures.values(), name
    for name in ("cpu", "waiting", "memory", "network", "machine"):
        assert used[name]["trouble"] is None, name
    assert used["machine"]["id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_processor_time_is_the_processs_own_and_of_all_its_threads() -> None:
    meter = Meter()
    threads = [threading.Thread(target=burn, args=(0.15,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    used = meter.stop()
    spent = used["cpu"]["user_s"] + used["cpu"]["system_s"]
    assert spent > 0.35  # 0.3 from the threads, plus the child's
    assert spent < used["seconds"] * 2 + 0.1
    idle = Meter()
    time.sleep(0.3)
    rest = idle.stop()["cpu"]
    assert rest["user_s"] + rest["system_s"] < 0.2
    assert rest["voluntary_switches"] >= 1


def test_a_thread_that_has_no_core_waits() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # on the same core
        try:
            time.sleep(0.2)
            meter = Meter()
            burn(0.4)
            used = meter.stop()
        finally:
            other.kill()
            other.wait()
    finally:
        os.sched_setaffinity(0, cores)
    assert used["waiting"]["waited_s"] > 0.1
    assert used["waiting"]["waited_s"] < used["seconds"] + 0.1
    assert used["cpu"]["involuntary_switches"] >= 1


def test_the_peak_of_memory_stays_when_the_memory_is_gone() -> None:
    before = Meter().stop()["memory"]["peak_mb"]
    size = int((before + 64) * 2**20)
    with mmap.mmap(-1, size) as held:
        for at in range(0, size, 4096):
            held[at] = 1
    assert before + 64 < Meter().stop()["memory"]["peak_mb"] < 3 * before + 500


def test_what_is_written_to_a_disk_is_counted(tmp_path: Path) -> None:
    meter = Meter()
    file = tmp_path / "written"
    with file.open("wb") as out:
        out.write(os.urandom(1 << 20))
        out.flush()
        os.fsync(out.fileno())
    written = meter.stop()["disk"]["written_bytes"]
    mounts = {Path(each.mountpoint): each.fstype for each in psutil.disk_partitions(all=True)}
    nearest = max((mount for mount in mounts if file.is_relative_to(mount)), key=lambda at: len(at.parts))
    assert written == 0 if mounts[nearest] == "tmpfs" else written >= 1 << 20


# A rank that sends a known amount, in a network namespace whose only way out leads to a second one.
SENDS = """
import json, os, socket, subprocess, sys, time
def ip(*words): subprocess.run(["ip", *words], check=True)
partner = subprocess.Popen(["unshare", "--net", "sleep", "60"])
try:
    while os.readlink(f"/proc/{partner.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    inside = ["nsenter", "--net", "--target", str(partner.pid)]
    ip("link", "set", "lo", "up")
    pair = ["name", "gradients0", "type", "veth", "peer", "name", "there0", "netns", str(partner.pid)]
    ip("link", "add", *pair)
    ip("address", "add", "198.51.100.1/24", "dev", "gradients0")
    ip("link", "set", "gradients0", "up")
    subprocess.run([*inside, "ip", "address", "add", "198.51.100.2/24", "dev", "there0"], check=True)
    subprocess.run([*inside, "ip", "link", "set", "there0", "up"], check=True)
    receive = "import socket; s = socket.create_server(('198.51.100.2', 5000)); print('there', flush=True);"
    receive += "c, _ = s.accept(); print(sum(iter(lambda: len(c.recv(65536)), 0)))"
    receiver = subprocess.Popen([*inside, sys.executable, "-c", receive], stdout=subprocess.PIPE, text=True)
    receiver.stdout.readline()
    os.environ |= {"MASTER_ADDR": "198.51.100.2", "MASTER_PORT": "5000"}
    from training.metrics.resource_use import Meter
    meter = Meter()
    with socket.create_connection(("198.51.100.2", 5000)) as out:
        out.sendall(b"g" * 4_000_000)
    arrived = int(receiver.communicate(timeout=30)[0])
    with socket.create_server(("127.0.0.1", 5001)) as server:
        with socket.create_connection(("127.0.0.1", 5001)) as out:
            out.sendall(b"l" * 100_000)  # over loopback: not counted
            server.accept()[0].close()
    print(json.dumps({"arrived": arrived, "used": meter.stop(), "own": os.readlink("/proc/self/ns/net")}))
finally:
    partner.kill()
"""


def test_bytes_are_counted_by_interface_of_the_ranks_own_namespace() -> None:
    command = ["unshare", "--net", sys.executable, "-c", SENDS]
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("making a network namespace needs root")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    network, way = told["used"]["network"], told["used"]["way"]
    assert network["trouble"] is None and way["trouble"] is None, told
    assert told["arrived"] == 4_000_000
    assert list(network["interfaces"]) == ["gradients0"] and way["interface"] == "gradients0"
    traffic = network["interfaces"]["gradients0"]
    # Plus the headers of Ethernet, IP and TCP, and acknowledgements the other way.
    assert 4_000_000 < traffic["sent_bytes"] < 4_000_000 * 1.1
    assert 0 < traffic["received_bytes"] < 400_000
    assert network["namespace"] == told["own"] != Path("/proc/self/ns/net").readlink().name


# As on a node with a container engine.
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 43580709230 3508292    0    0    0     0          0         0 43580709230 3508292    0    0    0     0       0          0
  eth0: 14403529168  337924    0    0    0     0          0         0 16120189  188776    0    0    0     0       0          0
docker0:       0       0    0    0    0     0          0         0        0       0    0    2    0     0       0          0
veth40073de: 4404811314  159657    0    0    0     0          0         0 49397976  104504    0    0    0     0       0          0
"""  # noqa: E501


def test_interfaces_that_come_go_or_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text(NET_DEV)
    before = use._read_interfaces()
    assert before["eth0"] == {"sent_bytes": 16120189, "received_bytes": 14403529168}
    later = NET_DEV.replace("16120189", "16120289").replace("4404811314", "5")
    later = later.replace("docker0:", "veth1234567:")
    (tmp_path / "net/dev").write_text(later)
    spent = use._sent(before, use._read_interfaces(), 1.0)
    assert spent["interfaces"] == {
        "eth0": {"sent_bytes": 100, "received_bytes": 0},
        "veth1234567": {"sent_bytes": 0, "received_bytes": 0},
    }
    assert spent["trouble"].endswith(": veth40073de.")  # and no other


def test_without_others_or_over_loopback_no_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    way = Meter().stop()["way"]
    assert way["interface"] is None and way["trouble"].startswith("MASTER_ADDR ")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    way = Meter().stop()["way"]
    assert way["interface"] is None and "loopback" in way["trouble"]


def zone(folder: Path, name: str, called: str, energy_uj: int, range_uj: int = 262_143_328_850) -> Path:
    """A zone as the kernel shows it, with a long-term limit of 100 W."""
    path = folder / name
    path.mkdir(exist_ok=True)
    content = {"name": called, "energy_uj": energy_uj, "max_energy_range_uj": range_uj, "enabled": 1}
    content |= {"constraint_0_name": "long_term", "constraint_0_power_limit_uw": 100_000_000}
    for file, value in content.items():
        (path / file).write_text(f"{value}\n")
    return path


def test_energy_of_all_packages_over_the_end_of_a_counter(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    wrapping = zone(tmp_path, "intel-rapl:1", "package-1", 262_143_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 1_000_000)  # part of package 0
    zone(tmp_path, "intel-rapl:2", "psys", 1_000_000)  # holds the packages
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000)  # package 0 again
    meter = Meter(tmp_path)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("12000000\n")
    (wrapping / "energy_uj").write_text("1671150\n")
    told = meter.stop()["energy"]
    assert told["trouble"] is None and "RAPL" in told["by"]
    assert told["cpu_j"] == pytest.approx(7.0 + 2.0)


def test_energy_that_may_have_gone_round_twice_is_not_told(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    before, after = energy.read_packages(tmp_path), energy.read_packages(tmp_path)
    assert energy.spent_j(before, after, 2_000.0) == 0.0
    with pytest.raises(energy.EnergyError, match=r"intel-rapl:0 .* 262143 J"):
        energy.spent_j(before, after, 2_600.0)
    (tmp_path / "intel-rapl:0/enabled").write_text("0\n")  # a limit that is not enforced
    unlimited = energy.read_packages(tmp_path)
    with pytest.raises(energy.EnergyError, match="1000 W"):
        energy.spent_j(before, unlimited, 250.0)
    with pytest.raises(energy.EnergyError, match=r": intel-rapl:0\.$"):
        energy.spent_j(before, {}, 1.0)


def test_energy_that_is_not_shown_or_makes_no_sense_is_lacking_with_its_reason(tmp_path: Path) -> None:
    told = Meter(tmp_path / "none").stop()["energy"]
    assert told["cpu_j"] is None and told["trouble"].startswith(f"{tmp_path / 'none'} ")
    (zone(tmp_path, "intel-rapl:0", "package-0", 0) / "energy_uj").write_text("nonsense\n")
    told = Meter(tmp_path).stop()["energy"]
    assert told["cpu_j"] is None and f"{tmp_path} " in told["trouble"] and "'nonsense'" in told["trouble"]


def test_energy_that_only_root_may_read() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:  # another user can't enter pytest's own
        Path(folder).chmod(0o755)
        path = zone(Path(folder), "intel-rapl:0", "package-0", 0)
        (path / "energy_uj").chmod(0)
        if user == 0:
            os.seteuid(NOBODY)
        try:
            with pytest.raises(energy.EnergyError) as raised:
                energy.read_packages(Path(folder))
        finally:
            os.seteuid(user)
    assert str(raised.value).startswith(f"{path / 'energy_uj'} ")
    assert isinstance(raised.value.__cause__, PermissionError)


def test_what_fails_to_be_read_fails_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(5, "Input/output error")

    def broken(**_: Any) -> None:
        raise error

    monkeypatch.setattr(psutil, "net_io_counters", broken)
    used = Meter().stop()
    assert used["network"]["interfaces"] is None
    assert used["network"]["trouble"] == f"OSError: {error}"
    assert used["cpu"]["user_s"] is not None and used["cpu"]["trouble"] is None


def test_reading_takes_no_time_to_speak_of() -> None:
    Meter().stop()  # the first one loads the library
    began = time.process_time()
    for _ in range(10):
        Meter().stop()
    assert (time.process_time() - began) / 10 < 0.05


def test_a_run_leaves_what_its_ranks_used(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    out, statuses = run(run_spec(prepared, data_spec(), workers=2), prepared.path)
    assert statuses == [0, 0]
    for number in (0, 1):
        rank = load(out / f"rank-{number}.json")
        assert set(rank["use"]) == PARTS | {"seconds"}
        assert rank["use"]["seconds"] == pytest.approx(rank["train_s"], abs=0.05)
        assert rank["use"]["cpu"]["user_s"] > 0 and rank["parameters"] > 0
