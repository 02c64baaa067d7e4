"""The launch census: what it notes is what the process was given; secrets are masked."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from training.metrics.census import Census, machine, process, take_census

ASK = """
import json, sys
from pathlib import Path
from training.metrics.census import take_census
print(json.dumps(take_census({"data": Path(sys.argv[1])})))
"""


def census_of(folder: Path, *before: str, **variables: str) -> Census:
    """The census of a new process that is started by the words of `before`, with further variables."""
    done = subprocess.run(
        [*before, sys.executable, "-c", ASK, str(folder)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    found: Census = json.loads(done.stdout)
    return found


def test_what_a_launch_changes_is_all_that_differs(tmp_path: Path) -> None:
    plain = census_of(tmp_path, OMP_NUM_THREADS="1")
    changed = census_of(
        tmp_path,
        *("nice", "-n", "5", "prlimit", "--core=4096:4096", "ionice", "--class", "2", "--classdata", "7"),
        SAID="it",
        OMP_NUM_THREADS="2",
    )
    differ = {
        (group, name): (plain[group].get(name), changed[group].get(name))
        for group in plain
        for name in plain[group] | changed[group]
        if group != "frequency" and plain[group].get(name) != changed[group].get(name)
    }
    assert differ.pop(("environment", "SAID")) == (None, "it")
    assert differ.pop(("environment", "OMP_NUM_THREADS")) == ("1", "2")
    assert differ.pop(("process", "niceness")) == ("0", "5")
    assert differ.pop(("limits", "core"))[1] == "4096"
    assert differ.pop(("input and output", "priority"))[1] == "best effort, 7"
    if len(os.sched_getaffinity(0)) > 1:  # torch takes no more threads than there are cores
        assert differ.pop(("arithmetic", "threads")) == ("1", "2")
    assert set(differ) <= {("process", "autogroup"), ("environment", "_")}, differ


def test_what_may_be_a_secret_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abc")
    monkeypatch.setenv("SUBMIT_ARGS", "--conf store.secret=abc --name x")
    found = process.environment()
    assert (found["HF_TOKEN"], found["SUBMIT_ARGS"]) == ("***", "--conf store.secret=*** --name x")


def test_it_says_of_this_process_what_the_system_says(tmp_path: Path) -> None:
    found = take_census({"data": tmp_path, "nowhere": tmp_path / "nowhere"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found["limits"]["nofile"] == (str(soft) if soft == hard else f"{soft}, at most {hard}")
    assert found["kernel"]["version"] == os.uname().release
    parent = Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    assert found["process"]["started by"].split(" < ")[0] == parent
    of_tmp = subprocess.run(
        ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert found["mounts"]["data"].split()[0] == of_tmp[-1]
    assert found["mounts"]["nowhere"] == found["mounts"]["data"]
    import torch

    assert found["arithmetic"]["torch"] == torch.__version__
    assert found["packages"]["torch"] == torch.__version__
    assert found["packages"]["pytest"] == pytest.__version__
    assert "libc" in found["shared libraries"] and "libtorch_cpu" not in found["shared libraries"]


def test_limits_of_a_cgroup_and_of_those_above_it_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("7:blkio:/run\n0::/slice/run\n")
    (tmp_path / "fs" / "cgroup" / "blkio" / "run").mkdir(parents=True)
    (tmp_path / "fs" / "cgroup" / "blkio" / "run" / "blkio.bfq.weight").write_text("10\n")
    (tmp_path / "fs" / "cgroup" / "blkio" / "run" / "blkio.throttle.read_bps_device").write_text("")
    above, own = tmp_path / "fs" / "cgroup" / "slice", tmp_path / "fs" / "cgroup" / "slice" / "run"
    own.mkdir(parents=True)
    (above / "cpu.max").write_text("50000 100000\n")
    (own / "cpu.max").write_text("max 100000\n")
    (own / "memory.max").write_text("1073741824\n")
    (above / "io.max").write_text("254:0 rbps=1048576 wbps=max riops=max wiops=max\n")
    (own / "io.prio.class").write_text("no-change\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "SYS", tmp_path)
    assert machine.cgroup() == {
        "path": "/slice/run",
        "path of blkio": "/run",
        "blkio.bfq.weight, its own": "10",
        "cpu.max, 1 above": "50000 100000",
        "io.max, 1 above": "254:0 rbps=1048576 wbps=max riops=max wiops=max",
        "memory.max, its own": "1073741824",
    }


def test_of_mounts_on_one_point_the_last_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "self").mkdir()
    lines = [
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw",
        f"21 20 0:30 / {tmp_path} rw,relatime - autofs systemd-1 rw",
        f"22 21 0:31 / {tmp_path} rw,noatime - nfs4 master:/shared rw",
        "23 20 0:32 / /run rw - tmpfs  rw",
    ]
    (tmp_path / "self" / "mountinfo").write_text("\n".join(lines))
    monkeypatch.setattr(machine, "PROC", tmp_path)
    assert machine.mounts({"data": tmp_path / "x"}) == {"data": "nfs4 master:/shared (rw,noatime)"}


def test_another_process_is_seen_as_it_sees_itself(tmp_path: Path) -> None:
    words = ("nice", "-n", "5", "prlimit", "--core=4096:4096", "ionice", "--class", "2", "--classdata", "7")
    script = (
        "import sys, threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); "
    )
    script += "print('ready', flush=True); time.sleep(60)"
    other = subprocess.Popen(
        [*words, sys.executable, "-c", script],
        env={**os.environ, "SAID": "it", "HF_TOKEN": "abc"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        found = take_census({"data": tmp_path}, other.pid)
    finally:
        other.kill()
        other.communicate()
    assert (found["environment"]["SAID"], found["environment"]["HF_TOKEN"]) == ("it", "***")
    assert found["process"]["niceness"] == str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5))
    assert found["limits"]["core"] == "4096"
    assert found["input and output"]["priority"] == "best effort, 7"
    assert (found["process"]["stdin"], found["process"]["stdout"]) == ("device", "pipe")
    mine = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
    assert found["process"]["started by"].split(" < ")[0] == mine
    assert sum(map(int, found["threads"].values())) == 2
    assert "libtorch" not in " ".join(found["shared libraries"].values())
    assert found["process"]["arithmetic, kernels and packages"] == "of the process that started it"
    assert not any("trouble" in group for group in found.values())


@pytest.mark.parametrize("variables", [{}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}])
def test_onednn_says_what_it_chose_and_the_log_stays_clean(tmp_path: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "onednn_verbose" not in done.stdout + done.stderr
    found = json.loads(done.stdout)["kernels"]
    if variables:
        assert found["instructions of oneDNN"].endswith("AVX2")
        assert "avx512" not in found["oneDNN's kernel of a convolution"]
    assert found["instructions of oneDNN"] and found["oneDNN's kernel of a convolution"]
    (blas,) = [name for name in found if name.startswith("kernels of openblas")]
    assert found[blas]


def test_what_onednn_prints_anyway_stays_in_the_log(tmp_path: Path) -> None:
    kernels = census_of(tmp_path, ONEDNN_VERBOSE="0")["kernels"]
    assert kernels["instructions of oneDNN"] == "in the log, by ONEDNN_VERBOSE"


def test_the_frequency_is_that_of_the_cores_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "SYS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2})
    assert machine.frequency() == {}
    blocks = [
        f"processor\t: {core}\ncpu MHz\t\t: {mhz}" for core, mhz in ((0, 800.1), (1, 2299.9), (2, 3100.4))
    ]
    (tmp_path / "cpuinfo").write_text("\n\n".join(blocks) + "\n\n")
    assert machine.frequency() == {"slowest core, MHz": "2300", "fastest core, MHz": "3100"}
    (tmp_path / "cpuinfo").write_text("processor\t: 1\n\nprocessor\t: 2\n\n")
    folder = tmp_path / "devices" / "system" / "cpu" / "cpu2" / "cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text("1500000\n")
    assert machine.frequency() == {"slowest core, MHz": "1500", "fastest core, MHz": "1500"}


def test_what_cannot_be_read_is_said_and_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> dict[str, str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine, "kernel", unreadable)
    found = take_census({"data": tmp_path})
    assert found["kernel"] == {"trouble": "PermissionError: [Errno 13] Permission denied"}
    assert found["processor"] and found["packages"]


def test_a_long_value_is_cut_with_a_digest_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for end in "ab":
        monkeypatch.setenv("LONG", "x" * 3000 + end)
        shown.append(process.environment()["LONG"])
    assert len(set(shown)) == 2 and all(len(each) < 2100 for each in shown)
