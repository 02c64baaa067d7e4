"""Staging a run on the shared storage and bringing home what it left, by the role itself on this machine."""

from __future__ import annotations

import json
import os
import pwd
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import played_here

#: A worker that can't be reached.
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


def played(
    role: str, entry: str, folder: Path, variables: dict[str, Any], **workers: dict[str, Any]
) -> tuple[int, str]:
    """Call roles/<role>/tasks/<entry>.yml; returns its exit status and its output on one line."""
    task = {"name": "Call", "ansible.builtin.import_role": {"name": role, "tasks_from": entry}}
    play = {"hosts": "cluster", "connection": "local", "become": False, "gather_facts": False}
    play["any_errors_fatal"] = False
    playbook = folder / f"{entry}.yml"
    playbook.write_text(json.dumps([play | {"name": "Call", "vars": variables, "tasks": [task]}]))
    inventory = folder / "hosts.yml"
    master: dict[str, Any] = {"localhost": {}}
    inventory.write_text(json.dumps({"master": {"hosts": master}, "cluster": {"hosts": master | workers}}))
    return played_here(playbook, inventory)


def staged(folder: Path, run_dir: Path, code: Path) -> tuple[int, str]:
    """Stage a run in `run_dir`, with its code in `code`."""
    archive = folder / "sent.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("training/__init__.py", "")
    variables = {
        "run_id": "some-run",
        "run_dir": str(run_dir),
        "run_spec": {"stack": "plain", "conditions": {"slow_worker": None}},
        "run_code": str(code),
        "run_code_archive": str(archive),
        "run_suffix": "-1",
        "runs_user": pwd.getpwuid(os.getuid()).pw_name,
    }
    return played("runs", "stage", folder, variables)


def pulled(folder: Path, run_dir: Path, **workers: dict[str, Any]) -> tuple[int, str]:
    """Bring home what is in `run_dir` and in the launch's directory."""
    variables = {
        "run_dir": str(run_dir),
        "run_launch_dir": str(folder / "launches" / "some-run" / "01"),
        "run_dest": str(folder / "home"),
        "runs_user": pwd.getpwuid(os.getuid()).pw_name,
    }
    return played("runs", "pull", folder, variables, **workers)


def test_an_attempt_that_was_made_before_is_not_staged_again(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "some-run" / "20261122T100000Z-01"
    code = tmp_path / "code"
    status, said = staged(tmp_path, run_dir, code)
    assert status == 0 and (run_dir / "logs").is_dir(), said
    assert json.loads((run_dir / "spec.json").read_text())["stack"] == "plain"
    assert sorted(path.relative_to(code).as_posix() for path in code.rglob("*.*")) == [
        "training.zip",
        "training/__init__.py",
    ]
    assert not list(tmp_path.glob("code*.zip*"))
    (run_dir / "failed").touch()
    (run_dir / "spec.json").unlink()

    status, said = staged(tmp_path, run_dir, code)
    assert status != 0
    assert f"{run_dir} already exists: an attempt with this number was made before" in said
    assert sorted(path.name for path in run_dir.iterdir()) == ["failed", "logs"]


NOTES = [
    {
        "stack": "plain",
        "started": 12.0,
        "ended": 20.0,
        "exit_code": 0,
        "command": ["first"],
        "nodes": ["a", "b"],
        "hosts": ["host-a"],
    },
    {
        "stack": "plain",
        "started": 11.0,
        "ended": 21.0,
        "exit_code": 0,
        "command": ["second"],
        "nodes": ["a", "b"],
        "hosts": ["host-b"],
    },
]


def left(folder: Path, *notes: dict[str, Any], **files: str) -> Path:
    """The directory of a run, and beside it the launch's with the nodes' notes of how it ended."""
    run_dir, launch_dir = folder / "runs" / "01", folder / "launches" / "some-run" / "01"
    (launch_dir / "logs").mkdir(parents=True)
    (launch_dir / "logs" / "node.log").write_text("what it said")
    run_dir.mkdir(parents=True)
    (run_dir / "trace-0.json.gz").write_bytes(b"a trace")
    for name in ("logs", "checkpoints", "model", "tokens"):
        (run_dir / name).mkdir(parents=True)
        (run_dir / name / "some.log").write_text(name)
    for number, note in enumerate(notes):
        (launch_dir / f"launch-{number}.json").write_text(json.dumps(note))
    for name, text in files.items():
        (run_dir / f"{name}.json").write_text(text)
    return run_dir


def test_what_a_run_left_is_brought_home(tmp_path: Path) -> None:
    run_dir = left(tmp_path, *NOTES)
    status, said = pulled(tmp_path, run_dir)
    assert status == 0, said
    home = tmp_path / "home"
    launch = json.loads((home / "launch.json").read_text())
    assert launch == NOTES[0] | {"started": 11.0, "ended": 21.0, "hosts": ["host-a", "host-b"]}
    files = sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())
    assert files == ["launch.json", "logs/node.log", "logs/some.log", "trace-0.json.gz"]
    assert sorted(path.name for path in run_dir.iterdir()) == [
        "checkpoints",
        "logs",
        "model",
        "trace-0.json.gz",
    ]
    assert not list((tmp_path / "launches").iterdir())


def test_a_run_that_failed_is_brought_home_too(tmp_path: Path) -> None:
    run_dir = left(tmp_path, NOTES[0], NOTES[1] | {"exit_code": 3}, launcher='{"queue_s": 1, "ended": 19.5}')
    status, said = pulled(tmp_path, run_dir)
    assert status != 0 and f"plain ended with exit code 3; its output is in {tmp_path}/home/logs." in said
    launch = json.loads((tmp_path / "home" / "launch.json").read_text())
    assert (launch["exit_code"], launch["ended"]) == (3, 19.5)  # launcher.json says when it ended


def test_where_a_node_noted_nothing_it_is_not_known_how_the_run_ended(tmp_path: Path) -> None:
    status, said = pulled(tmp_path, left(tmp_path, NOTES[0], launcher="{ damaged"))
    assert status != 0 and "How the run ended is unknown" in said
    assert not (tmp_path / "home" / "launch.json").exists()
    assert (tmp_path / "home" / "logs" / "node.log").read_text() == "what it said"
    assert (tmp_path / "home" / "launcher.json").read_text() == "{ damaged"


def test_what_a_job_made_up_about_its_end_is_not_believed(tmp_path: Path) -> None:
    run_dir = left(tmp_path, NOTES[0], **{"launch-1": json.dumps(NOTES[1]), "launch": json.dumps(NOTES[1])})
    status, said = pulled(tmp_path, run_dir)
    assert status != 0 and "How the run ended is unknown" in said


def test_what_cannot_be_fetched_is_the_reason(tmp_path: Path) -> None:
    status, said = pulled(tmp_path, tmp_path / "runs" / "nowhere")
    assert status != 0
    assert f"localhost: {tmp_path}/runs/nowhere can't be packed: " in said and "No such file" in said


@pytest.mark.parametrize(("notes", "known"), [(NOTES[:1], False), (NOTES, True)])
def test_a_worker_that_went_away_does_not_keep_the_output(
    tmp_path: Path, notes: list[dict[str, Any]], known: bool
) -> None:
    status, said = pulled(tmp_path, left(tmp_path, *notes), worker1=AWAY)
    assert (status == 0) == known and ("How the run ended is unknown" in said) != known, said
    assert (tmp_path / "home" / "logs" / "some.log").exists()
