"""The GPU check, on CPUs and gloo: two ranks, started by torchrun as on the workers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.unit.roles.loading import ROOT

SCRIPT = ROOT / "roles/nvidia/files/check-gpus"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def test_two_ranks_compute_and_reduce() -> None:
    done = subprocess.run(
        [*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT, "--device", "cpu"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith('{"backend"')]
    found = json.loads(line)
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert [rank["trouble"] for rank in found["ranks"]] == [None, None]
    assert found["all_reduce"]["latency_us"] > 0
    assert found["all_reduce"]["bus_gb_per_s"] > 0


def test_a_container_without_gpus_is_named() -> None:
    done = subprocess.run(
        [*TORCHRUN, "--standalone", "--nproc-per-node=1", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert "sees 0 GPUs in this container, but slot 0 needs one of its own." in done.stderr


@pytest.mark.parametrize(
    ("capability", "built_for", "has"),
    [
        ((6, 1), ["sm_50", "sm_60", "sm_70"], True),
        ((6, 1), ["sm_75", "sm_80", "sm_90"], False),
        ((6, 1), ["sm_62"], False),
        ((8, 9), ["sm_80"], True),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["sm_100"], False),
        ((12, 1), ["sm_100", "sm_120", "compute_120"], True),
        ((10, 3), ["compute_90"], True),
        ((7, 5), ["compute_80"], False),
        ((7, 5), [], False),
    ],
)
def test_a_build_covers_a_device_or_not(capability: tuple[int, int], built_for: list[str], has: bool) -> None:
    # In its own process: torch clashes with Ansible's modules, which other tests here load.
    question = (
        "import runpy, sys; module = runpy.run_path(sys.argv[1], run_name='check'); "
        f"print(module['has_code_for']({capability!r}, {built_for!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", question, SCRIPT], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == str(has)
