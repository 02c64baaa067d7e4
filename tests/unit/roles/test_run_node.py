"""Ending what is left of runs on a node: real processes, and only the intended ones."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.roles.loading import load

ME = getpass.getuser()
PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("roles/runs/library/run_node.py")
    monkeypatch.setattr(module, "KILLED_WITHIN_S", 5.0)
    monkeypatch.setattr(module, "POLL_S", 0.05)
    return module


@contextmanager
def running(name: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process called `name` that ends by itself after so many seconds, or is killed."""
    command = [sys.executable, "-SEc", PROGRAM, name, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def reaped(script: ModuleType, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reap this test's own zombies, as init would."""
    look = script.processes_there

    def looking(patterns: list[str], user: str) -> dict[int, str]:
        process.poll()
        found: dict[int, str] = look(patterns, user)
        return found

    monkeypatch.setattr(script, "processes_there", looking)


def mark(name: str) -> str:
    """A name that no other process has."""
    return f"left-over-{name}-{os.getpid()}"


def test_a_process_that_ends_in_time_is_not_killed(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(mark("soon"), 0.3) as process:
        reaped(script, process, monkeypatch)
        assert script.end_processes([mark("soon")], ME, 20) == []
        assert process.wait() == 0


def test_a_process_that_stays_is_killed_and_another_one_is_not(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(mark("stays"), 60) as process, running(mark("other"), 60) as other:
        reaped(script, process, monkeypatch)
        begun = time.monotonic()
        killed = script.end_processes([mark("stays"), "no such process at all"], ME, 0.3)
        assert len(killed) == 1 and f"process {process.pid}: " in killed[0]
        assert 0.3 <= time.monotonic() - begun < 5 and process.wait() == -9
        assert other.poll() is None


def test_processes_of_somebody_else_are_left_alone(script: ModuleType) -> None:
    with running(mark("mine"), 60) as process:
        assert list(script.processes_there([mark("mine")], ME)) == [process.pid]
        assert script.processes_there([mark("mine")], "nobody") == {}
        assert script.processes_there([mark("mine")], "who-is-not-there") == {}
        assert script.processes_there([], ME) == {}


SYSTEMCTL = """\
#!/bin/sh
echo "$@" >> {place}/calls
first='"unit":"some-1.service"' second='"unit":"some-2.service","description":"sh -c two\\n--lines"'
case $1 in list-units)
    if [ -e {place}/stopped ]; then echo "[{{$first}}]"; exit; fi
    printf '[{{%s}}, {{%s}}]' "$first" "$second" ;;
stop) touch {place}/stopped ;;
esac
"""
DOCKER = """\
#!/bin/sh
echo "$@" >> {place}/calls
[ "$1" != ps ] || echo 0123
"""


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
    """Put these stand-ins first on the PATH; without any, the PATH has no programs."""
    for name, text in texts.items():
        (folder / name).write_text(text.format(place=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin" if texts else str(folder))


def test_units_are_stopped_and_containers_removed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, systemctl=SYSTEMCTL, docker=DOCKER)
    asked = {"units": ["some-*"], "containers": ["label"], "processes": [], "user": ME, "patience_s": 1}
    assert script.anything_there(asked) == ["some-1.service", "some-2.service", "0123"]
    (tmp_path / "calls").unlink()
    assert script.end(asked) == ["some-1.service", "some-2.service", "0123"]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[1:] == [
        "stop some-1.service some-2.service",
        calls[0],
        "reset-failed some-1.service",
        "ps --all --quiet --filter label=label",
        "rm --force 0123",
    ]


def test_what_somebody_else_has_removed_meanwhile_is_ended(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = "echo Unit some-1.service not loaded. >&2; exit 5"
    container = "echo removal of container 0123 is already in progress >&2; exit 1"
    systemctl = SYSTEMCTL.replace("touch {place}/stopped", f"touch {{place}}/stopped; {unit}")
    programs(
        tmp_path,
        monkeypatch,
        systemctl=systemctl.replace("esac", f"reset-failed) {unit} ;;\nesac"),
        docker=f"{DOCKER}[ $1 != rm ] || {{{{ {container}; }}}}\n",
    )
    asked = {"units": ["some-*"], "containers": ["label"], "processes": [], "user": ME, "patience_s": 1}
    assert script.end(asked) == ["some-1.service", "some-2.service", "0123"]
    programs(tmp_path, monkeypatch, docker=DOCKER + "echo no room >&2; exit 1\n")
    with pytest.raises(script.StopError, match=r"no room"):
        script.end_containers(["label"])


def test_a_node_without_an_engine_has_no_containers(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch)
    assert script.end_containers(["label"]) == [] and script.end_units([]) == []


def test_what_cannot_be_ended_is_said(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, systemctl="#!/bin/sh\necho no bus >&2; exit 1\n")
    with pytest.raises(script.StopError, match=r"systemctl list-units .* ended with 1: no bus"):
        script.end_units(["some-*"])


def test_a_limit_that_a_run_left_is_lifted(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, called = tmp_path / "50-CPUQuota.conf", list[tuple[str, ...]]()
    monkeypatch.setattr(script, "LIMIT", limit)
    monkeypatch.setattr(script, "call", lambda *command: called.append(command))
    asked = {"units": [], "containers": [], "processes": [], "user": ME, "patience_s": 1.0}
    assert script.anything_there(asked) == script.end(asked) == [] and called == []
    # What systemd writes, first with a limit and then without.
    limit.write_text("# Made by systemctl set-property\n[Slice]\nCPUQuota=50.00%\n")
    assert script.anything_there(asked) == script.end(asked) == ["CPUQuota of system.slice"]
    assert called == [("systemctl", "set-property", "--runtime", "system.slice", "CPUQuota=")]
    limit.write_text("# Made by systemctl set-property\n[Slice]\nCPUQuota=\n")
    assert script.anything_there(asked) == script.end(asked) == []
