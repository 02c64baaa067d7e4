"""Running a stack's command as a unit or in a container, and how it ended."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from experiments.records.reasons import STOPPED
from tests.unit.roles.loading import load

USER = pwd.getpwuid(os.getuid()).pw_name

# Stand-ins for systemd and the engine, each with one job: a real process, started beforehand.
#: How both begin: they read about their job, note the call, and define whether the job is alive.
JOB = """\
#!{python} -SE
import json, os, signal, sys
from pathlib import Path
place = Path({place!r})
about = json.loads((place / "{job}.json").read_text())
with (place / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
verb, pid = sys.argv[1], about["pid"]
def lives():
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
"""
SYSTEMCTL = """\
if verb == "show":
    alive = lives()
    state = {{"SubState": "running" if alive else about["ends"], "MainPID": pid if alive else 0}}
    state |= {{"ExecMainCode": about["code"], "ExecMainStatus": about["status"]}}
    state |= {{"ExecMainStartTimestampMonotonic": about["executed"], "Result": about["result"]}}
    state |= {{"InactiveExitTimestampMonotonic": about["began"]}}
    state |= {{"ActiveExitTimestampMonotonic": 0 if alive else about["left"]}}
    state |= {{"ExecMainExitTimestampMonotonic": 0 if alive else about["ended"]}}
    print("\\n".join(f"{{name}}={{value}}" for name, value in state.items()))
elif verb in about["removed_before"]:
    sys.exit(f"Failed to {{verb}} some.service: Unit some.service not loaded.")
elif verb == "kill":
    os.kill(pid, getattr(signal, sys.argv[2].removeprefix("--signal=")))
"""
SYSTEMD_RUN = """\
#!{python} -SE
import sys
from pathlib import Path
Path({place!r}, "started").write_text("\\n".join(sys.argv[1:]))
{starts}
"""
DOCKER = """\
if verb == "run":
    print("0123456789abcdef")
elif verb == "inspect":
    if about.get("gone"):
        sys.exit("Error: No such object: 0123456789abcdef")
    if "Running" in sys.argv[3]:
        print("true" if lives() else "false", pid if lives() else 0)
    else:
        print(about["state"], about["code"], "2026-11-23T15:26:00.123456789Z", "2026-11-23T15:26:02.5Z")
elif verb == "logs":
    print("what it said")
elif verb == "kill":
    os.kill(pid, getattr(signal, sys.argv[2].removeprefix("--signal=")))
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("roles/runs/library/run_job.py")
    monkeypatch.setattr(module, "GRACE", 0.3)
    monkeypatch.setattr(module, "KILL_AFTER", 0.5)
    monkeypatch.setattr(module, "PIECE", 0.1)
    return module


class Job:
    """A node with one job: the module's arguments, and stand-ins for systemd and the engine."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, *, container: bool = False
    ) -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-SEc", program], stdout=subprocess.PIPE)
        self.began = time.monotonic()
        self.asked: dict[str, Any] = {
            "argv": ["docker", "run", "image"] if container else ["program", "--option"],
            "container": container,
            "unit": None if container else "some",
            "user": USER,
            "group": None,
            "chdir": str(folder),
            "environment": {"A": "1 2"},
            "properties": ["TimeoutStopSec=10"],
            "files": {str(folder / "input.json"): "{}\n"},
            "log": str(folder / "node.log"),
            "output": None,
            "failed": str(folder / "failed"),
            "note": str(folder / "launch.json"),
            "note_if": "ended",
            "note_unit": False,
            "stack": "plain",
            "nodes": ["one"],
        }
        self.ends()
        self.write("systemctl", JOB + SYSTEMCTL, job="unit")
        self.write("systemd-run", SYSTEMD_RUN, starts="")
        self.write("docker", JOB + DOCKER, job="container")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(self, name: str, text: str, **values: str) -> None:
        """Write a stand-in."""
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, place=str(self.folder), **values))
        path.chmod(0o755)

    def ends(self, **about: object) -> None:
        """Set how the stand-ins report the job's end."""
        unit = {"pid": self.process.pid, "ends": "exited", "code": 1, "status": 0}
        unit |= {"began": int(self.began * 1e6), "ended": int((self.began + 2) * 1e6), "left": 0}
        unit |= {"removed_before": [], "executed": 0, "result": "success"}
        (self.folder / "unit.json").write_text(json.dumps(unit | about))
        container = {"pid": self.process.pid, "state": "exited", "code": 0}
        (self.folder / "container.json").write_text(json.dumps(container | about))

    @property
    def calls(self) -> list[str]:
        """The calls of systemctl and docker that end the job or clean up after it."""
        calls = (self.folder / "calls").read_text().splitlines()
        return [call for call in calls if not call.startswith(("show ", "inspect ", "run ", "logs "))]

    @property
    def note(self) -> dict[str, Any]:
        """The note that the module wrote."""
        note: dict[str, Any] = json.loads((self.folder / "launch.json").read_text())
        return note


def test_a_unit_that_ends_well(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch, "import time; time.sleep(0.4)")
    result = script.perform(job.asked)
    assert result["exit_code"] == 0 and time.monotonic() - job.began >= 0.3
    assert result["started"] == pytest.approx(time.time() - time.monotonic() + job.began, abs=0.05)
    assert result["ended"] - result["started"] == pytest.approx(2, abs=1e-3)
    assert job.calls == ["stop some.service"] and not (tmp_path / "failed").exists()
    assert job.note == {
        "stack": "plain",
        "started": result["started"],
        "ended": result["ended"],
        "exit_code": 0,
        "command": ["program", "--option"],
        "nodes": ["one"],
        "hosts": [os.uname().nodename],
    }
    assert (tmp_path / "input.json").read_text() == "{}\n"


def test_a_unit_is_started_as_it_was_asked_for(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    script.perform(job.asked | {"argv": ["program", "--option", "$HOME ${A}"], "note_unit": True})
    started = (tmp_path / "started").read_text().splitlines()
    assert job.note["command"] == ["systemd-run", *started]
    # systemd replaces $HOME and ${A}, and makes $$ a $.
    assert started[-3:] == ["program", "--option", "$$HOME $${A}"]
    assert {"--unit=some.service", f"--uid={USER}", "--setenv=A=1 2"} < set(started)
    assert {"--property=TimeoutStopSec=10", f"--property=StandardError=append:{tmp_path}/node.log"} < set(
        started
    )
    assert not any(option.startswith("--gid") for option in started)


@pytest.mark.parametrize(("how", "code"), [({"code": 1, "status": 3}, 3), ({"code": 2, "status": 9}, 137)])
def test_a_unit_that_fails_tells_the_other_nodes(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, int],
    code: int,
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    job.ends(ends="failed", **how)
    assert script.perform(job.asked)["exit_code"] == code == job.note["exit_code"]
    assert (tmp_path / "failed").exists()
    assert job.calls == ["stop some.service", "reset-failed some.service"]


def test_a_unit_that_cannot_be_started_says_so_in_its_log(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    job.write("systemd-run", SYSTEMD_RUN, starts='sys.stderr.write("no such program"); sys.exit(203)')
    assert script.perform(job.asked)["exit_code"] == 203 == job.note["exit_code"]
    assert (tmp_path / "node.log").read_text() == "systemd-run failed: no such program\n"
    assert (tmp_path / "failed").exists() and job.calls == []


def test_what_systemd_cannot_execute_was_not_started(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    job.write("systemd-run", SYSTEMD_RUN, starts="sys.exit(1)")
    job.ends(ends="failed", status=200, executed=int((job.began + 3600) * 1e6))
    assert script.perform(job.asked)["exit_code"] == 1
    assert (tmp_path / "node.log").read_text() == "systemd-run failed: status 200, see systemd.exec(5)\n"


def test_a_unit_that_fails_before_systemd_run_has_ended_was_started(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    job.write("systemd-run", SYSTEMD_RUN, starts="sys.exit(1)")
    (tmp_path / "node.log").write_text("python: not found\n")
    job.ends(ends="failed", status=127, executed=int((job.began + 3600) * 1e6))
    assert script.perform(job.asked)["exit_code"] == 127 == job.note["exit_code"]
    assert (tmp_path / "node.log").read_text() == "python: not found\n"
    # An earlier unit of this name says nothing about the one that could not be started.
    job.ends(ends="failed", status=127, executed=int((job.began - 1) * 1e6))
    assert script.perform(job.asked)["exit_code"] == 1


def test_a_unit_that_was_stopped_by_somebody_is_no_run_that_ended(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    for about in (
        {"ends": "dead", "ended": 0},
        # It ended by itself when it was told to, and systemd counts its exit code as a failure.
        {"ends": "failed", "status": 143, "left": int((job.began + 1.9) * 1e6)},
    ):
        job.ends(**about)
        with pytest.raises(script.JobError, match=r"some\.service is gone: somebody stopped it"):
            script.perform(job.asked)
        assert not (tmp_path / "launch.json").exists()
    assert job.calls == ["reset-failed some.service"]


@pytest.mark.parametrize(("result", "limit"), [("oom-kill", "memory"), ("timeout", "time"), ("signal", "")])
def test_a_unit_that_its_own_limit_ended_says_which(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: str, limit: str
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    # systemd stops a unit that reaches its time, as anybody who stops it would.
    left = int((job.began + 1.9) * 1e6) if limit else 0
    job.ends(ends="failed", code=2, status=15, left=left, result=result)
    ended = script.perform(job.asked)
    assert (ended["exit_code"], ended["limit"]) == (143, limit)


def test_standard_output_may_have_a_file_of_its_own(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    script.perform(job.asked | {"output": str(tmp_path / "answer")})
    started = (tmp_path / "started").read_text().splitlines()
    assert f"--property=StandardOutput=truncate:{tmp_path}/answer" in started
    assert f"--property=StandardError=truncate:{tmp_path}/node.log" in started


@pytest.mark.parametrize("removed_before", [["stop"], ["stop", "reset-failed"]])
def test_a_unit_that_somebody_else_removes_once_it_has_ended(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed_before: list[str]
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    left = int((job.began + 2.1) * 1e6)
    job.ends(ends="failed", status=3, left=left, removed_before=removed_before)
    assert script.perform(job.asked)["exit_code"] == 3


def test_what_ends_well_is_not_noted_where_only_a_failure_is_to_be(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass")
    script.perform(job.asked | {"note_if": "failed"})
    assert not (tmp_path / "launch.json").exists()
    job.ends(status=1)
    script.perform(job.asked | {"note_if": "failed"})
    assert job.note["exit_code"] == 1


@pytest.mark.parametrize("container", [False, True])
@pytest.mark.parametrize("stubborn", [False, True])
def test_where_another_node_has_failed_it_is_ended_after_a_while(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool, container: bool
) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if stubborn else ""
    program = f"import signal, time; {ignore}print('ready', flush=True); time.sleep(60)"
    job = Job(tmp_path, monkeypatch, program, container=container)
    job.ends(code=143 if container else 2, status=9 if stubborn else 15)
    assert job.process.stdout is not None and job.process.stdout.readline()
    (tmp_path / "failed").touch()
    assert script.perform(job.asked)["exit_code"] > 128
    assert job.process.wait(5) == (-9 if stubborn else -15)
    signals = ["SIGTERM", "SIGKILL"] if stubborn else ["SIGTERM"]
    name, last = ("0123456789abcdef", "rm") if container else ("some.service", "stop")
    assert job.calls == [*(f"kill --signal={signal} {name}" for signal in signals), f"{last} {name}"]


def test_a_container_that_ends_leaves_its_log_and_times(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "import time; time.sleep(0.4)", container=True)
    job.ends(code=7)
    result = script.perform(job.asked)
    assert time.monotonic() - job.began >= 0.3
    assert result["exit_code"] == 7 and (tmp_path / "failed").exists()
    assert result["ended"] - result["started"] == pytest.approx(2.376543211, abs=1e-6)
    assert result["command"] == ["docker", "run", "image"]
    assert (tmp_path / "node.log").read_text() == "what it said\n"
    assert job.calls == ["rm 0123456789abcdef"]


@pytest.mark.parametrize("about", [{"gone": True}, {"state": "removing", "code": 137}])
def test_a_container_that_was_removed_by_somebody_is_no_run_that_ended(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, about: dict[str, Any]
) -> None:
    job = Job(tmp_path, monkeypatch, "pass", container=True)
    job.ends(**about)
    with pytest.raises(script.JobError, match="The container 0123456789ab is gone: somebody stopped it"):
        script.perform(job.asked)


def test_without_an_engine_the_log_says_so(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, "pass", container=True)
    result = script.perform(job.asked | {"argv": [str(tmp_path / "nowhere"), "run", "image"]})
    assert result["exit_code"] == 127
    assert (tmp_path / "node.log").read_text().startswith("docker run failed: ")


def test_records_recognise_a_stop(script: ModuleType) -> None:
    assert STOPPED in script.STOPPED


def test_moments_of_the_engine() -> None:
    seconds = load("roles/runs/library/run_job.py").unix_seconds
    assert seconds("1970-01-01T00:01:00Z") == 60
    assert seconds("1970-01-01T00:01:00.250000001Z") == pytest.approx(60.25)
