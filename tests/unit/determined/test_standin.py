"""The stand-in itself: it does with trials, agents and its database what the real 0.38.1 was seen to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.standins.determined import agent as agents
from tests.standins.determined import master as standin
from tests.standins.determined import packages
from tests.standins.determined.trials import Experiment, hyperparameters

CONFIG: dict[str, Any] = {
    "entrypoint": "python3 -m determined.launch.torch_distributed -- python3 -m training",
    "resources": {"slots_per_trial": 2},
    "searcher": {"name": "single"},
    "environment": {"image": "image", "environment_variables": ["A=1"]},
    "bind_mounts": [],
    "max_restarts": 0,
}
SPACE = {
    "learning_rate": {"type": "log", "base": 10, "minval": -4.0, "maxval": -2.5},
    "warmup_steps": {"type": "int", "minval": 10, "maxval": 60},
    "model": {"layers": {"type": "categorical", "vals": [1, 2]}},
    "seed": 3,
}
#: Docker, with containers that are files: `running`, or what they ended with.
DOCKER = """\
#!{python}
import pathlib, sys
folder, (verb, *rest) = pathlib.Path({folder!r}), sys.argv[1:]
file = folder / rest[-1]
if verb == "run":
    name = rest[rest.index("--name") + 1]
    (folder / name).write_text("running")
    (folder.parent / "commands").open("a").write(" ".join(rest) + "\\n")
elif verb == "ps":
    print("\\n".join(sorted(each.name for each in folder.iterdir())))
elif verb == "rm":
    file.unlink(missing_ok=True)
elif not file.exists():
    sys.exit(1)
elif verb == "inspect":
    content = file.read_text()
    print("true 0" if content == "running" else "false " + content)
else:
    print("printed by", file.name)
"""


class Place:
    """A stand-in cluster, with agents that a test speaks for."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.cluster = standin.Cluster("Tb1admin", self.kept.__setitem__)
        self.handler = object.__new__(standin.Handler)
        self.handler.cluster = self.cluster

    def report(
        self, name: str, *running: str, fresh: bool = False, ended: dict[str, int] | None = None
    ) -> dict[str, Any]:
        """What an agent with one slot is told to run, after a report."""
        codes = {key: {"status": code, "log": [f"ended with {code}"]} for key, code in (ended or {}).items()}
        _, answer = self.handler._agent(
            {
                "id": name,
                "slots": 1,
                "address": f"address of {name}",
                "fresh": fresh,
                "running": list(running),
                "ended": codes,
                "gone": {},
            }
        )
        work: dict[str, Any] = answer["run"]
        return work

    def both(self, *running: str, **more: Any) -> None:
        """The same report of both agents."""
        for name in ("worker1", "worker2"):
            self.report(name, *running, **more)

    def submit(self, **changed: Any) -> Experiment:
        """A new experiment."""
        status, answer = self.handler._create("trainbed", {"config": json.dumps(CONFIG | changed)})
        assert status == 200
        return self.cluster.experiments[answer["experiment"]["id"]]

    def time_passes(self) -> None:
        """What waits for its next run may have it."""
        for each in self.cluster.experiments.values():
            for trial in each.trials:
                trial.not_before = 0.0
        self.cluster.schedule()

    def started_again(self) -> None:
        """The master ends, and another process of it finds what was stored."""
        rows = [text for name, text in sorted(self.kept.items()) if name.startswith(standin.KEPT)]
        self.cluster = self.handler.cluster = standin.Cluster("Tb1admin", self.kept.__setitem__)
        self.cluster.restore(self.kept["users"], f"[{','.join(rows)}]")


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def running(place: Place) -> tuple[Place, Experiment]:
    """An experiment whose first run is under way on two agents."""
    place.both(fresh=True)
    each = place.submit()
    place.both()
    assert each.state == "STATE_STARTING"
    place.both("1.1")
    assert each.state == "STATE_RUNNING"
    return place, each


def shown(place: Place) -> dict[str, Any]:
    """The first trial as the API shows it, with the number of the run that its metrics are of."""
    each = place.cluster.experiments[1]
    trial = each.trials[0]
    (metrics,) = {one["trialRunId"] for one in standin.metrics_of(trial, "training")[1]["result"]["metrics"]}
    return standin.trial_shown(trial) | {"run": metrics}


def test_a_run_whose_container_is_gone_is_begun_again_which_is_no_restart(
    running: tuple[Place, Experiment],
) -> None:
    place, each = running
    # A node that boots anew: its agent is another process, and knows of no container.
    assert place.report("worker2", fresh=True) == {}
    assert each.state == "STATE_QUEUED"
    place.time_passes()
    assert each.state == "STATE_STARTING"
    again = place.report("worker1", "1.1")
    assert list(again) == ["1.2"]  # so the container of the first run is removed there
    place.both("1.2")
    assert each.state == "STATE_RUNNING"
    log = "".join(each.log)
    assert "container is gone on reattachment" in log and log.count("was assigned to an agent") == 2
    found = shown(place)
    assert (found["restarts"], found["run"]) == (0, 2)
    place.both(ended={"1.2": 0})
    assert each.state == "STATE_COMPLETED"


def test_an_agent_that_comes_back_to_its_running_container_loses_nothing(
    running: tuple[Place, Experiment],
) -> None:
    place, each = running
    assert place.report("worker2", "1.1", fresh=True) == {"1.1": None}
    assert each.state == "STATE_RUNNING" and each.trials[0].run == 1


def test_a_run_on_an_agent_that_stays_away_is_begun_again(
    running: tuple[Place, Experiment],
) -> None:
    place, each = running
    place.cluster.agents["worker2"]["seen"] -= standin.AGENT_FORGOTTEN_S
    place.report("worker1", "1.1")
    assert each.state == "STATE_QUEUED" and "agent failed" in "".join(each.log)
    place.both()
    place.time_passes()
    assert each.trials[0].run == 2 and each.trials[0].restarts == 0


@pytest.mark.parametrize("allowed", [0, 1])
def test_an_error_of_its_own_is_a_restart_if_one_is_allowed(place: Place, allowed: int) -> None:
    place.both(fresh=True)
    each = place.submit(max_restarts=allowed)
    place.both()
    place.report("worker1", ended={"1.1": 1})
    place.report("worker2", ended={"1.1": 0})
    place.time_passes()
    assert each.state == ("STATE_STARTING" if allowed else "STATE_ERROR")
    assert (each.trials[0].restarts, each.trials[0].run) == (allowed, allowed + 1)
    assert "ended with 1" in "".join(each.log)


def test_a_master_that_comes_back_goes_on_with_what_ran(running: tuple[Place, Experiment]) -> None:
    place, before = running
    place.started_again()
    each = place.cluster.experiments[1]
    assert each.state == "STATE_RUNNING" and each.log[:-1] == before.log and "Restoring" in each.log[-1]
    assert place.report("worker1", "1.1") == {"1.1": None}
    assert place.report("worker2", "1.1", fresh=True) == {"1.1": None}
    place.both(ended={"1.1": 0})
    assert each.state == "STATE_COMPLETED" and each.trials[0].run == 1
    place.started_again()
    assert place.cluster.experiments[1].state == "STATE_COMPLETED"
    place.both()
    assert place.submit().id == 2


def test_agents_that_do_not_come_back_to_a_master_that_did_are_given_up(
    running: tuple[Place, Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = running
    place.started_again()
    place.report("worker1", "1.1")
    assert place.cluster.experiments[1].state == "STATE_RUNNING"
    monkeypatch.setattr(standin, "AGENT_FORGOTTEN_S", 0.0)
    place.cluster.schedule()
    assert place.cluster.experiments[1].state == "STATE_QUEUED"


def test_what_cannot_be_stored_is_not_created(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.both(fresh=True)

    def away(_name: str, _text: str) -> None:
        raise subprocess.CalledProcessError(2, "psql", stderr="connection refused")

    monkeypatch.setattr(place.cluster, "_keep", away)
    answer = place.handler._create("trainbed", {"config": json.dumps(CONFIG)})
    assert answer == standin.answer("database-down") and place.cluster.experiments == {}


def test_a_search_makes_trials_with_hyperparameters_of_their_own(place: Place) -> None:
    place.both(fresh=True)
    first = place.submit()
    first.end("STATE_CANCELED")
    searcher = {"name": "adaptive_asha", "max_trials": 3, "max_time": 9, "time_metric": "batches"}
    limits = {"slots_per_trial": 1, "max_slots": 1}
    each = place.submit(searcher=searcher, hyperparameters=SPACE, resources=limits)
    assert [trial.id for trial in each.trials] == [2, 3, 4]
    for code in (1, 0, 0):
        (name, work), *others = [
            (name, work) for name in ("worker1", "worker2") if (work := place.report(name))
        ]
        assert not others  # max_slots
        ((key, told),) = work.items()
        trial = next(trial for trial in each.trials if trial.key == key)
        assert json.loads(told["environment"]["DET_HPARAMS"]) == trial.hparams
        place.report(name, key)
        assert each.state == "STATE_RUNNING"
        place.report(name, ended={key: code})
    assert [trial.state for trial in each.trials] == ["STATE_ERROR", "STATE_COMPLETED", "STATE_COMPLETED"]
    assert each.state == "STATE_COMPLETED"
    answered = place.handler._of(each, "trials")[1]["trials"]
    assert len({json.dumps(trial["hparams"]) for trial in answered}) == 3
    kept = [standin.checkpoints_of(each, trial)[1]["checkpoints"] for trial in each.trials]
    assert len({checkpoint["uuid"] for found in kept for checkpoint in found}) == sum(map(len, kept))


def test_a_search_of_which_every_trial_fails_is_an_error(place: Place) -> None:
    place.both(fresh=True)
    each = place.submit(searcher={"name": "random", "max_trials": 2})
    for key in ("1.1", "2.1"):
        place.both()
        place.both(ended={key: 1})
    assert each.state == "STATE_ERROR"


def test_points_of_a_search_are_within_its_space_and_the_same_for_a_seed() -> None:
    config = {"hyperparameters": SPACE, "searcher": {"name": "random", "max_trials": 20}}
    drawn = hyperparameters(config, 1)
    assert len(drawn) == 20 and drawn == hyperparameters(config, 1) != hyperparameters(config, 2)
    for point in drawn:
        assert 1e-4 <= point["learning_rate"] <= 10**-2.5 and 10 <= point["warmup_steps"] <= 60
        assert point["model"]["layers"] in (1, 2) and point["seed"] == 3
    few = {"warmup_steps": {"type": "int", "minval": 10, "maxval": 30, "count": 3}, "model": SPACE["model"]}
    grid = hyperparameters({"hyperparameters": few, "searcher": {"name": "grid"}}, 1)
    assert [(point["warmup_steps"], point["model"]["layers"]) for point in grid] == [
        (steps, layers) for steps in (10, 20, 30) for layers in (1, 2)
    ]


def test_an_agent_takes_up_its_containers_and_tells_what_they_ended_with(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    containers = tmp_path / "containers"
    containers.mkdir()
    program = tmp_path / "docker"
    program.write_text(DOCKER.format(python=sys.executable, folder=str(containers)), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(agents, "WORK", tmp_path / "work")
    server = standin.serve(place.cluster, "127.0.0.1", 0)
    settings = {"master_host": "127.0.0.1", "master_port": server.server_address[1], "agent_id": "worker1"}

    def started() -> agents.Agent:
        agent = agents.Agent(settings)
        agent.exchange()
        return agent

    agent = started()
    each = place.submit(resources={"slots_per_trial": 1})
    agent.exchange()
    (container,) = containers.iterdir()
    assert container.name == "determined-standin-1.1"
    command = (tmp_path / "commands").read_text(encoding="utf-8")
    assert agents.ENTRYPOINT in command
    assert "torchrun --nnodes=1" in command and "--env DET_TRIAL_RUN_ID=1" in command

    agent = started()  # killed, and started by systemd
    assert each.state == "STATE_RUNNING" and each.trials[0].run == 1

    container.write_text("137", encoding="ascii")  # a boot ends all containers
    started()
    assert each.state == "STATE_QUEUED" and "printed by determined-standin-1.1" in "".join(each.log)
    place.time_passes()
    agent = started()
    (container,) = containers.iterdir()
    assert container.name == "determined-standin-1.2"

    container.write_text("1", encoding="ascii")
    agent.exchange()
    assert each.state == "STATE_ERROR" and not list(containers.iterdir())
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("hook", "ends", "lines"),
    [
        (None, 0, ["+ test -f startup-hook.sh", "+ set +x"]),
        (
            "export FOUND=there\n",
            0,
            [
                "+ test -f startup-hook.sh",
                "+ source startup-hook.sh",
                "++ export FOUND=there",
                "++ FOUND=there",
                "+ set +x",
            ],
        ),
        ("false\n", 1, ["+ test -f startup-hook.sh", "+ source startup-hook.sh", "++ false"]),
    ],
)
def test_a_container_sources_the_hook_of_its_context_before_its_ranks_start(
    tmp_path: Path, hook: str | None, ends: int, lines: list[str]
) -> None:
    if hook is not None:
        (tmp_path / "startup-hook.sh").write_text(hook, encoding="ascii")
    rank = ["sh", "-c", 'echo "rank $FOUND $1"', "sh", "with words"]
    done = subprocess.run(
        ["bash", "-c", agents.ENTRYPOINT, "bash", *rank],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ends and done.stderr.splitlines() == lines
    printed = f"rank {'there' if hook else ''} with words\n"
    assert done.stdout == ("" if ends else printed)
    # Without a hook, line for line as a real one's log was recorded.
    recorded = [each["result"]["log"].rstrip() for each in standin.answer("trial-completed-logs")[1]]
    assert hook is not None or set(lines) <= set(recorded)


def test_packages_are_the_same_unless_another_build_is_wanted(tmp_path: Path) -> None:
    first, same, other = (
        packages.build(tmp_path / name, variant) for name, variant in (("a", ""), ("b", ""), ("c", "other"))
    )
    for kind in ("master", "agent"):
        name = f"determined-{kind}_{packages.VERSION}_linux_amd64.deb"
        assert (first / name).read_bytes() == (same / name).read_bytes() != (other / name).read_bytes()
    # The programs find their modules where the packages put them.
    subprocess.run(
        [
            "dpkg-deb",
            "-x",
            first / f"determined-master_{packages.VERSION}_linux_amd64.deb",
            tmp_path / "root",
        ],
        check=True,
    )
    code = "from tests.standins.determined import master; print(master.__file__, master.answer('info')[0])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "root/usr/share/determined-standin/master")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        str(tmp_path / "root/usr/share/determined-standin/master/tests/standins/determined/master.py"),
        "200",
    ]
