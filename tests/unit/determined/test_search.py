"""A search is followed to its end: the client and the real SDK, with made-up trials of a stand-in master."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from trainbed_determined import __main__ as command_line
from trainbed_determined import experiment as experiments
from trainbed_determined import master as masters
from trainbed_determined import search as searches
from trainbed_determined.experiment import ExperimentError
from trainbed_determined.master import Master, Refused
from trainbed_determined.search import Run, completed, notes_on, outcome_of, read_run, search
from trainbed_determined.settings import Settings

from tests.standins.determined import master as standin
from tests.unit.determined.search_answers import SearchHandler, Trial

PASSWORD = "Tb1ordinary"
RUN = Run(batches=126, epochs=2, evaluate_every_epochs=1)
CONFIG: dict[str, Any] = {
    "name": "search around a run",
    "labels": ["trainbed", "search", "asha-1"],
    "entrypoint": "python3 -m training.launchers.determined_search",
    "resources": {"slots_per_trial": 1},
    "searcher": {
        "name": "adaptive_asha",
        "metric": "validation_loss",
        "smaller_is_better": True,
        "max_trials": 5,
        "mode": "aggressive",
    },
    "hyperparameters": {"learning_rate": {"type": "log", "minval": -4, "maxval": -2, "base": 10}},
}


@dataclass
class Place:
    """A stand-in master with a search, a client of it, and what the client said."""

    cluster: standin.Cluster
    settings: Settings
    folder: Path
    trials: dict[int, Trial]
    said: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def run(self, config: dict[str, Any] = CONFIG) -> None:
        """Search, in this thread."""
        code = self.folder / "training"
        code.mkdir()
        (code / "loop.py").write_text("print('training')\n", encoding="ascii")
        self.out.mkdir()
        search(
            Master(self.settings, self.said.append), config, RUN, code, "asha-1", self.out, self.said.append
        )

    def steps(self, *steps: Callable[[], object]) -> None:
        """Do each of them once the client has written a line about the one before."""

        def act() -> None:
            for written, step in enumerate(steps):
                while len(self.lines()) < written or 1 not in self.cluster.experiments:
                    time.sleep(0.01)
                with self.cluster.lock:
                    step()

        threading.Thread(target=act, daemon=True).start()

    def lines(self) -> list[dict[str, Any]]:
        path = self.out / "progress.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ends(self, state: str = "STATE_COMPLETED") -> None:
        self.cluster.experiments[1].end(state)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(masters, "ASK_AGAIN", 0.05)
    monkeypatch.setattr(experiments, "POLL_S", 0.02)
    monkeypatch.setattr(searches, "LOOK_S", 0.0)
    monkeypatch.setattr(standin, "CLEAN_UP_S", 0.2)
    monkeypatch.setattr(standin, "GAP_S", 0.0)
    cluster = standin.Cluster("Tb1admin")
    cluster.add_user("trainbed", standin.hashed(PASSWORD), admin=False)
    cluster.agents["worker1"] = {"slots": 1, "seen": time.monotonic() + 1e6, "address": "198.18.0.11"}
    trials: dict[int, Trial] = {}
    monkeypatch.setattr(standin, "Handler", type("Handler", (SearchHandler,), {"trials": trials}))
    server = standin.serve(cluster, "127.0.0.1", 0)
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n", encoding="ascii")
    address = f"http://127.0.0.1:{server.server_address[1]}"
    settings = Settings(address, None, "trainbed", password, patience_s=1.0, queue_limit_s=30.0)
    yield Place(cluster, settings, tmp_path, trials)
    server.shutdown()
    server.server_close()


def made(place: Place, number: int) -> list[Trial]:
    """Trials that a searcher has made."""
    place.trials.update({at: Trial(at, {"learning_rate": at / 1000}) for at in range(1, number + 1)})
    return list(place.trials.values())


def test_a_search_is_followed_with_what_its_trials_reach(place: Place) -> None:
    def begin() -> None:
        first, *_ = made(place, 5)
        first.state, first.batches = "STATE_RUNNING", 10

    def first_ends() -> None:
        first, second, *_ = place.trials.values()
        first.evaluate(60, 63, validation_loss=0.6, last_batch=126)
        first.evaluate(120, 126, validation_loss=0.5, last_batch=126)
        first.end("COMPLETED", 121)
        second.state = "STATE_RUNNING"

    def second_is_stopped() -> None:
        _, second, third, *_ = place.trials.values()
        second.evaluate(180, 63, validation_loss=0.7, last_batch=126)
        second.end("COMPLETED", 181)
        third.state = "STATE_RUNNING"

    def others_end() -> None:
        _, _, third, fourth, fifth = place.trials.values()
        third.evaluate(240, 63, validation_loss=0.4, last_batch=126)
        third.evaluate(300, 126, validation_loss=0.45, last_batch=126)
        third.checkpoint = "d40b5e32-7dcd-4b5c-bcfd-32c9443be9ff"
        third.end("COMPLETED", 301)
        fourth.log.append("[2026-11-21T10:10:36.529505Z] c0 || ValueError: no such batch\n")
        fourth.end("ERROR", 310)
        fifth.evaluate(360, 63, validation_loss=0.41, last_batch=126)
        fifth.end("COMPLETED", 361)
        place.ends()

    place.steps(begin, first_ends, second_is_stopped, others_end)
    place.run()
    assert json.loads((place.out / "experiment.json").read_text())["searcher"]["max_time"] == 126
    asked = place.cluster.experiments[1].config["searcher"]
    assert (asked["max_time"], asked["time_metric"]) == (126, "batches")

    lines = place.lines()
    done = [line["fraction_done"] for line in lines]
    assert done == sorted(done) and done[0] < 0.05 and done[-1] == 1.0
    at_two = next(line for line in lines if line["trials"] and line["trials"][0]["outcome"] == "end")
    assert at_two["fraction_done"] == pytest.approx(126 / (5 * 126), abs=1e-6)
    # Stopped trials need no more: 126 and 63 of 126, 63 and three times 126.
    after = [line for line in lines if line["trials"] and line["trials"][1]["outcome"] == "stopped"]
    assert after[0]["fraction_done"] == pytest.approx(189 / (126 + 63 + 3 * 126), abs=1e-6)

    result = place.lines()[-1]
    assert result["state"] == "COMPLETED" and result["reason"] is None
    assert [state for _, state in result["states"]][-1] == "COMPLETED" and result["tasks_of_others"] == []
    assert not any("states" in line for line in lines[:-1])
    assert result["brackets"] == [{"rungs": [31, 126], "trials": 5}]
    first, second, third, fourth, _ = result["trials"]
    assert [each["outcome"] for each in result["trials"]] == ["end", "stopped", "end", "failed", "stopped"]
    assert [each["rung"] for each in result["trials"]] == [None, 1, None, None, 1]
    assert (second["rungs"], second["rung_length"]) == (2, 31)
    assert (second["batches"], second["total_batches"]) == (63, 126)
    assert third["best"] == {"batches": 63, "value": 0.4} and third["last"] == {"batches": 126, "value": 0.45}
    assert third["checkpoint"] == "d40b5e32-7dcd-4b5c-bcfd-32c9443be9ff" and first["checkpoint"] is None
    assert third["hyperparameters"] == {"learning_rate": 0.003}
    assert fourth["reason"] == "ValueError: no such batch" and fourth["best"] is None
    assert "ValueError" in (place.out / "logs" / "trial-4.log").read_text()
    assert not [note for note in result["notes"] if "Went on" in note]


def test_a_trial_that_the_searcher_could_not_stop_is_named(place: Place) -> None:
    def all_end() -> None:
        for trial, loss in zip(made(place, 5), (0.4, 0.5, 0.6, 0.7, 0.3), strict=True):
            trial.evaluate(100 * trial.id, 63, validation_loss=loss)
            trial.evaluate(100 * trial.id + 50, 126, validation_loss=loss)
            trial.end("COMPLETED", 100 * trial.id + 51)
        place.ends()

    place.steps(all_end)
    place.run()
    result = place.lines()[-1]
    assert {each["outcome"] for each in result["trials"]} == {"end"}
    (note,) = [note for note in result["notes"] if "although" in note]
    assert note.endswith("trials 2, 3, 4.")


def test_where_larger_is_better_the_largest_goes_on(place: Place) -> None:
    def all_end() -> None:
        for trial, accuracy in zip(made(place, 2), (0.7, 0.6), strict=True):
            trial.evaluate(trial.id, 63, validation_accuracy=accuracy)
            trial.end("COMPLETED", trial.id + 0.5)
        place.ends()

    place.steps(all_end)
    searcher = CONFIG["searcher"] | {"metric": "validation_accuracy", "smaller_is_better": False}
    place.run(CONFIG | {"searcher": searcher})
    first, second = place.lines()[-1]["trials"]
    # The first was to go on; why it ended early is not for the searcher to tell.
    assert (first["outcome"], first["rung"]) == ("stopped", None)
    assert (second["outcome"], second["rung"]) == ("stopped", 1)


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"validation_loss": 0.5}, r"ended as ERROR: trial 1 \(ValueError: broken\) failed"),
        (
            {"loss": 0.5},
            "the searcher needs validation_loss, and training reports only batches, loss; correct",
        ),
    ],
)
def test_a_search_that_fails_says_why_and_keeps_what_was_reached(
    place: Place, metrics: dict[str, float], says: str
) -> None:
    def fail() -> None:
        (trial,) = made(place, 1)
        trial.evaluate(1, 63, **metrics)
        trial.log.append("[2026-11-21T10:10:36.529505Z] c0 || ValueError: broken\n")
        trial.end("ERROR", 2)
        place.ends("STATE_ERROR")

    place.steps(fail)
    with pytest.raises(ExperimentError, match=says) as failed:
        place.run()
    result = place.lines()[-1]
    assert result["reason"] == str(failed.value) and result["trials"][0]["batches"] == 63


def test_what_the_master_refuses_is_told_in_its_words(place: Place) -> None:
    searcher = CONFIG["searcher"] | {"time_metric": "samples"}
    with pytest.raises(Refused, match="requires `max_time` and `time_metric`"):
        place.run(CONFIG | {"searcher": searcher})
    assert not place.cluster.experiments and not place.lines()


def test_a_search_is_ended_like_every_experiment_of_a_matrix(place: Place) -> None:
    runner = experiments.Runner(Master(place.settings, print), print)
    # In a thread of its own: the steps hold the lock that the master needs to answer.
    stop = threading.Thread(target=runner.stop_all, daemon=True)
    place.steps(lambda: made(place, 1), stop.start)
    with pytest.raises(ExperimentError, match="CANCELED"):
        place.run()
    assert place.cluster.experiments[1].state == "STATE_CANCELED"


def test_all_trials_are_read_however_many(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "PAGE", 2)
    place.steps(lambda: made(place, 5), place.ends)
    place.run()
    result = place.lines()[-1]
    assert [each["number"] for each in result["trials"]] == [1, 2, 3, 4, 5]


def test_the_longest_trial_is_as_long_as_the_run_unless_the_search_says_otherwise() -> None:
    def lengths(**searcher: Any) -> Any:
        found = completed({"searcher": {"metric": "m", **searcher}}, RUN)["searcher"]
        return found.get("max_time"), found.get("time_metric")

    assert lengths(name="adaptive_asha") == (126, "batches")
    assert lengths(name="async_halving", time_metric="epoch") == (2, "epoch")
    assert lengths(name="adaptive_asha", max_time=50) == (50, "batches")
    assert lengths(name="adaptive_asha", time_metric="samples") == (None, "samples")
    assert lengths(name="random", max_trials=3) == (None, None)


def test_what_rungs_mean_for_the_run_is_said() -> None:
    asha = {"name": "adaptive_asha", "time_metric": "batches", "max_trials": 8}
    assert notes_on(asha | {"max_time": 126}, RUN) == [
        "6 trials: the best 1 of 4 go on at 31 (evaluated at 63), up to 126 (batches).",
        "2 trials: never stopped early (one rung, at 126).",
    ]
    *_, longer = notes_on(asha | {"max_time": 250}, RUN)
    assert longer.startswith(
        "max_time is 250 (batches), but a trial ends at 126: no trial reaches the top rung."
    )
    first, *_ = notes_on(asha | {"max_time": 1000, "mode": "aggressive"}, RUN)
    assert "at 250 (no evaluation is left)" in first
    by_epochs = asha | {"time_metric": "epoch", "max_time": 8, "mode": "aggressive", "divisor": 2}
    first, *_ = notes_on(by_epochs, Run(batches=504, epochs=8, evaluate_every_epochs=3))
    assert "1 (evaluated at 3), 2 (evaluated at 3), 4 (evaluated at 6), up to 8 (epoch)" in first
    assert notes_on({"name": "random"}, RUN) == ["The searcher random stops no trial early."]


@pytest.mark.parametrize(
    ("state", "batches", "outcome"),
    [
        ("COMPLETED", 126, "end"),
        ("COMPLETED", 64, "stopped"),
        ("ERROR", 64, "failed"),
        ("CANCELED", 64, "killed"),
        ("QUEUED", 0, "waiting"),
        ("STOPPING_COMPLETED", 64, "running"),
    ],
)
def test_a_trials_state_says_what_became_of_it(state: str, batches: int, outcome: str) -> None:
    assert outcome_of(state, batches, 126) == outcome


def test_the_command_searches(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, config, spec = (tmp_path / f"{name}.json" for name in ("client", "config", "spec"))
    file = vars(place.settings) | {"password_file": str(place.settings.password_file)}
    settings.write_text(json.dumps(file))
    config.write_text(json.dumps(CONFIG | {"entrypoint": ""}))
    spec.write_text(json.dumps({"work": {"epochs": 2, "evaluate_every_epochs": 1}}))
    assert read_run(spec, 126) == RUN
    code = tmp_path / "training"
    code.mkdir()
    words = ["--settings", settings, "search", "--config", config, "--spec", spec, "--batches", 126]
    words += ["--code", code, "--label", "asha-1", "--out", tmp_path / "out"]
    assert command_line.main([str(word) for word in words]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("Refused: Determined refuses the experiment: ")
