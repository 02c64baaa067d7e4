"""The playbooks' client of Determined's master: the real SDK, against a stand-in with recorded answers."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from requests.exceptions import SSLError
from trainbed_determined import __main__ as command_line
from trainbed_determined import experiment as experiments
from trainbed_determined import hook as hooks
from trainbed_determined import master as masters
from trainbed_determined.administration import (
    AgentsMissing,
    AnotherPassword,
    Ordinary,
    set_up_users,
    wait_for_agents,
)
from trainbed_determined.experiment import ExperimentError, Runner, unix_time
from trainbed_determined.hook import HookError, hook_files
from trainbed_determined.master import Away, Gone, Master, Refused
from trainbed_determined.results import last_of_each_step
from trainbed_determined.run import run
from trainbed_determined.settings import Settings, SettingsError

from tests.standins.determined import master as standin
from tests.standins.determined import trials

PASSWORD = "Tb1ordinary"
CONFIG: dict[str, Any] = {
    "name": "ddp-w2",
    "labels": ["trainbed", "run-1"],
    "entrypoint": "python3 -m training.launchers.determined",
    "resources": {"slots_per_trial": 2, "resource_pool": "default"},
    "searcher": {"name": "single", "metric": "validation_loss", "smaller_is_better": True},
    "max_restarts": 0,
    "hyperparameters": {},
}


@dataclass
class Place:
    """A stand-in master, a client for it, and what the client said."""

    cluster: standin.Cluster
    settings: Settings
    said: list[str] = field(default_factory=list)

    @property
    def master(self) -> Master:
        return Master(self.settings, self.said.append)

    def agent(self, name: str = "worker1", slots: int = 1) -> None:
        """An agent that offers slots, for as long as the test takes."""
        self.cluster.agents[name] = {"slots": slots, "seen": time.monotonic() + 1e6, "address": "198.18.0.11"}

    def code(self, tmp_path: Path) -> Path:
        folder = tmp_path / "code" / "training"
        folder.mkdir(parents=True)
        (folder / "loop.py").write_text("print('training')\n", encoding="ascii")
        return folder

    def when(self, ready: Callable[[], bool], do: Callable[[], object]) -> None:
        """Do something to the cluster in another thread, once a condition holds."""

        def act() -> None:
            while True:
                with self.cluster.lock:
                    if ready():
                        do()
                        return
                time.sleep(0.01)

        threading.Thread(target=act, daemon=True).start()

    def when_seen(self, state: str, do: Callable[[], object]) -> None:
        """Do something once the client has reported an experiment to be in this state."""
        self.when(lambda: any(f" is {state}." in line for line in self.said), do)

    def ends(self, state: str, number: int = 1) -> None:
        """End an experiment in this state."""
        self.cluster.experiments[number].end(state)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(masters, "ASK_AGAIN", 0.05)
    monkeypatch.setattr(experiments, "POLL_S", 0.02)
    monkeypatch.setattr(experiments, "CLEAN_UP_BEGINS_S", 0.1)
    monkeypatch.setattr(standin, "CLEAN_UP_S", 0.2)
    monkeypatch.setattr(standin, "GAP_S", 0.0)
    cluster = standin.Cluster("Tb1admin")
    cluster.add_user("trainbed", standin.hashed(PASSWORD), admin=False)
    server = standin.serve(cluster, "127.0.0.1", 0)
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n", encoding="ascii")
    settings = Settings(
        master=f"http://127.0.0.1:{server.server_address[1]}",
        certificate=None,
        user="trainbed",
        password_file=file,
        patience_s=1.0,
        queue_limit_s=30.0,
    )
    yield Place(cluster, settings)
    server.shutdown()
    server.server_close()


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_an_experiment_is_followed_to_its_end_and_brought_home(place: Place, tmp_path: Path) -> None:
    place.agent("worker1")
    place.agent("worker2")
    place.when_seen("STARTING", lambda: place.ends("STATE_COMPLETED"))
    out = tmp_path / "out"
    run(place.master, CONFIG, place.code(tmp_path), "run-1", out, place.said.append)
    assert "COMPLETED" in place.said[-1]
    launcher, left = load(out / "launcher.json"), load(out / "determined" / "experiment.json")
    assert launcher["queue_s"] >= 0
    assert launcher["ended"] == unix_time((place.cluster.experiments[1].ended or "").rstrip("Z"))
    assert launcher["notes"] == [] and launcher["standin"] == place.master.standin()
    assert [state for _, state in left["states"]][-2:] == ["STARTING", "COMPLETED"]
    assert left["startup_hooks_s"] == []
    log = place.cluster.experiments[1].log
    assert "assigned" in left and log and (out / "logs" / "trial.log").read_text() == "".join(log)
    (trial,) = left["trials"]
    assert [each["step"] for each in trial["metrics"]["training"]] == [5, 10, 15, 20]
    assert trial["metrics"]["validation"][0]["accuracy"] == 0.5
    assert trial["checkpoints"][0]["metadata"] == {"steps_completed": 5}
    # Its clean-up is left to the command that comes before the next run.
    runner = Runner(place.master, print)
    assert runner.stop_all() == ([], [1])
    runner.wait_until_clean([1])
    assert runner.tasks() == []


def test_a_stand_in_is_told_from_the_real_one_by_its_branding(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = place.master.standin()
    assert said and re.search(
        rf"{re.escape(place.settings.master)} is a stand-in for Determined 0\.38\.1\b", said
    )
    # What becomes of its run is not its stack's doing either.
    out = tmp_path / "out"
    with pytest.raises(Refused):
        run(
            place.master,
            {**CONFIG, "entrypoint": ""},
            place.code(tmp_path),
            "run-1",
            out,
            place.said.append,
            0.1,
        )
    assert load(out / "launcher.json") == {"queue_s": 0.0, "standin": said}
    monkeypatch.setattr(standin, "BRANDING", standin.answer("master")[1]["branding"])
    assert place.master.standin() is None


def test_the_code_is_sent_along_under_its_own_name(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    Runner(place.master, print).submit(CONFIG, place.code(tmp_path), "run-1")
    sent = {file["path"] for file in place.cluster.experiments[1].context}
    assert "training/loop.py" in sent


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the distribution's pip is, beside other wheels."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("pip-23.0.1-py3-none-any.whl", "setuptools-66.1.1-py3-none-any.whl"):
        (folder / name).write_bytes(name.encode())
    monkeypatch.setattr(hooks, "WHEELS", folder)
    return folder


def test_a_startup_hook_is_sent_along_with_pip_and_its_times_come_home(
    place: Place, tmp_path: Path, wheels: Path
) -> None:
    hook, settings, config = (tmp_path / name for name in ("startup-hook.sh", "client.json", "config.json"))
    hook.write_text("echo before\n", encoding="ascii")
    password = {"password_file": str(place.settings.password_file), "certificate": None}
    settings.write_text(json.dumps(vars(place.settings) | password), encoding="utf-8")
    config.write_text(json.dumps(CONFIG), encoding="utf-8")
    place.agent("worker1")
    place.agent("worker2")
    sent: dict[str, bytes] = {}

    def both_say() -> None:
        experiment = place.cluster.experiments[1]
        sent.update({file["path"]: base64.b64decode(file["content"]) for file in experiment.context})
        for seconds in (31.5, 32.25):
            experiment.tell("+ source startup-hook.sh")
            experiment.tell(f"startup-hook.sh took {seconds} s")
        experiment.end("STATE_COMPLETED")

    place.when(lambda: 1 in place.cluster.experiments, both_say)
    run_it = ["run", "--config", str(config), "--code", str(place.code(tmp_path)), "--label", "run-1"]
    run_it += ["--out", str(tmp_path / "out"), "--startup-hook", str(hook)]
    assert command_line.main(["--settings", str(settings), *run_it]) == 0
    assert sent["startup-hook.sh"] == hook.read_bytes() and "training/loop.py" in sent
    (pip,) = (path for path in sent if path.endswith(".whl"))
    assert sent[pip] == (wheels / "pip-23.0.1-py3-none-any.whl").read_bytes()
    assert load(tmp_path / "out/determined/experiment.json")["startup_hooks_s"] == [31.5, 32.25]


def test_a_startup_hook_that_cannot_be_sent_is_told_in_a_sentence(tmp_path: Path, wheels: Path) -> None:
    hook = tmp_path / "startup-hook.sh"
    with pytest.raises(HookError, match=rf"^There is no {re.escape(str(hook))}: `make provision` writes it"):
        hook_files(hook)
    hook.touch()
    (wheels / "pip-25.1-py3-none-any.whl").touch()
    with pytest.raises(HookError, match=r"there is pip-23\.0\.1\S+ and pip-25\.1"):
        hook_files(hook)
    for wheel in wheels.glob("pip-*"):
        wheel.unlink()
    with pytest.raises(HookError, match=r"there is none: .* python3-venv brings it"):
        hook_files(hook)


def test_an_experiment_that_is_there_is_gone_on_with(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    code = place.code(tmp_path)
    first = Runner(place.master, print).submit(CONFIG, code, "run-1")
    again = Runner(place.master, place.said.append).submit(CONFIG, code, "run-1")
    assert (first, again, len(place.cluster.experiments)) == (1, 1, 1)
    there, _ = place.said
    assert "Experiment 1 " in there and "STARTING" in there


def test_an_answer_lost_on_its_way_leaves_no_second_experiment(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    runner = Runner(place.master, place.said.append)
    runner.tasks()  # logs in

    def created_but_not_said() -> tuple[int, Any] | None:
        cluster = place.cluster
        cluster.experiments[1] = standin.Experiment(1, CONFIG, [], "trainbed")
        return 0, None

    place.cluster.faults += [lambda: None, created_but_not_said]
    assert runner.submit(CONFIG, place.code(tmp_path), "run-1") == 1
    assert len(place.cluster.experiments) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"resources": {"slots_per_trial": 9}}, "slots requested exceeds cluster capacity"),
        ({"max_length": 3}, 'additionalProperties "max_length" not allowed'),
        ({"entrypoint": ""}, "managed experiments require entrypoint"),
        ({"resources": {"slots_per_trial": 1, "resource_pool": "gpu"}}, "resource pool gpu does not exist"),
        (
            {"searcher": {"name": "adaptive_asha", "metric": "validation_loss"}},
            "requires `max_time` and `time_metric`",
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_not_tried_again(
    place: Place, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    # The master answers 500 to most of these, as it does while its database is down.
    place.agent(slots=2)
    with pytest.raises(Refused, match="experiment:") as refused:
        Runner(place.master, place.said.append).submit({**CONFIG, **change}, place.code(tmp_path), "run-1")
    assert says in str(refused.value)
    assert place.said == [] and not place.cluster.experiments


@pytest.mark.parametrize("limits", [(0.2, None), (600.0, 0.2)])  # from the settings, and for the run itself
def test_who_waits_too_long_for_slots_is_killed_and_told_who_has_them(
    place: Place, tmp_path: Path, limits: tuple[float, float | None]
) -> None:
    place.agent(slots=2)
    place.cluster.experiments[1] = standin.Experiment(
        1, {**CONFIG, "labels": []}, [], "somebody", "STATE_RUNNING", agents=["worker1", "worker1"]
    )
    place.settings = Settings(**{**vars(place.settings), "queue_limit_s": limits[0]})
    out = tmp_path / "out"
    with pytest.raises(ExperimentError) as given_up:
        run(place.master, CONFIG, place.code(tmp_path), "run-1", out, place.said.append, limits[1])
    (holder,) = [task for task in Runner(place.master, print).tasks() if "(Experiment 2)" not in task]
    for token in ("Experiment 2 ", " 2 slots ", " 0 s ", holder):
        assert token in str(given_up.value)
    assert place.cluster.experiments[2].state == "STATE_CANCELED"
    assert place.cluster.experiments[1].state == "STATE_RUNNING"
    assert load(out / "determined" / "experiment.json")["tasks_of_others"] == [holder]
    assert any(holder in note for note in load(out / "launcher.json")["notes"])


def test_an_experiment_in_error_says_what_its_log_names(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    error = "ValueError: the training is broken"

    def fail() -> None:
        place.cluster.experiments[1].tell(error)
        place.ends("STATE_ERROR")

    place.when_seen("STARTING", fail)
    with pytest.raises(ExperimentError, match=rf"\bERROR \({error}\).*trial\.log"):
        run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)
    assert load(tmp_path / "out" / "launcher.json")["queue_s"] >= 0


def test_one_that_somebody_ends_is_no_success(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    place.when_seen("STARTING", lambda: place.ends("STATE_CANCELED"))
    with pytest.raises(ExperimentError, match=r"\b1\b.*\bCANCELED\b"):
        run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)


def test_one_that_somebody_deletes_is_said_to_be_gone(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    place.when_seen("STARTING", lambda: place.cluster.experiments.pop(1))
    with pytest.raises(Gone, match=r"\b1\b.*\bdeleted\b"):
        run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)


def test_a_pause_stands_in_the_record(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)

    def pause() -> None:
        place.cluster.experiments[1].state = "STATE_PAUSED"
        place.when_seen("PAUSED", lambda: place.ends("STATE_COMPLETED"))

    place.when_seen("STARTING", pause)
    run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)
    (note,) = load(tmp_path / "out" / "launcher.json")["notes"]
    states = load(tmp_path / "out" / "determined" / "experiment.json")["states"]
    assert [state for _, state in states][-2:] == ["PAUSED", "COMPLETED"] and "paused" in note


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda: standin.answer("database-down"), id="the database is away"),
        pytest.param(lambda: (0, None), id="the connection breaks"),
        pytest.param(lambda: (503, {"message": "starting"}), id="the master is starting"),
    ],
)
def test_a_master_that_is_away_for_a_moment_is_asked_again(
    place: Place, tmp_path: Path, fault: Callable[[], Any]
) -> None:
    place.agent(slots=2)

    def away() -> None:
        place.cluster.faults += [fault] * 4
        place.when(lambda: not place.cluster.faults, lambda: place.ends("STATE_COMPLETED"))

    place.when_seen("STARTING", away)
    master = place.master
    run(master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)
    (absence,) = master.absences
    lost, back = (line for line in place.said if "master" in line)
    assert place.settings.master in lost and f" {absence:.0f} s" in back
    (note,) = load(tmp_path / "out" / "launcher.json")["notes"]
    assert "master" in note and f" {absence:.0f} s " in note


def test_a_master_that_stays_away_ends_the_wait(place: Place) -> None:
    place.cluster.faults += [lambda: standin.answer("database-down")] * 1000
    why = re.escape(standin.answer("database-down")[1]["error"]["error"])
    with pytest.raises(Away, match=rf"\b1 s\b.*{why}.*\bdetermined-master\b"):
        Runner(place.master, place.said.append).tasks()


def test_nobody_listening_is_said_so(place: Place) -> None:
    settings = Settings(**{**vars(place.settings), "master": "http://127.0.0.1:9", "patience_s": 0.2})
    with pytest.raises(Away, match=r"http://127\.0\.0\.1:9\b"):
        Runner(Master(settings, place.said.append), print).tasks()


def test_a_token_that_expires_is_renewed(place: Place) -> None:
    master = place.master
    runner = Runner(master, print)
    assert runner.tasks() == []
    place.cluster.tokens.clear()
    assert runner.tasks() == []


def test_one_login_serves_several_commands(place: Place, tmp_path: Path) -> None:
    kept = tmp_path / "token"
    kept.touch()
    place.settings = replace(place.settings, token_file=kept)
    for _ in range(2):
        assert Runner(place.master, print).tasks() == []
        assert kept.read_text().split() == ["trainbed", *place.cluster.tokens]
    # One that the master does not know, as after a restored database, is replaced.
    first = kept.read_text()
    place.cluster.tokens.clear()
    assert Runner(place.master, print).tasks() == []
    assert kept.read_text() != first and kept.read_text().split() == ["trainbed", *place.cluster.tokens]
    # That of another user, and what is no token, are not used.
    for content in ("ada x\n", "trainbed a\u00e4\n", "trainbed a b\n", "x"):
        kept.write_text(content, encoding="utf-8")
        assert Runner(place.master, print).tasks() == []
        assert kept.read_text().split()[1] in place.cluster.tokens
    kept.unlink()
    kept.mkdir()
    with pytest.raises(SettingsError, match=re.escape(str(kept))):
        Runner(place.master, print).tasks()


def test_a_password_that_is_not_accepted_is_said_with_its_file(place: Place) -> None:
    place.settings.password_file.write_text("another", encoding="ascii")
    file = re.escape(str(place.settings.password_file))
    with pytest.raises(Refused, match=rf"\btrainbed\b.*{file}"):
        Runner(place.master, print).tasks()


def test_slots_that_are_not_there_yet_are_waited_for(place: Place, tmp_path: Path) -> None:
    # The master would refuse the experiment: agents reconnect some seconds after the master starts.
    place.agent("worker1")
    place.when(lambda: bool(place.said), lambda: place.agent("worker2"))
    place.when_seen("STARTING", lambda: place.ends("STATE_COMPLETED"))
    run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)
    assert re.findall(r"\d+", place.said[0]) == ["1", "2", "90"]  # slots there and asked for, seconds


def test_slots_that_never_come_are_refused_with_the_masters_words(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "SLOTS_WITHIN_S", 0.1)
    place.agent("worker1")
    words = re.escape(standin.answer("create-too-many-slots")[1]["error"]["error"])
    with pytest.raises(Refused, match=words):
        run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)


def test_a_stream_that_breaks_is_asked_for_again(place: Place, tmp_path: Path) -> None:
    place.agent(slots=2)
    why = "sql: database is closed"
    broken = [{"error": {"grpcCode": 13, "httpCode": 500, "message": why, "httpStatus": "x"}}]

    def ends_badly() -> None:
        place.ends("STATE_COMPLETED")
        # The experiment's state, the lists of its trials and results, and then the first stream.
        place.cluster.faults += [lambda: None] * 5 + [lambda: (200, broken)]

    place.when_seen("STARTING", ends_badly)
    run(place.master, CONFIG, place.code(tmp_path), "run-1", tmp_path / "out", place.said.append)
    assert not place.cluster.faults
    assert any(why in line for line in place.said), place.said


def test_the_certificate_is_checked(place: Place, tmp_path: Path) -> None:
    def certificate(name: str) -> tuple[Path, Path]:
        files = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
        key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
        extensions = "-addext subjectAltName=IP:127.0.0.1 -addext keyUsage=digitalSignature,keyCertSign"
        files_of_it = ["-out", str(files[0]), "-keyout", str(files[1]), "-subj", f"/CN={name}"]
        command = ["openssl", "req", "-x509", *key.split(), *extensions.split(), *files_of_it]
        subprocess.run(command, check=True, capture_output=True)
        return files

    (own, key), (foreign, _) = certificate("own"), certificate("foreign")
    server = standin.serve(place.cluster, "127.0.0.1", 0, str(own), str(key))
    address = f"https://127.0.0.1:{server.server_address[1]}"
    settings = vars(place.settings) | {"master": address}
    assert Runner(Master(Settings(**settings | {"certificate": own}), print), print).tasks() == []
    with pytest.raises(Refused, match="certificate") as refused:
        Runner(Master(Settings(**settings | {"certificate": foreign}), print), print).tasks()
    assert isinstance(refused.value.__cause__, SSLError)
    server.shutdown()
    server.server_close()


def test_experiments_of_matrices_are_ended_and_no_others(place: Place) -> None:
    for number, labels in enumerate((["trainbed", "a"], ["mine"], ["trainbed", "b"]), start=1):
        place.cluster.experiments[number] = standin.Experiment(
            number, {**CONFIG, "labels": labels}, [], "somebody", "STATE_RUNNING", agents=["worker1"]
        )
    place.cluster.experiments[3].state = "STATE_COMPLETED"
    place.cluster.experiments[3].ended = trials.now()
    assert Runner(place.master, place.said.append).stop_all() == ([1], [3])
    assert [each.state for each in place.cluster.experiments.values()] == [
        "STATE_CANCELED",
        "STATE_RUNNING",
        "STATE_COMPLETED",
    ]
    place.cluster.experiments[3].ended = "2026-11-21T10:10:36.529505Z"
    assert Runner(place.master, place.said.append).stop_all() == ([], [1])


def test_everybodys_experiments_are_ended_if_that_is_asked_for_but_paused_ones_stay(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = ["STATE_RUNNING", "STATE_QUEUED", "STATE_PAUSED", "STATE_COMPLETED"]
    for number, state in enumerate(states, start=1):
        config = {**CONFIG, "labels": ["mine"]}
        place.cluster.experiments[number] = standin.Experiment(
            number, config, [], "somebody", state, agents=["worker1"]
        )
    settings = tmp_path / "client.json"
    content = {"password_file": str(place.settings.password_file), "certificate": None}
    settings.write_text(json.dumps({**vars(place.settings), **content}), encoding="utf-8")
    assert command_line.main(["--settings", str(settings), "stop"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["changed"] is False and "is a stand-in for Determined" in said["standin"]
    assert command_line.main(["--settings", str(settings), "stop", "--all"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is True
    ended = ["STATE_CANCELED", "STATE_CANCELED", "STATE_PAUSED", "STATE_COMPLETED"]
    assert [each.state for each in place.cluster.experiments.values()] == ended


def test_the_clean_up_of_an_experiment_is_waited_for_and_that_of_others_is_not(place: Place) -> None:
    cleaning = next(iter(standin.answer("tasks-after")[1]["allocationIdToSummary"].values()))
    place.cluster.foreign["x"] = {**cleaning, "name": "Checkpoint GC (Experiment 11)"}
    asked: list[int] = []

    def count() -> None:
        asked.append(1)
        if len(asked) == 3:
            del place.cluster.foreign["y"]

    ended = standin.Experiment(1, CONFIG, [], "trainbed", "STATE_COMPLETED", agents=["worker1"])
    ended.ended = trials.now()
    place.cluster.experiments[1] = ended
    runner = Runner(place.master, print)
    runner.wait_until_clean([1])
    place.cluster.foreign["y"] = {**cleaning, "name": "Checkpoint GC (Experiment 1)"}
    place.cluster.faults += [count] * 3
    runner.wait_until_clean([1])
    assert "y" not in place.cluster.foreign and not place.cluster.faults


def test_a_task_that_stays_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "CLEANED_WITHIN_S", 0.2)
    cleaning = next(iter(standin.answer("tasks-after")[1]["allocationIdToSummary"].values()))
    name = "Checkpoint GC (Experiment 1)"
    place.cluster.foreign["x"] = {**cleaning, "name": name}
    ended = standin.Experiment(1, CONFIG, [], "trainbed", "STATE_COMPLETED", agents=["worker1"])
    ended.ended = trials.now()
    place.cluster.experiments[1] = ended
    with pytest.raises(ExperimentError, match=re.escape(name)):
        Runner(place.master, print).wait_until_clean([1])


def test_what_a_restarted_trial_reports_twice_counts_once() -> None:
    class Report:
        def __init__(self, run: int, step: int, loss: float) -> None:
            self.trial_run_id, self.steps_completed, self.metrics = run, step, {"loss": loss}

    class Trial:
        def iter_metrics(self, group: str) -> list[Report]:
            assert group == "training"
            return [Report(1, 5, 0.5), Report(1, 10, 0.4), Report(2, 10, 0.3), Report(2, 15, 0.2)]

    assert last_of_each_step(Trial(), "training") == [  # type: ignore[arg-type]
        {"step": 5, "run": 1, "loss": 0.5},
        {"step": 10, "run": 2, "loss": 0.3},
        {"step": 15, "run": 2, "loss": 0.2},
    ]


def test_blank_passwords_are_closed_and_the_ordinary_user_is_made(place: Place) -> None:
    place.cluster.users["admin"]["password"] = ""
    admin = Settings(**{**vars(place.settings), "user": "admin"})
    wanted = Ordinary("someone", "Tb1someone", 6100, "someone")

    def set_up() -> bool:
        return set_up_users(Master(admin, print), "Tb1admin", wanted)

    assert set_up() is True
    users = place.cluster.users
    assert users["admin"]["password"] == standin.hashed("Tb1admin")
    assert users["determined"]["password"] not in ("", standin.hashed("Tb1admin"))
    assert users["someone"]["user"]["admin"] is False
    assert users["someone"]["user"]["agentUserGroup"]["agentUid"] == 6100
    assert set_up() is False
    users["determined"]["password"] = ""
    users["someone"]["password"] = standin.hashed("forgotten")
    assert set_up() is True
    assert users["someone"]["password"] == standin.hashed("Tb1someone")
    assert users["determined"]["password"] != ""


def test_an_administrator_with_another_password_is_left_alone(place: Place) -> None:
    admin = Settings(**{**vars(place.settings), "user": "admin"})
    with pytest.raises(AnotherPassword, match="determined_reset_password=true"):
        set_up_users(Master(admin, print), "Tb1wrong", Ordinary("x", "Tb1xxxxx", 6100, "x"))
    assert place.cluster.users["admin"]["password"] == standin.hashed("Tb1admin")
    assert list(place.cluster.users) == ["admin", "determined", "trainbed"]


def test_another_password_has_an_exit_code_of_its_own_and_one_sentence(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def written(user: str, password: str) -> str:
        (tmp_path / f"{user}-password").write_text(f"{password}\n", encoding="ascii")
        content = {"user": user, "password_file": str(tmp_path / f"{user}-password"), "certificate": None}
        (tmp_path / f"{user}.json").write_text(json.dumps({**vars(place.settings), **content}))
        return str(tmp_path / f"{user}.json")

    def users() -> int:
        ordinary = ["--ordinary", written("trainbed", PASSWORD), "--uid", "6100", "--group", "trainbed"]
        return command_line.main(["--settings", str(tmp_path / "admin.json"), "users", *ordinary])

    written("admin", "Tb1lost")
    assert users() == 4
    found = capsys.readouterr()
    assert found.out == ""
    (line,) = found.err.splitlines()
    assert f"than the one in {tmp_path}/admin-password" in line
    assert line.endswith("make provision ARGS='-e determined_reset_password=true'.")
    place.cluster.set_password("admin", standin.hashed("Tb1lost"))
    assert users() == 0
    assert json.loads(capsys.readouterr().out) == {"changed": True}


def test_agents_are_waited_for_and_missing_ones_are_named(place: Place) -> None:
    place.agent("worker1")
    place.when(lambda: bool(place.said), lambda: place.agent("worker2"))
    wait_for_agents(place.master, {"worker1": 1, "worker2": 1}, 5, place.said.append)
    (line,) = place.said
    assert "worker2" in line and "worker1" not in line
    with pytest.raises(AgentsMissing, match=r"\bworker1\D+1\D+2\D+\bworker3\b"):
        wait_for_agents(place.master, {"worker1": 2, "worker3": 1}, 0, print)


def test_what_misleads_the_sdk_is_put_out_of_its_way(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/company.pem")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert Runner(place.master, print).tasks() == []
    assert "REQUESTS_CA_BUNDLE" not in os.environ


def test_the_command_says_in_one_line_what_is_wrong(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "client.json"
    assert command_line.main(["--settings", str(settings), "agents", "worker1=1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{SettingsError.__name__}: {settings} ") and os.strerror(errno.ENOENT) in line
    assert command_line.main(["--settings", str(settings), "stop"]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{settings} ")
    content = {
        **vars(place.settings),
        "password_file": str(place.settings.password_file),
        "certificate": None,
    }
    settings.write_text(json.dumps(content), encoding="utf-8")
    assert command_line.main(["--settings", str(settings), "stop"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False
    away = content | {"master": "http://127.0.0.1:9"}
    monkeypatch.setattr(command_line, "STOP_PATIENCE_S", 0.1)
    settings.write_text(json.dumps(away), encoding="utf-8")
    assert command_line.main(["--settings", str(settings), "stop"]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("Determined's master at http://127.0.0.1:9 ")
    settings.write_text(json.dumps(content), encoding="utf-8")
    place.settings.password_file.write_text("Tb1another")
    assert command_line.main(["--settings", str(settings), "stop"]) == 5
    assert "does not let trainbed in" in capsys.readouterr().err
    place.settings.password_file.unlink()
    assert command_line.main(["--settings", str(settings), "stop"]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert str(place.settings.password_file) in line
