"""`watch` in one process, of a matrix running in another, against a stand-in for ansible-playbook."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.attempt import LIVE, Attempt
from experiments.campaign.campaign import open_campaign
from experiments.campaign.estimates import Estimates
from experiments.campaign.running_note import PREFIX, CommandNote, NoteWriter, read_notes
from experiments.cluster.progress import Follower, Progress
from experiments.console.observe import ABANDONED, LiveRun, Observer, Trouble
from experiments.console.watch_view import silence
from experiments.records.record import ConcurrentStart, write_record
from experiments.util.errors import UserError
from experiments.util.files import utc_now
from experiments.util.processes import self_identity
from experiments.util.screen import Screen
from tests.unit.experiments.campaign.test_concurrent import USERS
from tests.unit.experiments.cluster.test_quiet import BUSY, QUIET, watched
from tests.unit.experiments.made_up_records import STARTED, campaign, planned, record
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace, wait_until

HANGING = "plain-w2-e2-s1-0e872484 · epoch 2 of 2"


class Watching:
    """A `watch` whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def says(self, text: str) -> str:
        """Waits until a line holds `text`; returns the line."""
        wait_until(lambda: any(text in line for line in list(self.lines)))
        return next(line for line in self.lines if text in line)

    def end(self) -> tuple[int, str]:
        """Waits until it exits; returns the exit status and all output."""
        status = self.process.wait(timeout=30)
        self._thread.join(10)
        return status, "\n".join(self.lines)


def watching(workplace: Workplace, *arguments: str) -> Watching:
    return Watching(workplace.start("watch", *arguments))


def counts(line: str) -> dict[str, int]:
    """How many runs a line says are in which state; `of` are those that are done, of all `runs`."""
    found = re.findall(r"(\d+) (of|runs|failed|running|to come|not runnable)\b", line)
    return {word: int(number) for number, word in found}


def at_the_end(said: str) -> dict[str, int]:
    """What the last line counts."""
    return counts(said.splitlines()[-1])


def state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, inode and modification time of every file and folder, without Python's caches."""
    return {
        str(path): (seen.st_size, seen.st_ino, seen.st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
        for seen in [path.stat()]
    }


def hanging(workplace: Workplace, **more: object) -> subprocess.Popen[str]:
    """Starts a matrix and returns once its second run hangs."""
    workplace.behaviour(runs={"plain-w2": {"hangs": True, **more}})
    process = workplace.start("run", "small")
    workplace.wait_for("hanging")
    return process


def test_it_waits_for_the_matrix_follows_it_and_ends_with_its_table(workplace: Workplace) -> None:
    workplace.behaviour(
        prepare_seconds=3,
        runs={
            "plain-w1": {"fails": "log"},
            "plain-w2": {"waits": True, "tells-1": {"silent_s": 7.0}, "tells_error": "The disk is full."},
        },
    )
    watch = watching(workplace, "small")
    watch.says("waiting for a campaign of small")
    run = workplace.start("run", "small")
    watch.says("small · no campaign yet")
    line = watch.says(f"{HANGING} · loss 0.61 · 210 samples/s")
    ranks = line.rpartition(" · ")[2]
    assert re.findall(r"worker\d|[\d.]+", ranks) == ["worker1", "105", "0.61", "worker2", "7"]
    watch.says("plain-w2-e2-s1-0e872484: The disk is full.")
    watch.says("plain-w1-e2-s1-ad1b6d41, attempt 1, failed: ")
    watch.says("0 of 4 runs done, 1 failed, 1 running, 2 to come")
    (workplace.cluster_folder / "go-on").touch()
    assert run.wait(timeout=30) == 1
    status, said = watch.end()
    assert status == 1
    table = said[said.index("Campaign ") :]
    assert re.search(r"plain-w1-\S+ +failed", table) and len(re.findall(r"-w\d-\S+ +ok ", table)) == 3
    assert at_the_end(said) == {"of": 3, "runs": 4, "failed": 1, "running": 0, "to come": 0}

    # `check` agrees about the failures, and the followed events lie beside the outputs.
    assert not [fault for fault in workplace.faults() if "no result" not in fault]
    (live,) = workplace.campaigns()[-1].glob(f"plain-w2-*/01/{LIVE}")
    kinds = [json.loads(line)["event"] for line in live.read_text().splitlines()]
    assert kinds == ["start", "step", "step", "error"]
    assert not list((workplace.root / "results").glob(f"{PREFIX}*"))
    assert LIVE not in workplace.records()["plain-w2/01"].files


def test_the_matrix_that_runs_is_found_and_one_that_is_done_ends_well(workplace: Workplace) -> None:
    workplace.behaviour(runs={"slow-w2": {"waits": True}})
    watch = watching(workplace)
    watch.says("waiting for a campaign")
    run = workplace.start("run", "small")
    line = watch.says("3 of 4 runs done, 1 running, 0 to come")
    other = watching(workplace, "quick")
    assert "small" in other.says("quick")  # it names the one running instead
    other.process.send_signal(signal.SIGINT)
    assert other.end()[0] == 130
    assert run.poll() is None
    assert line.startswith("small ") and f" {workplace.campaigns()[-1].name} " in line
    (workplace.cluster_folder / "go-on").touch()
    status, said = watch.end()
    assert status == 0 and at_the_end(said) == {"of": 4, "runs": 4, "running": 0, "to come": 0}
    assert run.wait(timeout=30) == 0


def test_it_changes_nothing(workplace: Workplace) -> None:
    run = hanging(workplace)
    folder = workplace.root.parent.parent
    # From here on the matrix itself writes nothing.
    wait_until(lambda: "epoch 2 of 2" in read_notes(workplace.root / "results")[0][1].doing)
    before = state(folder)
    watch = watching(workplace, "small")
    watch.says(HANGING)
    watch.process.send_signal(signal.SIGINT)
    assert watch.end()[0] == 130
    assert state(folder) == before and len(before) > 100
    run.kill()
    run.wait()
    before = state(folder)
    assert watching(workplace, "small").end()[0] == 1
    assert state(folder) == before


def test_a_killed_controller_is_told_from_a_living_one(workplace: Workplace) -> None:
    run = hanging(workplace)
    watch = watching(workplace, "small")
    watch.says(HANGING)
    assert watch.process.poll() is None
    run.kill()
    run.wait()
    late = watching(workplace, "small")
    lost = Trouble("plain-w2-e2-s1-0e872484", 1, "lost", ABANDONED, utc_now())
    for status, said in (watch.end(), late.end()):
        assert status == 1
        assert f"(process {run.pid})" in said and "killed" in said and lost.text in said
        assert at_the_end(said) == {"of": 1, "runs": 4, "running": 0, "to come": 3}

    # The next command resumes it and removes the dead one's note; `watch` follows that.
    workplace.behaviour(runs={"slow-w2": {"waits": True}})
    run = workplace.start("run", "small")
    wait_until(lambda: [note.alive for _, note in read_notes(workplace.root / "results")] == [True])
    again = watching(workplace, "small")
    again.says("3 of 4 runs done, 1 running, 0 to come")
    again.says("plain-w2-e2-s1-0e872484, attempt 1, interrupted: ")
    (workplace.cluster_folder / "go-on").touch()
    assert again.end()[0] == 0 and run.wait(timeout=30) == 0
    assert not list((workplace.root / "results").glob(f"{PREFIX}*"))


def test_a_controller_that_is_killed_while_it_prepares_is_missed_too(workplace: Workplace) -> None:
    workplace.behaviour(prepare_seconds=60)
    run = workplace.start("run", "small")
    watch = watching(workplace, "small")
    watch.says("no campaign yet · preparing")
    run.kill()
    run.wait()
    status, said = watch.end()
    assert status == 1 and f"(process {run.pid})" in said
    assert "killed" in said and "Campaign " not in said


def test_a_matrix_that_was_stopped_has_ended(workplace: Workplace) -> None:
    run = hanging(workplace)
    watch = watching(workplace, "small")
    watch.says(HANGING)
    run.send_signal(signal.SIGINT)
    status, said = watch.end()
    assert run.wait(timeout=30) == 130
    assert status == 1 and "killed" not in said and re.search(r"plain-w2-\S+ +interrupted ", said)


def test_users_that_are_made_anew_are_counted_as_the_command_counts_them(workplace: Workplace) -> None:
    first, second, only = "plain-w1-e2-s1", "plain-w1-e2-s2", ("--only", "plain-w1-e2-s1-*")
    workplace.matrix(USERS)
    workplace.behaviour(runs={first: {"meets": 1}, second: {"meets": 1, "fails": "log"}})
    assert workplace.run("run", "small", *only)[0] == 1

    # Now the other one fails: each has a record that is ok, but from different starts.
    workplace.behaviour(runs={first: {"waits": True, "fails": "log"}, second: {"waits": True}})
    run = workplace.start("run", "small", *only)
    watch = watching(workplace, "small")
    watch.says("0 of 2 runs done, 2 running, 0 to come")
    (workplace.cluster_folder / "go-on").touch()
    status, said = watch.end()
    assert (status, run.wait(timeout=30)) == (1, 1)
    assert at_the_end(said) == {"of": 0, "runs": 2, "failed": 2, "running": 0, "to come": 0}


@pytest.mark.parametrize("ends", ["ok", "failed"])
def test_a_user_counts_as_done_while_the_other_of_the_same_moment_goes_on(tmp_path: Path, ends: str) -> None:
    plan = [planned("ddp", 1, seed) for seed in (1, 2)]
    ids = [run.run_id for run in plan]
    there = campaign(tmp_path, [run.model_copy(update={"together": ids}) for run in plan], [])
    again = STARTED + timedelta(hours=1)
    note = CommandNote(
        matrix="made", started=again, controller={}, campaign=there.file.name, selected=ids, todo=ids
    )

    def begin(place: int, moment: datetime) -> Attempt:
        attempt = there.new_attempt(ids[place])
        attempt.begin(moment, ConcurrentStart(why="users", runs=ids, place=place, begun=moment))
        return attempt

    def end(attempt: Attempt, place: int, status: str = "ok") -> None:
        reason = None if status == "ok" else "It was lost."
        moment = attempt.started
        told: dict[str, Any] = {"status": status, "reason": reason, "together": attempt.together}
        told |= {"started": moment, "ended": moment}
        write_record(record("ddp", 1, 10.0, 12.0, place + 1, attempt.number, **told), attempt.folder)

    end(begin(0, STARTED), 0)
    end(begin(1, STARTED), 1, "failed")
    observer = Observer(there, note, Estimates(tmp_path, {}))

    def counted() -> tuple[int, int, int, int]:
        state = observer.look()
        return state.done, state.failed, len(state.running), state.to_come

    assert counted() == (0, 0, 0, 2)
    first, second = begin(0, again), begin(1, again)
    assert counted() == (0, 0, 2, 0)
    end(first, 0)
    assert counted() == (1, 0, 1, 0)
    end(second, 1, ends)
    assert counted() == ((2, 0, 0, 0) if ends == "ok" else (0, 2, 0, 0))


def test_of_two_commands_the_one_with_a_campaign_is_followed(workplace: Workplace) -> None:
    run = hanging(workplace)
    try:
        # It began later, and has yet to find the lock held.
        other = CommandNote(matrix="other", started=utc_now(), controller=self_identity(), doing="locking")
        (workplace.root / "results" / f"{PREFIX}1.json").write_text(other.model_dump_json())
        watch = watching(workplace)
        line = watch.says("1 of 4 runs done, 1 running")
        assert line.startswith("small ") and f" {workplace.campaigns()[-1].name} " in line
        watch.process.send_signal(signal.SIGINT)
        watch.end()
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(timeout=30)


def test_a_command_that_could_not_begin_has_ended(workplace: Workplace) -> None:
    workplace.behaviour(prepare_seconds=3, prepare_fails="The data set is not in the store.")
    run = workplace.start("run", "small")
    watch = watching(workplace, "small")
    watch.says("no campaign yet")
    status, said = watch.end()
    assert status == 1 and "Campaign " not in said and "killed" not in said
    assert run.wait(timeout=30) == 2


def test_a_matrix_that_there_is_not_is_not_waited_for(workplace: Workplace) -> None:
    status, said = workplace.run("watch", "smal")
    assert status == 2 and "smal" in said and "Traceback" not in said
    (workplace.root / "results").mkdir()
    (workplace.root / "results" / f"{PREFIX}1.json").write_text("{}")
    status, said = workplace.run("watch", "small")
    with pytest.raises(UserError, match=f"{PREFIX}1.json.*: matrix: ") as invalid:
        read_notes(workplace.root / "results")
    assert status == 2 and str(invalid.value) in said
    # It does not hold up `run`.
    status, said = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0 and f"{PREFIX}1.json" in said


def on_a_terminal(workplace: Workplace, until: str) -> str:
    """All that `watch small` draws on a terminal; the run may go on once it has drawn `until`."""
    ours, theirs = pty.openpty()
    environment = dict(os.environ, TERM="xterm", COLUMNS="120", LINES="40")
    command = [sys.executable, "-m", "experiments", "watch", "small"]
    with subprocess.Popen(
        command, cwd=workplace.root, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        drawn = ""
        while True:
            try:
                drawn += os.read(ours, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
            if until in drawn:
                (workplace.cluster_folder / "go-on").touch()
    os.close(ours)
    assert process.returncode == 0, drawn
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)


def test_on_a_terminal_there_is_a_picture_of_every_worker(workplace: Workplace) -> None:
    workplace.behaviour(runs={"plain-w2": {"waits": True, "tells-1": {"silent_s": 7.0, "loss": None}}})
    run = workplace.start("run", "small")
    drawn = on_a_terminal(workplace, until="silent for 7 s")
    rows = [[cell.strip() for cell in line.split("│")] for line in drawn.splitlines()]
    assert ["0", "worker1", "1", "4", "0.610", "105", "300", "exposed sync"] in rows
    silent = [row[-1] for row in rows if row[:-1] == ["1", "worker2", "1", "4", "nan", "105", "300"]]
    assert any("7 s" in cell for cell in silent)
    half = {"of": 1, "runs": 4, "running": 1, "to come": 2}
    assert any(counts(line) == half for line in drawn.splitlines())
    assert re.search(r"\bslow-w1-\S+, slow-w2-\S+", drawn)  # the next ones
    assert [row[1] for row in rows if re.match(r"(plain|slow)-w\d-", row[0]) and len(row) > 1] == ["ok"] * 4
    assert at_the_end(drawn) == {"of": 4, "runs": 4, "running": 0, "to come": 0}
    assert run.wait(timeout=30) == 0


def test_the_time_that_is_left_comes_from_such_runs_and_from_the_campaigns_own(workplace: Workplace) -> None:
    assert workplace.run("run", "small", "--only", "plain-*")[0] == 0
    campaign = open_campaign(workplace.campaigns()[-1])
    runs = [run.run_id for run in campaign.file.plan]
    records = workplace.records()
    totals = [records[name].total_s or 0.0 for name in ("plain-w1/01", "plain-w2/01")]
    note = CommandNote(
        matrix="small",
        started=records["plain-w2/01"].started,
        controller={},
        campaign=campaign.file.name,
        selected=runs,
        todo=runs[1:],
    )
    observer = Observer(campaign, note, Estimates(workplace.root / "results", {}))
    state = observer.look()
    assert (state.done, state.failed, state.to_come, state.running) == (2, 0, 2, [])
    assert [run.run_id for run in state.next] == runs[2:]
    # Neither has been run yet: each counts as the mean of those that have.
    assert state.remaining.seconds == pytest.approx(sum(totals)) and state.remaining.unknown == 0
    known = Estimates(workplace.root / "results", {})
    known.add(records["plain-w1/01"].model_copy(update={"total_s": totals[0] + 50}))
    assert known.of(records["plain-w1/01"].specification) == pytest.approx(totals[0] + 25)
    empty = Observer(open_campaign(campaign.folder), note, Estimates(workplace.root / "nothing", {})).look()
    assert empty.remaining == state.remaining  # from the campaign's own records alone


def test_warm_ups_and_what_is_waited_for_are_shown(workplace: Workplace) -> None:
    workplace.matrix(MATRIX.replace("warm_ups: false", "warm_ups: true"))
    looks = watched(workplace, BUSY, wait_s=60)
    workplace.behaviour(runs={"plain-w2-e1": {"waits": True}})
    run = workplace.start("run", "small")
    watch = watching(workplace, "small")
    line = watch.says("waiting for quiet nodes")
    place, name, waits = line.split(" · ")
    assert "warm-up" in place and place.endswith(" 1") and name.startswith("plain-w2-e1-s1000001-")
    assert re.findall(r"worker\d|\d\.\d", waits)[:3] == ["worker1", "1.4", "0.5"]  # cores busy, and the limit
    beside = looks.with_suffix(".new")
    beside.write_text(json.dumps(QUIET))
    beside.rename(looks)
    watch.says("warm-up plain-w2-e1-s1000001-")
    watch.says("0 of 4 runs done, 0 running, 4 to come")
    (workplace.cluster_folder / "go-on").touch()
    status, said = watch.end()
    assert (status, run.wait(timeout=30)) == (0, 0)
    assert at_the_end(said) == {"of": 4, "runs": 4, "running": 0, "to come": 0}


def test_events_that_cannot_be_kept_are_followed_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_text('{"event": "start", "time": 1.0, "steps_per_epoch": 4}\n')
    progress = Progress(epochs=2)
    follower = Follower(["bash", "-c"], str(tmp_path), progress, tmp_path / "nowhere" / LIVE)
    follower.start()
    wait_until(lambda: follower.fault is not None)
    follower.stop()
    assert follower.fault == os.strerror(errno.ENOENT) and progress.milestone == (0, True, False)


def test_half_a_line_waits_for_its_rest(workplace: Workplace) -> None:
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    campaign = open_campaign(workplace.campaigns()[-1])
    run = campaign.file.plan[0]
    (attempt,) = campaign.attempts(run.run_id)
    start = {"event": "start", "time": 1.0, "epochs": 2, "steps_per_epoch": 4}
    step = {"event": "step", "time": 2.0, "step": 4, "loss": 0.61, "samples_per_s": 210.0}
    told = [start, step | {"epoch": 1}, step | {"epoch": 2, "ranks": [{"rank": 0, "host": "wörker"}]}]
    lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in told)
    attempt.live.write_text(lines[:-5], encoding="utf-8")
    each = LiveRun(attempt, run)
    each.read()
    assert each.progress.step is not None and each.progress.step["epoch"] == 1
    attempt.live.write_text(lines, encoding="utf-8")
    each.read()
    assert each.progress.step["epoch"] == 2 and each.progress.ranks[0]["host"] == "wörker"
    assert silence({"silent_s": 1.0}) == "" and silence({}) == ""


def test_a_note_that_cannot_be_written_is_said_once_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen()
    with NoteWriter(tmp_path / "results", "small", screen) as note:
        (path,) = (tmp_path / "results").iterdir()
        path.unlink()
        path.mkdir()  # a folder in the note's place
        note.begins("20260101T000000Z", [], [])
        screen.status("one", now=True)
        path.rmdir()
    said = capsys.readouterr().out
    assert said.count("`watch`") == 1
    assert not list((tmp_path / "results").iterdir())


def test_what_cannot_be_run_is_counted_apart(workplace: Workplace) -> None:
    workplace.cluster(stacks=["plain"], stacks_missing={"slow": "its packages can't be had here"})
    workplace.behaviour(runs={"plain-w2": {"waits": True}})
    run = workplace.start("run", "small")
    watch = watching(workplace, "small")
    watch.says("1 of 2 runs done, 1 running, 0 to come, 2 not runnable here")
    (workplace.cluster_folder / "go-on").touch()
    status, said = watch.end()
    assert (status, run.wait(timeout=30)) == (0, 0)
    assert at_the_end(said) == {"of": 2, "runs": 2, "running": 0, "to come": 0, "not runnable": 2}
