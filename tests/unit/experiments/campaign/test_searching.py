"""A search around a run: what it is given, what is refused, and that what it reached is always kept."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.searching import FILES, find_request
from experiments.cluster.stack_folders import stacks_with
from experiments.records.record import write_record
from experiments.records.search import Search, write_search
from experiments.report.formats import NOTHING
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import record as made_up_record
from tests.unit.experiments.made_up_records import spec
from tests.unit.experiments.made_up_workplace import Workplace, wait_until
from training.spec import RunSpec

WANTED = """
hyperparameters:
  learning_rate: {type: log, base: 10, minval: -4.0, maxval: -2.5}
searcher: {name: adaptive_asha, metric: validation_loss, max_trials: 3, time_metric: batches}
"""


def trial(number: int, outcome: str, batches: int, losses: list[float], **more: Any) -> dict[str, Any]:
    reached = [{"batches": 2 * at, "value": loss} for at, loss in enumerate(losses, start=1)]
    return {
        "number": number,
        "hyperparameters": {"learning_rate": number / 1000, "warmup_steps": number},
        "state": "ANY",
        "outcome": outcome,
        "batches": batches,
        "total_batches": 4,
        "last": reached[-1] if reached else None,
        "best": min(reached, key=lambda each: each["value"], default=None),
        **more,
    }


def progress(done: float, *trials: dict[str, Any], time: float = 0.0) -> dict[str, Any]:
    return {
        "time": time,
        "experiment": 7,
        "state": "RUNNING" if done < 1 else "COMPLETED",
        "fraction_done": done,
        "metric": "validation_loss",
        "smaller_is_better": True,
        "unit": "batches",
        "brackets": [{"rungs": [1, 4], "trials": 3}],
        "notes": ["3 trials: the best 1 of 4 go on at 1 (evaluated at 2), up to 4 (batches)."],
        "trials": list(trials),
    }


FIRST = progress(0.2, trial(1, "running", 2, [0.6]), trial(2, "waiting", 0, []), time=100.0)
SECOND = progress(0.5, trial(1, "end", 4, [0.6, 0.5]), trial(2, "running", 1, []), time=160.0)
STOPPED = {"rung": 1, "rungs": 2, "rung_length": 1}
END = progress(
    1.0,
    trial(1, "end", 4, [0.6, 0.5], checkpoint="d40b5e32"),
    trial(2, "stopped", 2, [0.7], **STOPPED),
    trial(3, "failed", 1, [], reason="ValueError: broken", restarts=1),
)
RESULT = END | {"states": [[1.0, "RUNNING"]], "tasks_of_others": ["a notebook"], "reason": None}


@pytest.fixture
def record(workplace: Workplace) -> Path:
    """The record of a run, in a workplace where a stack can search."""
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0, output
    workplace.forget_calls()
    tasks = workplace.root / "roles" / "slow" / "tasks"
    tasks.mkdir(parents=True)
    for name in ("run", "search"):
        (tasks / f"{name}.yml").write_text("[]\n")
    (workplace.root / "experiments" / "search" / "mine.yml").write_text(WANTED)
    run = workplace.campaigns()[-1] / workplace.records()["plain-w1/01"].run_id
    return run / "01" / "record.json"


def kept(folder: Path) -> Search:
    return Search.model_validate_json((folder / "search.json").read_bytes())


def folders(workplace: Workplace) -> list[Path]:
    return sorted((workplace.root / "results" / "searches").glob("*/*"))


def test_a_search_is_followed_and_kept(workplace: Workplace, record: Path) -> None:
    workplace.behaviour(search={"lines": [FIRST, SECOND], "pause": 3, "result": RESULT})
    status, output = workplace.run("search", str(record), "--search", "mine")
    assert status == 0, output
    assert workplace.calls() == ["lock held", "trials", "lock free"]
    told = json.loads((workplace.cluster_folder / "search-variables.json").read_text())
    known = json.loads(record.read_text())
    assert told["search_stack"] == "slow"  # the run's own can't search
    assert told["search_spec"] == known["specification"] and told["search_run_id"] == known["run_id"]
    assert told["search_batches"] == 4  # 64 samples by 32, two epochs
    assert told["search_code_digest"] == known["code_digest"]
    assert told["search_wanted"]["searcher"]["max_trials"] == 3
    (folder,) = folders(workplace)
    assert folder.parent.name == "mine" and told["search_label"] == f"mine-{folder.name}"

    search = kept(folder)
    assert (search.status, search.reason, search.stack, search.name) == ("ok", None, "slow", "mine")
    assert search.run.run_id == known["run_id"] and search.run.attempt == 1
    assert search.progress is not None and search.progress.experiment == 7
    assert [each.outcome for each in search.progress.trials] == ["end", "stopped", "failed"]
    assert search.progress.best is not None and search.progress.best.number == 1
    assert len((folder / "live.jsonl").read_text().splitlines()) == 2
    # Only the fetched last line has them.
    assert search.progress.states == [(1.0, "RUNNING")] and search.progress.tasks_of_others == ["a notebook"]

    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert FIRST["notes"][0] in lines and lines.count(FIRST["notes"][0]) == 1
    assert "20 % · 0 of 3 trials ended, 1 running · best validation_loss 0.6000 (trial 1)" in lines
    assert any(line.startswith("50 % · 1 of 3 trials ended, 1 running") for line in lines)
    assert any(line.endswith("· about 2 min left") for line in lines)
    (heading,) = [line for line in lines if line.startswith("trial learning_rate warmup_steps batches best ")]
    assert heading.endswith("last validation_loss outcome")
    rows = [line for line in lines if line[:4] in ("1 0.", "2 0.", "3 0.")]
    assert rows == [
        "1 0.001 1 4 of 4 0.5000 4 0.5000 ran to its end",
        "2 0.002 2 2 of 4 0.7000 2 0.7000 stopped at rung 1 of 2 (1 batches)",
        f"3 0.003 3 1 of 4 {NOTHING} {NOTHING} {NOTHING} failed: ValueError: broken, restarted 1 time",
    ]
    assert "Of 3 trials, 1 ran to its end, 1 was stopped early (rung 1: 1) and 1 failed." in lines
    assert any(line.startswith("Best: trial 1 (learning_rate 0.001, warmup_steps 1), ") for line in lines)
    assert lines[-1].endswith(f"{folder.relative_to(workplace.root)}/search.json")
    assert not list((workplace.root / "results").glob(".prepare-*"))


def test_an_interrupted_search_is_ended_and_what_it_reached_is_kept(
    workplace: Workplace, record: Path
) -> None:
    workplace.behaviour(search={"lines": [FIRST, SECOND], "hangs": True})
    process = workplace.start(
        "search", str(record.parent), "--search", "mine"
    )  # the attempt's folder will do
    workplace.wait_for("hanging")
    live = workplace.root / "results" / "searches"
    wait_until(lambda: any(len(path.read_text().splitlines()) == 2 for path in live.glob("*/*/live.jsonl")))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert workplace.calls() == ["lock held", "trials", "stop", "lock free"]
    (folder,) = folders(workplace)
    search = kept(folder)
    assert (search.status, search.reason) == ("interrupted", "The command was told to stop (SIGINT).")
    assert search.progress is not None
    assert [each.outcome for each in search.progress.trials] == ["end", "running"]
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "Of 2 trials, 1 ran to its end and 1 was running." in lines
    assert "Interrupted: The command was told to stop (SIGINT)." in lines
    assert "resumes" not in output and not list((workplace.root / "results").glob(".prepare-*"))


def test_what_still_runs_after_an_interrupt_is_said(workplace: Workplace, record: Path) -> None:
    workplace.behaviour(search={"hangs": True}, stop_fails="worker2 does not answer.")
    process = workplace.start("search", str(record), "--search", "mine")
    workplace.wait_for("hanging")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 143, output
    (folder,) = folders(workplace)
    search = kept(folder)
    assert search.progress is None and search.reason is not None
    assert search.reason.endswith("Ending it on the cluster failed: master: worker2 does not answer.")


def test_a_failed_search_is_a_sentence_and_keeps_what_it_reached(workplace: Workplace, record: Path) -> None:
    says = "Determined refuses the experiment: no such metric."
    workplace.behaviour(search={"lines": [FIRST], "fails": says})
    status, output = workplace.run("search", str(record), "--search", "mine")
    assert status == 1 and f"The search failed: master: {says}" in output
    (folder,) = folders(workplace)
    search = kept(folder)
    assert (search.status, search.reason) == ("failed", f"master: {says}")
    assert search.progress is not None and search.progress.trials[0].batches == 2
    assert workplace.calls() == ["lock held", "trials", "lock free"]


def test_a_search_waits_for_nobodys_matrix(workplace: Workplace, record: Path) -> None:
    workplace.behaviour(lock_held="The cluster is in use: 'run' by ada.")
    status, output = workplace.run("search", str(record), "--search", "mine")
    assert status == 2 and "The cluster is in use: 'run' by ada." in output
    assert workplace.calls() == ["lock held"] and folders(workplace) == []


def test_progress_that_cannot_be_read_is_said(workplace: Workplace, record: Path) -> None:
    workplace.behaviour(search={"lines": [{"fraction_done": 0.1}], "pause": 3, "result": {"experiment": "x"}})
    status, output = workplace.run("search", str(record), "--search", "mine")
    (folder,) = folders(workplace)
    assert status == 0 and f"{folder / 'live.jsonl'} is not complete" in output
    fetched = folder / "outputs" / "progress.jsonl"
    assert f"{fetched}: line 1 can't be used (" in output and f"{fetched}: line 2 can't be used (" in output
    assert kept(folder).progress is None


def test_a_last_line_that_is_there_in_part_counts_for_nothing(workplace: Workplace, record: Path) -> None:
    workplace.behaviour(search={"lines": [FIRST], "torn": '{"time": 160.0, ', "fails": "worker1 went away."})
    status, output = workplace.run("search", str(record), "--search", "mine")
    (folder,) = folders(workplace)
    assert status == 1 and "can't be used" not in output
    assert (folder / "outputs" / "progress.jsonl").read_text().endswith('{"time": 160.0, ')
    found = kept(folder).progress
    assert found is not None and found.fraction_done == FIRST["fraction_done"]


def test_what_cannot_be_searched_is_refused_before_anything_starts(
    workplace: Workplace, record: Path
) -> None:
    own = workplace.root / "own.yml"

    def refused(*arguments: str) -> str:
        status, output = workplace.run("search", *arguments)
        assert status == 2 and not (workplace.cluster_folder / "calls.jsonl").exists(), output
        return " ".join(output.split())

    assert "Name the run to search around (RECORD= with make): results/" in refused("")
    assert "can't be read: No such file" in refused(str(record.parent / "no.json"))
    there = "give the path of a file, or one of adaptive_asha, mine."
    assert f"There is no search other: {there}" in refused(str(record), "--search", "other")
    for text, said in (
        ("hyperparameters: [", "is not YAML"),
        ("[]", "is no mapping with `searcher` and `hyperparameters`"),
        ("searcher: {name: random}", "has no hyperparameters"),
        (
            WANTED.replace("learning_rate", "learning_rat"),
            "learning_rat is no field of the work (did you mean",
        ),
    ):
        own.write_text(text)
        assert said in refused(str(record), "--search", str(own))
    assert "plain can't search: only slow can." in refused(
        str(record), "--search", "mine", "--stack", "plain"
    )
    shutil.copytree(workplace.root / "roles" / "slow", workplace.root / "roles" / "third")
    assert "slow and third can search: choose one with --stack." in refused(str(record), "--search", "mine")
    shutil.rmtree(workplace.root / "roles")
    assert "No stack can search: none of their roles has tasks/search.yml." in refused(
        str(record), "--search", "mine"
    )


def test_a_runs_own_stack_searches_if_it_can(workplace: Workplace, record: Path) -> None:
    shutil.copytree(workplace.root / "roles" / "slow", workplace.root / "roles" / "plain")
    workplace.behaviour(search={"result": RESULT})
    assert workplace.run("search", str(record), "--search", "mine")[0] == 0
    told = json.loads((workplace.cluster_folder / "search-variables.json").read_text())
    assert told["search_stack"] == "plain"


def test_one_stack_of_this_checkout_can_search() -> None:
    assert len(stacks_with("search")) == 1
    assert set(stacks_with("run", REPOSITORY)) >= set(stacks_with("search", REPOSITORY))


def test_a_search_result_is_written_once_and_only_if_it_is_valid(workplace: Workplace, record: Path) -> None:
    workplace.behaviour(search={"result": RESULT})
    assert workplace.run("search", str(record), "--search", "mine")[0] == 0
    (folder,) = folders(workplace)
    found = kept(folder)
    with pytest.raises(UserError, match=r"search\.json already exists; it is never replaced"):
        write_search(found, folder)
    with pytest.raises(UserError, match=r"search\.json is not valid: status: "):
        write_search(found.model_copy(update={"status": "perfect"}), folder.parent)
    assert not (folder.parent / "search.json").exists()


@pytest.mark.parametrize(
    ("conditions", "says"),
    [({"tokenizing": "in_run"}, "made its tokens itself"), ({"trace": {"steps": "10-15"}}, "was traced")],
)
def test_a_run_whose_conditions_no_trial_can_share_is_not_searched_around(
    tmp_path: Path, conditions: dict[str, Any], says: str
) -> None:
    fields = spec("ddp", 2).model_dump()
    fields["conditions"] |= conditions
    made = RunSpec.model_validate(fields)
    changes: dict[str, Any] = of_specification(made)
    write_record(made_up_record("ddp", 2, 30.0, 50.0, **changes), tmp_path)
    with pytest.raises(UserError, match=f"{made.run_id} {says}, and so would every trial"):
        find_request(str(tmp_path), None, None)


def test_a_run_that_was_not_evaluated_is_not_searched_around(tmp_path: Path) -> None:
    fields = spec("ddp", 2).model_dump()
    fields["conditions"] |= {"evaluation": "none"}
    made = RunSpec.model_validate(fields)
    changes: dict[str, Any] = of_specification(made)
    write_record(made_up_record("ddp", 2, 30.0, 50.0, **changes), tmp_path)
    with pytest.raises(UserError, match=f"{made.run_id} was not evaluated, and nor would its trials be"):
        find_request(str(tmp_path), None, None)


def test_a_search_whose_file_has_a_name_for_no_folder_is_refused(tmp_path: Path) -> None:
    write_record(made_up_record("ddp", 2, 30.0, 50.0), tmp_path)
    file = tmp_path / "my search.yml"
    file.write_text((FILES / "adaptive_asha.yml").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UserError, match="rename the file"):
        find_request(str(tmp_path), str(file), None)


def test_a_script_with_a_loop_of_its_own_is_not_searched_around(tmp_path: Path) -> None:
    fields = spec("ddp", 2).model_dump()
    fields["work"] |= {
        "workload": "script",
        "data": {"script": "train.py", "train": 500},
        "model": {"arguments": ["--epochs", "{epochs}"]},
    }
    made = RunSpec.model_validate(fields)
    changes: dict[str, Any] = of_specification(made) | {"validation_correct": None}
    write_record(made_up_record("ddp", 2, 30.0, 50.0, **changes), tmp_path)
    says = f"{made.run_id} ran train.py, which has a loop of its own: .* Search around a run of a workload."
    with pytest.raises(UserError, match=says):
        find_request(str(tmp_path), None, None)
