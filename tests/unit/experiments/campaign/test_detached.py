"""`run --detach` and `--at-end`, as processes: with the real tmux, and with a stand-in for systemd.

The stand-ins note their arguments and start the command like systemd does: in a session of its own, with an
environment of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.campaign.running_note import PREFIX
from experiments.util.errors import UserError
from experiments.util.keepers import ENDS_AT_LOGOUT, NO_UNIT, find_keeper
from tests.unit.experiments.console.test_watch import watching
from tests.unit.experiments.made_up_workplace import REPOSITORY, Workplace, wait_until

BEGIN = """\
#!{python} -SE
import json, os, signal, subprocess, sys, time
from pathlib import Path
place = Path({place!r})
with (place / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv) + "\\n")
def lives(pid):
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
"""
SYSTEMD_RUN = """\
options = [each for each in sys.argv[1:] if each.startswith("--")]
command = sys.argv[1 + len(options):]
(name,) = [each.removeprefix("--unit=") for each in options if each.startswith("--unit=")]
(place / "mode").write_text(oct(Path(command[-1]).stat().st_mode & 0o777))
process = subprocess.Popen(command, env={{"PATH": "/usr/bin:/bin", "UNIT": name}}, cwd="/", umask=0o022,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
(place / name).write_text(str(process.pid))
"""
SYSTEMCTL = """\
if "show" in sys.argv:
    print("Version=252")
    sys.exit(0)
pid = int((place / (sys.argv[-1].removesuffix(".service") + ".service")).read_text())
if "stop" in sys.argv:
    os.kill(pid, signal.SIGTERM)  # KillMode=mixed: the main process alone
    while lives(pid):
        time.sleep(0.05)
elif not lives(pid):
    sys.exit(3)
"""
LOGINCTL = """\
answers = json.loads((place / "logind.json").read_text())
print(next(value for name, value in answers.items() if f"--property={{name}}" in sys.argv))
"""
#: Variables of a hook, written to a file as `name=value` lines.
TELLS = (
    "env | grep -E '^(TRAINBED_(MATRIX|CAMPAIGN|STATE|EXIT|LOG|RUNS)|PASSWORD|ARGS|MAKEFLAGS)' | sort > {}"
)


class Systemd:
    """A stand-in for it: programs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._program("systemd-run", SYSTEMD_RUN)
        self._program("systemctl", SYSTEMCTL)

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text((BEGIN + text).format(python=sys.executable, place=str(self.folder)))
        path.chmod(0o755)

    def logind(self, **answers: str) -> None:
        """Adds loginctl, which answers so."""
        (self.folder / "logind.json").write_text(json.dumps(answers))
        self._program("loginctl", LOGINCTL)

    def calls(self, program: str) -> list[list[str]]:
        """The arguments of each call."""
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        calls = [json.loads(line) for line in lines]
        return [call[1:] for call in calls if Path(call[0]).name == program]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd(tmp_path / "systemd")
    monkeypatch.setenv("PATH", f"{found.folder}:{os.environ['PATH']}")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return found


@pytest.fixture
def tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The real one, with servers of the test's own, and no systemd."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("systemctl", "systemd-run"):
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        (programs / name).chmod(0o755)
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TMUX_TMPDIR", str(sockets))
    yield
    subprocess.run(["tmux", "-L", "trainbed", "kill-server"], capture_output=True, check=False)


def told(path: Path) -> dict[str, str]:
    """What a hook was told, once it has written that."""
    wait_until(lambda: path.exists() and "TRAINBED_STATE" in path.read_text())
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def log_of(workplace: Workplace) -> Path:
    """The only log of a detached command."""
    (path,) = (workplace.root / "results" / "small").glob("detached-*.log")
    return path


def stop_of(output: str) -> list[str]:
    """The command that a person is told to stop it with."""
    (line,) = re.findall(r"stop it: +(.+)", output)
    return str(line).split()


def test_a_unit_gets_the_whole_environment_and_tells_its_end(
    workplace: Workplace, systemd: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2 $HOME 'é'")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere/agent")
    hook = TELLS.format(tmp_path / "told") + "; echo it is over; umask > mask; exit 3"
    before = os.umask(0o027)
    try:
        status, output = workplace.run("run", "small", "--detach", "--at-end", hook)
    finally:
        os.umask(before)
    assert status == 0, output
    (call,) = systemd.calls("systemd-run")
    (unit,) = re.findall(r"--unit=(trainbed-small-\d{8}T\d{6}Z)\.service", " ".join(call))
    assert {"--collect", "--property=KillMode=mixed"} <= set(call) and "--user" not in call
    assert "hunter2" not in " ".join(call) and (systemd.folder / "mode").read_text() == "0o600"
    log = log_of(workplace)
    for text in (f"the systemd unit {unit}", f"systemctl stop {unit}", str(log), "make watch MATRIX=small"):
        assert text in output
    assert "SSH_AUTH_SOCK" in output

    variables = told(tmp_path / "told")
    assert variables == {
        "PASSWORD": "hunter2 $HOME 'é'",
        "TRAINBED_MATRIX": "small",
        "TRAINBED_CAMPAIGN": str(workplace.campaigns()[-1]),
        "TRAINBED_STATE": "complete",
        "TRAINBED_EXIT_CODE": "0",
        "TRAINBED_LOG": str(log),
        "TRAINBED_RUNS_DONE": "4",
        "TRAINBED_RUNS_FAILED": "0",
        "TRAINBED_RUNS_MISSING": "0",
    }
    wait_until(lambda: "The hook failed (exit code 3)" in log.read_text())
    assert "\nit is over\n" in log.read_text() and "Records: " in log.read_text()
    assert (workplace.root / "mask").read_text() == "0027\n"
    assert not list(log.parent.glob(".detached-*"))  # the file with the environment

    # Who comes back later is told, and nothing is left once the next command starts.
    status, said = workplace.run("watch")
    assert status == 0 and "exit code 0" in said and str(log) in said and "4 of 4 runs done" in said
    assert workplace.run("run", "small")[0] == 0
    assert not list((workplace.root / "results").glob(f"{PREFIX}*"))


@pytest.mark.usefixtures("systemd")
def test_watch_follows_a_unit_from_its_start_and_stopping_it_ends_the_run_in_an_orderly_way(
    workplace: Workplace, tmp_path: Path
) -> None:
    workplace.behaviour(prepare_seconds=3, runs={"plain-w2": {"hangs": True}})
    watch = watching(workplace, "small")
    watch.says("waiting for a campaign of small")
    status, output = workplace.run("run", "small", "--detach", "--at-end", TELLS.format(tmp_path / "told"))
    assert status == 0 and "holds the cluster's lock" in output
    watch.says("no campaign yet · preparing")
    watch.says("1 of 4 runs done, 1 running")
    subprocess.run(stop_of(output), check=True)
    assert workplace.calls()[-3:] == ["run plain-w2", "stop", "lock free"]
    record = workplace.records()["plain-w2/01"]
    assert record.status == "interrupted" and "SIGTERM" in str(record.reason)
    variables = told(tmp_path / "told")
    assert variables["TRAINBED_STATE"] == "interrupted" and variables["TRAINBED_EXIT_CODE"] == "143"
    assert [variables[f"TRAINBED_RUNS_{name}"] for name in ("DONE", "FAILED", "MISSING")] == ["1", "0", "3"]
    status, said = watch.end()
    assert status == 1 and "exit code 143" in said and "killed" not in said
    assert re.search(r"small · the systemd unit \S+ · no campaign yet", said)


@pytest.mark.usefixtures("tmux")
def test_tmux_keeps_it_where_there_is_no_systemd_and_ends_it_in_an_orderly_way(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    workplace.behaviour(runs={"plain-w2": {"hangs": True}})
    status, output = workplace.run("run", "small", "--detach", "--at-end", TELLS.format(tmp_path / "told"))
    assert status == 0, output
    workplace.wait_for("hanging")
    listed = subprocess.run(
        ["tmux", "-L", "trainbed", "list-sessions"], capture_output=True, text=True, check=True
    )
    assert re.match(r"trainbed-small-\d{8}T\d{6}Z: ", listed.stdout) and listed.stdout.count("\n") == 1
    subprocess.run(stop_of(output), check=True)
    variables = told(tmp_path / "told")
    assert variables["PASSWORD"] == "hunter2" and variables["TRAINBED_STATE"] == "interrupted"
    assert workplace.calls()[-3:] == ["run plain-w2", "stop", "lock free"]
    assert "SIGHUP" in str(workplace.records()["plain-w2/01"].reason)
    assert "Stopped. The same command resumes" in log_of(workplace).read_text()


@pytest.mark.usefixtures("systemd")
def test_the_lock_of_another_is_told_on_the_terminal_and_by_watch(workplace: Workplace) -> None:
    held = "The cluster is in use: 'run' by ada has held its lock since noon."
    workplace.behaviour(lock_held=held)
    status, output = workplace.run("run", "small", "--detach")
    assert status == 2 and f"master: {held}" in output and "exit code 2" in output
    status, said = workplace.run("watch", "small")
    assert status == 1 and held in said and str(log_of(workplace)) in said and "its log says why" in said
    workplace.behaviour()
    assert workplace.run("run", "small")[0] == 0
    assert not list((workplace.root / "results").glob(f"{PREFIX}*"))


@pytest.mark.usefixtures("systemd")
def test_what_fails_after_the_terminal_has_gone_is_told_by_watch(workplace: Workplace) -> None:
    workplace.behaviour(prepare_seconds=8, prepare_fails="The data set is not in the store.")
    assert workplace.run("run", "small", "--detach")[0] == 0
    status, said = workplace.run("watch")
    assert (
        status == 1 and "no campaign yet · preparing" in said and "The data set is not in the store." in said
    )


def test_a_killed_unit_is_told_with_its_log(workplace: Workplace, systemd: Systemd) -> None:
    workplace.behaviour(prepare_seconds=60)
    assert workplace.run("run", "small", "--detach")[0] == 0
    (unit,) = systemd.folder.glob("trainbed-small-*")
    os.kill(int(unit.read_text()), signal.SIGKILL)
    wait_until(lambda: "killed" in workplace.run("watch")[1])
    status, said = workplace.run("watch")
    assert status == 1 and str(log_of(workplace)) in said


def test_mistakes_are_told_at_once_and_start_nothing(
    workplace: Workplace, systemd: Systemd, tmp_path: Path
) -> None:
    for words in (("smal",), ("small", "--max-time", "soon"), ("small", "--new", "--campaign", "x")):
        status, output = workplace.run("run", *words, "--detach", "--at-end", f"touch '{tmp_path}/hook'")
        assert status == 2 and "Traceback" not in output
    assert not (workplace.root / "results").exists() and not (systemd.folder / "calls.jsonl").exists()
    assert not (tmp_path / "hook").exists()


def test_a_start_that_fails_is_told_and_leaves_nothing(workplace: Workplace, systemd: Systemd) -> None:
    (systemd.folder / "systemd-run").write_text("#!/bin/sh\necho 'Failed to start: no bus' >&2\nexit 1\n")
    status, output = workplace.run("run", "small", "--detach")
    assert status == 2 and "systemd-run says: Failed to start: no bus" in output
    assert not list((workplace.root / "results" / "small").iterdir())


def test_without_systemd_and_tmux_it_says_what_to_install(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    status, output = workplace.run("run", "small", "--detach")
    assert status == 2 and "apt-get install tmux" in output and len(output.splitlines()) == 1
    assert not (workplace.root / "results").exists()


@pytest.mark.parametrize(
    ("linger", "kills", "has_tmux", "kept", "remark"),
    [
        ("yes", "no", True, "systemd unit", ""),
        ("no", "no", True, "tmux session", NO_UNIT),
        ("no", "yes", True, "systemd unit", ENDS_AT_LOGOUT),
        ("no", "no", False, "systemd unit", ENDS_AT_LOGOUT),
        ("", "", False, "systemd unit", ENDS_AT_LOGOUT),
    ],
)
def test_a_users_own_unit_is_taken_where_it_outlives_the_login(
    systemd: Systemd,
    monkeypatch: pytest.MonkeyPatch,
    linger: str,
    kills: str,
    has_tmux: bool,
    kept: str,
    remark: str,
) -> None:
    systemd.logind(Linger=linger, KillUserProcesses=kills)
    if has_tmux:
        (systemd.folder / "tmux").write_text("")
        (systemd.folder / "tmux").chmod(0o755)
    monkeypatch.setenv("PATH", str(systemd.folder))
    keeper = find_keeper("trainbed-small", 1000)
    assert keeper.what == f"the {kept} trainbed-small" and keeper.remark == remark
    assert ("--user" in keeper.start) == (kept == "systemd unit")
    if kept == "systemd unit":
        assert keeper.stop == "systemctl --user stop trainbed-small" and "After=" not in str(keeper.start)
    assert find_keeper("trainbed-small", 0).stop == "systemctl stop trainbed-small"
    assert systemd.calls("systemctl")[0] == ["--user", "show", "--property=Version"]


def test_nothing_keeps_a_command_without_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="Install tmux"):
        find_keeper("trainbed-small", 0)


@pytest.mark.parametrize(
    ("how", "only", "state", "code", "runs"),
    [
        ({}, "*", "complete", 0, ("4", "0", "0")),
        ({}, "plain-*", "unfinished", 0, ("2", "0", "2")),
        ({"runs": {"plain-w1": {"fails": "log"}}}, "*", "failed", 1, ("3", "1", "1")),
        ({"prepare_fails": "No data."}, "*", "failed", 2, ("", "", "")),
    ],
)
def test_a_hook_is_told_how_it_ended_and_changes_nothing(
    workplace: Workplace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, object],
    only: str,
    state: str,
    code: int,
    runs: tuple[str, str, str],
) -> None:
    # As make exports its variables: a `make matrix` in the hook must not take them for its own.
    monkeypatch.setenv("MAKEFLAGS", "-- ARGS=--retry")
    monkeypatch.setenv("ARGS", "--retry")
    workplace.behaviour(**how)
    hook = TELLS.format(tmp_path / "told") + "; echo said by the hook; kill -9 $$"
    status, output = workplace.run("run", "small", "--only", only, "--at-end", hook)
    assert status == code
    *_, said, failed = output.splitlines()
    assert said == "said by the hook" and failed.startswith("The hook failed (signal 9)")
    variables = told(tmp_path / "told")
    assert variables["TRAINBED_STATE"] == state and variables["TRAINBED_EXIT_CODE"] == str(code)
    assert tuple(variables[f"TRAINBED_RUNS_{each}"] for each in ("DONE", "FAILED", "MISSING")) == runs
    there = str(workplace.campaigns()[-1]) if runs[0] else ""
    assert variables["TRAINBED_CAMPAIGN"] == there and variables["TRAINBED_LOG"] == ""
    assert not {"ARGS", "MAKEFLAGS", "PASSWORD"} & set(variables)


def test_a_signal_ends_a_hook_that_hangs(workplace: Workplace, tmp_path: Path) -> None:
    hook = f"echo $$ > '{tmp_path}/pid'; sleep 600; true"
    process = workplace.start("run", "small", "--at-end", hook)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 0 and "The hook failed (signal 15)" in output
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_make_passes_detach_and_a_hook_on_as_they_were_written() -> None:
    def make(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "--no-print-directory", "--dry-run", "-C", str(REPOSITORY), "matrix", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    hook = """mail -s "it's $TRAINBED_STATE" ada@example.org < "$TRAINBED_LOG" """
    shown = make("DETACH=1", f"HOOK={hook}").stdout.partition("python -m experiments ")[2]
    assert shlex.split(shown) == ["run", "quick", "--detach", "--at-end", hook]
    refused = make("DETACH=yes")
    assert refused.returncode != 0 and "DETACH is 'yes', and must be 1 or empty" in refused.stderr
    assert "--detach" not in make().stdout
