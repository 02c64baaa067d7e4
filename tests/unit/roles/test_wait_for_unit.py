"""Waiting for training without a container: how it ended, and an end where another node has failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.roles.loading import load

SYSTEMCTL = """\
#!{python} -SE
import json, os, signal, sys
from pathlib import Path
place = Path({place!r})
about = json.loads((place / "unit.json").read_text())
with (place / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
verb, pid = sys.argv[1], about["pid"]
def lives():
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
if verb == "show":
    alive = lives()
    state = {{"SubState": "running" if alive else about["ends"], "MainPID": pid if alive else 0}}
    state |= {{"ExecMainCode": about["code"], "ExecMainStatus": about["status"]}}
    state |= {{"InactiveExitTimestampMonotonic": about["began"]}}
    state |= {{"ExecMainExitTimestampMonotonic": 0 if alive else about["ended"]}}
    print("\\n".join(f"{{name}}={{value}}" for name, value in state.items()))
elif verb == "kill":
    os.kill(pid, getattr(signal, sys.argv[2].removeprefix("--signal=")))
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("roles/ddp/files/wait-for-unit")
    monkeypatch.setattr(module, "GRACE", 0.3)
    monkeypatch.setattr(module, "KILL_AFTER", 0.5)
    monkeypatch.setattr(module, "PIECE", 0.1)
    return module


class Unit:
    """A stand-in for systemd with one unit, a real process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, **about: object) -> None:
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-SEc", program], stdout=subprocess.PIPE)
        self.began = time.monotonic()
        content = {"pid": self.process.pid, "ends": "exited", "code": 1, "status": 0}
        content |= {"began": int(self.began * 1e6), "ended": int((self.began + 2) * 1e6)}
        (folder / "unit.json").write_text(json.dumps(content | about))
        program_file = folder / "systemctl"
        program_file.write_text(SYSTEMCTL.format(python=sys.executable, place=str(folder)))
        program_file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setattr(sys, "argv", ["wait-for-unit", "some.service", str(folder / "failed")])

    @property
    def asked(self) -> list[str]:
        """What systemctl was asked besides the state."""
        calls = (self.folder / "calls").read_text().splitlines()
        return [call for call in calls if not call.startswith("show ")]


def test_a_unit_that_ends_well(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = Unit(tmp_path, monkeypatch, "import time; time.sleep(0.4)")
    assert script.main() == 0
    code, began, ended = capsys.readouterr().out.split()
    assert code == "0" and time.monotonic() - unit.began >= 0.3
    assert float(began) == pytest.approx(time.time() - time.monotonic() + unit.began, abs=0.05)
    assert float(ended) - float(began) == pytest.approx(2, abs=1e-3)
    assert unit.asked == ["stop some.service"] and not (tmp_path / "failed").exists()


@pytest.mark.parametrize(
    ("how", "code"), [({"code": 1, "status": 3}, "3"), ({"code": 2, "status": 9}, "137")]
)
def test_a_unit_that_fails_tells_the_other_nodes(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: dict[str, int],
    code: str,
) -> None:
    unit = Unit(tmp_path, monkeypatch, "pass", ends="failed", **how)
    assert script.main() == 0
    assert capsys.readouterr().out.split()[0] == code
    assert (tmp_path / "failed").exists()
    assert unit.asked == ["stop some.service", "reset-failed some.service"]


def test_a_unit_that_was_stopped_by_somebody_is_no_run_that_ended(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Unit(tmp_path, monkeypatch, "pass", ends="dead", ended=0)
    assert script.main() == 1
    said = capsys.readouterr()
    assert not said.out and "some.service is gone: somebody stopped it" in said.err


@pytest.mark.parametrize("stubborn", [False, True])
def test_where_another_node_has_failed_it_is_ended_after_a_while(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if stubborn else ""
    program = f"import signal, time; {ignore}print('ready', flush=True); time.sleep(60)"
    unit = Unit(tmp_path, monkeypatch, program, code=2, status=9 if stubborn else 15)
    assert unit.process.stdout is not None and unit.process.stdout.readline()
    (tmp_path / "failed").touch()
    assert script.main() == 0
    assert unit.process.wait(5) == (-9 if stubborn else -15)
    signals = ["SIGTERM", "SIGKILL"] if stubborn else ["SIGTERM"]
    assert unit.asked == [*(f"kill --signal={name} some.service" for name in signals), "stop some.service"]
