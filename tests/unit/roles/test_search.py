"""What a search submits, and the role that does it here, with stand-ins for systemd and the master."""

from __future__ import annotations

import copy
import json
import os
import pwd
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainbed_determined.search import PROGRESS

from experiments.campaign import searching
from experiments.records.search import SearchProgress
from tests.standins import systemd
from tests.standins.determined import master as standin
from tests.unit.determined.search_answers import SearchHandler, Trial
from tests.unit.roles.loading import ROOT, played_here, value_of
from training.bits import PORTABLE

VARS = "roles/determined/vars/main.yml"
GIVEN: dict[str, Any] = {
    "search_label": "adaptive_asha-20261126T100000Z",
    "search_run_id": "ddp-w2-e2-s1-64f1d056",
    "search_spec": {
        "work": {"workers": 2, "slots_per_worker": 3, "seed": 7, "epochs": 2, "evaluate_every_epochs": 1},
        "conditions": {"threads": 4, "rank_environment": {"NCCL_IB_DISABLE": "0"}},
    },
    "search_dir": "/srv/shared/searches/s",
    "search_out": "/srv/shared/searches/s/out",
    "search_launch_dir": "/var/lib/trainbed/launches/searches/s",
    "search_data": "/var/lib/trainbed/data/d",
    "determined_checkpoints": "/srv/shared/determined",
    "determined_images": {"worker1": "master:5000/trainbed@sha256:abc"},
}


def experiment(wanted: dict[str, Any]) -> Any:
    return value_of("determined_search_experiment", VARS, **GIVEN, search_wanted=wanted)


def test_the_run_decides_what_the_search_leaves_open() -> None:
    wanted = yaml.safe_load((ROOT / "experiments/search/adaptive_asha.yml").read_text(encoding="utf-8"))
    made = experiment(wanted)
    assert made["resources"] == {"slots_per_trial": 6, "max_slots": 2}
    assert made["reproducibility"] == {"experiment_seed": 7}
    assert made["searcher"] == wanted["searcher"] and "max_time" not in made["searcher"]
    assert made["hyperparameters"] == wanted["hyperparameters"] and made["max_restarts"] == 1
    assert made["entrypoint"].split("--spec ")[1] == (
        "/srv/shared/searches/s/spec.json --data /var/lib/trainbed/data/d --out /srv/shared/searches/s/out"
    )
    assert made["environment"]["image"] == "master:5000/trainbed@sha256:abc"
    assert {"OMP_NUM_THREADS=4", "NCCL_IB_DISABLE=0"} <= set(made["environment"]["environment_variables"])


@pytest.mark.parametrize(("bits", "pinned"), [("portable", True), ("machine", False)])
def test_the_kernels_that_training_pins_are_pinned_by_the_role(bits: str, pinned: bool) -> None:
    given = copy.deepcopy(GIVEN)
    given["search_spec"]["conditions"]["bits"] = bits
    made = value_of("determined_search_experiment", VARS, **given, search_wanted={})
    wanted = {f"{name}={value}" for name, value in PORTABLE.items()}
    assert (wanted & set(made["environment"]["environment_variables"])) == (wanted if pinned else set())


def test_a_search_is_found_by_its_labels_whatever_its_file_says() -> None:
    made = experiment(
        {"labels": ["mine"], "searcher": {"name": "random"}, "resources": {"slots_per_trial": 1}}
    )
    # `stop` ends what has the first; a search that is submitted again is found by the third.
    assert made["labels"] == ["trainbed", "search", GIVEN["search_label"], "mine"]
    assert made["resources"] == {"slots_per_trial": 1}


def test_both_sides_name_the_files_alike() -> None:
    assert PROGRESS == searching.PROGRESS
    follow = (ROOT / "playbooks/trials.yml").read_text(encoding="utf-8")
    assert f"search_out ~ '/{PROGRESS}'" in follow


PASSWORD = "Tb1ordinary"
USER = pwd.getpwuid(os.getuid()).pw_name


class Cluster:
    """A master of this process, and what the role finds on the node beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = standin.Cluster("Tb1admin")
        self.master.add_user("trainbed", standin.hashed(PASSWORD), admin=False)
        self.master.agents["worker1"] = {"slots": 1, "seen": time.monotonic() + 1e6, "address": "198.18.0.11"}
        self.trials: dict[int, Trial] = {}
        for name in ("environment/bin", "code/training", "data", "secrets", "home"):
            (folder / name).mkdir(parents=True)
        (folder / "code/training/loop.py").write_text("print('training')\n")
        client = f"PYTHONPATH={ROOT}/roles/determined/files/client exec {sys.executable} "
        python = folder / "environment/bin/python"
        python.write_text(f'#!/bin/sh\n{client} "$@"\n')
        python.chmod(0o755)
        systemd.install(folder)

    def set_up(self, address: str) -> None:
        """Write what the role writes for its client."""
        (self.folder / "secrets/password").write_text(PASSWORD)
        content = {
            "master": address,
            "certificate": None,
            "user": "trainbed",
            "patience_s": 5,
            "queue_limit_s": 60,
        }
        content["password_file"] = str(self.folder / "secrets/password")
        (self.folder / "secrets/client.json").write_text(json.dumps(content))

    def search(self, wanted: dict[str, Any]) -> tuple[int, str]:
        """Call playbooks/trials.yml, without what looks for leftovers on this machine.

        Returns its exit status, and its output on one line.
        """
        variables = copy.deepcopy(GIVEN) | {
            "search_batches": 126,
            "search_wanted": wanted,
            "search_dir": str(self.folder / "search"),
            "search_out": str(self.folder / "search/out"),
            "search_launch_dir": str(self.folder / "launch"),
            "search_code": str(self.folder / "code"),
            "search_data": str(self.folder / "data"),
            "determined_secrets": str(self.folder / "secrets"),
            "determined_environment": str(self.folder / "environment"),
            "determined_user": USER,
            "runs_user": USER,
            "search_stack": "determined",
            "search_follow": str(self.folder / "follow.json"),
            "search_dest": str(self.folder / "home"),
        }
        variables["search_spec"]["work"] |= {"workers": 1, "slots_per_worker": 1}
        del variables["determined_images"]  # of the role, from its workers
        first, *plays = yaml.safe_load((ROOT / "playbooks/trials.yml").read_text(encoding="utf-8"))
        assert "ansible.builtin.import_playbook" in first
        here = {"connection": "local", "become": False}
        playbook, inventory = self.folder / "trials.yml", self.folder / "hosts.yml"
        playbook.write_text(json.dumps([play | here for play in plays]))
        (self.folder / "vars.json").write_text(json.dumps(variables))
        worker = {"runs_node": {"image": "master:5000/trainbed@sha256:abc"}}
        groups: dict[str, Any] = {name: {"hosts": {"localhost": {}}} for name in ("master", "cluster")}
        inventory.write_text(json.dumps(groups | {"workers": {"hosts": {"worker1": worker}}}))
        return played_here(playbook, inventory, "-e", f"@{self.folder / 'vars.json'}")

    def when_created(self) -> None:
        """Let a trial run to its end, once there is an experiment."""
        while not self.master.experiments:
            time.sleep(0.05)
        with self.master.lock:
            trial = self.trials[1] = Trial(1, {"learning_rate": 0.001})
            trial.evaluate(1, 63, validation_loss=0.6)
            trial.evaluate(2, 126, validation_loss=0.5)
            trial.end("COMPLETED", 3)
            self.master.experiments[1].end("STATE_COMPLETED")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(standin, "CLEAN_UP_S", 0.2)
    made = Cluster(tmp_path)
    monkeypatch.setattr(standin, "Handler", type("Handler", (SearchHandler,), {"trials": made.trials}))
    server = standin.serve(made.master, "127.0.0.1", 0)
    made.set_up(f"http://127.0.0.1:{server.server_address[1]}")
    yield made
    server.shutdown()
    server.server_close()


ASHA: dict[str, Any] = {
    "hyperparameters": {"learning_rate": {"type": "log", "base": 10, "minval": -4.0, "maxval": -2.5}},
    "searcher": {"name": "adaptive_asha", "metric": "validation_loss", "max_trials": 1},
}


def test_a_search_runs_to_its_end_and_comes_home(cluster: Cluster) -> None:
    threading.Thread(target=cluster.when_created, daemon=True).start()
    status, output = cluster.search(ASHA)
    assert status == 0, output
    submitted = cluster.master.experiments[1].config
    assert submitted["searcher"]["max_time"] == 126
    assert submitted["labels"] == ["trainbed", "search", GIVEN["search_label"]]
    out = cluster.folder / "search" / "out"
    lines = (out / PROGRESS).read_text().splitlines()
    # What the client writes is what the other side reads.
    progress = [SearchProgress.model_validate_json(line) for line in lines][-1]
    assert [trial.outcome for trial in progress.trials] == ["end"] and progress.fraction_done == 1
    assert progress.states is not None and progress.states[-1][1] == "COMPLETED"
    follow = json.loads((cluster.folder / "follow.json").read_text())
    assert follow["log"] == str(out / PROGRESS)
    home = cluster.folder / "home"
    launch = json.loads((home / "launch.json").read_text())
    assert launch["exit_code"] == 0 and launch["stack"] == "determined"
    assert {PROGRESS, "asked.json", "experiment.json", "logs"} <= {path.name for path in home.iterdir()}
    assert (home / "logs/trial-1.log").is_file() and (home / "logs/localhost.log").is_file()


def test_what_the_master_refuses_ends_the_role_in_a_sentence(cluster: Cluster) -> None:
    searcher = ASHA["searcher"] | {"time_metric": "samples"}
    status, output = cluster.search(ASHA | {"searcher": searcher})
    assert status != 0 and "problem: - Determined refuses the experiment: " in output, output
    assert output.endswith("requires `max_time` and `time_metric` to be set ")
    assert not cluster.master.experiments
    assert json.loads((cluster.folder / "home/launch.json").read_text())["exit_code"] == 1


def test_where_nothing_is_set_up_a_sentence_says_so(cluster: Cluster) -> None:
    (cluster.folder / "data").rmdir()
    says = "on localhost any more: run the matrix again, and search around its new record."
    assert cluster.search(ASHA)[1].endswith(f"1 problem: - There is no {cluster.folder}/data {says} ")
    (cluster.folder / "secrets/client.json").unlink()
    status, output = cluster.search(ASHA)
    says = "1 problem: - Determined is not set up on localhost: `make provision` does that if"
    assert status != 0 and says in output and output.endswith("and its packages are there. ")
