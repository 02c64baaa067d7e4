"""Records: their schema, what they refuse, and how they are composed from a run's files."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from experiments.campaign.code_archive import build_archive
from experiments.cluster.playbooks import failure_message, last_lines, step_under_way
from experiments.cluster.progress import Progress, duration
from experiments.records.compose import compose
from experiments.records.observation import Observation, Request
from experiments.records.outputs import DamagedOutput, ResultFile, read_output
from experiments.records.rank_use import RankUse
from experiments.records.reasons import STOPPED, cause_of_failure, sentence
from experiments.records.record import SCHEMA, Record, parse_record, read_record, schema_text, write_record
from experiments.util.errors import UserError
from experiments.util.files import sha256
from tests.unit.experiments.made_up_records import ENVIRONMENT, STARTED, record, spec
from tests.unit.experiments.made_up_use import NO_RAPL, rank_use
from training.metrics.resource_use import Meter
from training.spec import PHASES


def test_the_schema_file_is_current() -> None:
    assert SCHEMA.read_text() == schema_text(), (
        f"regenerate it: python -m experiments.records.record > {SCHEMA.name}"
    )


def test_a_record_fits_the_schema_and_comes_back_the_same(tmp_path: Path) -> None:
    made = record("ddp", 2, 30.0, 40.0)
    write_record(made, tmp_path)
    path = tmp_path / "record.json"
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))
    assert read_record(path) == made
    with pytest.raises(UserError, match="never replaced"):
        write_record(made, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"total_s": 41.0}, "the phases add up to"),
        ({"reason": "But why?"}, "a reason is given exactly when"),
        ({"status": "failed"}, "a reason is given exactly when"),
        ({"weights_digest": None}, "a run that is ok must have weights_digest"),
        ({"ranks": []}, "it has 0 of 2 ranks"),
        ({"run_id": "ddp-w2-e2-s1-00000000"}, "the specification makes it"),
        ({"work_digest": "0" * 64}, "work_digest is not that"),
        ({"surprise": 1}, "surprise: is not a known setting"),
        ({"schema_version": 2}, "has schema version 2"),
        (
            {"starts": [{"rank": 0, "started": 1.0, "host": "h", "boot": "b", "by": "x"}] * 2},
            "a run that is ok has one start of each rank",
        ),
        ({"started": "2026-11-21T11:45:00"}, "started: input should have timezone info"),
        ({"phases": {"forward": 40.0}}, "the phases must be queue"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes: dict[str, Any], said: str) -> None:
    content = json.loads(record("ddp", 2, 30.0, 40.0).model_dump_json()) | changes
    with pytest.raises(UserError) as raised:
        parse_record(json.dumps(content).encode(), Path("here/record.json"))
    assert said in str(raised.value) and "here/record.json" in str(raised.value)


def figures(text: str | None) -> list[str]:
    """The numbers that a sentence names, in order."""
    return re.findall(r"\d+(?:\.\d+)?", text or "")


class Left:
    """The valid files of a two-worker run, for tests to damage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = folder / "outputs"
        (self.outputs / "logs").mkdir(parents=True)
        self.log = folder / "ansible.log"
        self.log.write_text("")
        self.request = Request("m", "c", 1, spec("ddp", 2), "c" * 64, "5" * 64, None, ENVIRONMENT)
        self.observation = Observation(started=STARTED, ended=STARTED, total_s=60.0, exit_code=0)
        self.launch = {"stack": "ddp", "started": 1000.0, "ended": 1050.0, "exit_code": 0, "command": ["x"],
                       "nodes": []}  # fmt: skip
        self.write("launch.json", self.launch)
        for number in (0, 1):
            self.rank(number)
            self.starts(number, 1003.0)
        self.result()

    def write(self, name: str, content: Any) -> None:
        (self.outputs / name).write_text(json.dumps(content))

    def rank(self, number: int, **changes: Any) -> None:
        content = {
            "rank": number, "local_rank": 0, "world_size": 2, "host": f"worker{number + 1}.lab", "pid": 1,
            "uid": 990, "affinity": [number], "threads": 1, "interop_threads": 1, "OMP_NUM_THREADS": "1",
            "cpu_capability": "AVX2", "versions": {"torch": "2"}, "environment_digest": "e" * 64,
            "code_digest": "5" * 64,
            "times": {"process_start": 1003.0, "train_start": 1007.0, "train_end": 1047.0},
            "phases": {"imports": 3.0, "rendezvous": 1.0, "forward": 15.0, "backward": 20.0, "other": 5.0},
            "train_s": 40.0 + number, "steps": 126, "weights_digest": "w" * 64,
        }  # fmt: skip
        self.write(f"rank-{number}.json", content | changes)

    def starts(self, number: int, *moments: float, **changes: Any) -> None:
        mark = {"rank": number, "host": f"worker{number + 1}.lab", "boot": "b", "by": "torchrun"} | changes
        lines = [json.dumps(mark | {"started": moment, "pid": 1}) + "\n" for moment in moments]
        (self.outputs / f"starts-{number}.jsonl").write_text("".join(lines))

    def result(self, **changes: Any) -> None:
        epochs = [
            {"epoch": epoch, "train_loss": None, "seconds": 20.0, "lr": 0.1, "validation_correct": 700,
             "validation_count": 1000, "validation_accuracy": 0.7, "validation_loss": 0.5}
            for epoch in (1, 2)
        ]  # fmt: skip
        content = {"status": "ok", "epochs": epochs, "weights_digest": "w" * 64, "validation_count": 1000}
        self.write("result.json", content | changes)

    def compose(self) -> Record:
        return compose(self.request, self.observation, self.outputs, self.log)


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_the_phases_are_the_slowest_ranks_and_add_up(left: Left) -> None:
    left.write("launcher.json", {"queue_s": 0.5})
    made = left.compose()
    assert made.ok and made.slowest_rank == 1 and made.train_s == 41.0
    assert made.phases is not None and tuple(made.phases) == PHASES
    assert made.phases["queue"] == 0.5
    assert made.phases["launch"] == pytest.approx(2.5)  # 3 s until the process starts, less the queue
    assert made.phases["shutdown"] == pytest.approx(3.0)
    assert made.phases["other"] == pytest.approx(60 - 0.5 - 2.5 - 3 - 1 - 15 - 20 - 3)
    assert made.validation_correct == 700 and [rank.node for rank in made.ranks] == ["worker1", "worker2"]
    assert made.files["result.json"] and made.notes == []


def test_workers_that_were_not_alike_are_noted_with_what_they_had(left: Left) -> None:
    nodes = dict(ENVIRONMENT.nodes)
    nodes["worker2"] = nodes["worker2"].model_copy(update={"cores": 4, "memory_mb": 48000, "slots": 1})
    left.request = dataclasses.replace(
        left.request, environment=ENVIRONMENT.model_copy(update={"nodes": nodes})
    )
    made = left.compose()
    assert made.ok and made.environment.nodes["worker2"].slots == 1
    assert made.notes == [
        "Its workers differ in cores (worker1 1, worker2 4) and memory (worker1 23.5 GiB, worker2 46.9 GiB). "
        "Spare: 3 cores of worker2."
    ]
    # Of a run on one worker nothing differs.
    left.rank(1, host="worker1.lab")
    assert left.compose().notes == []


def test_a_gpu_that_throttled_or_was_not_looked_at_is_noted(left: Left) -> None:
    gpu = {"uuid": "GPU-1", "name": "Tesla T4", "samples": 40, "power_w_mean": 68.0}
    left.rank(0, gpu=gpu | {"throttled": {"power cap": 0.25}}, CUDA_VISIBLE_DEVICES="0")
    trouble = "Not sampled: NVMLError: no driver"
    left.rank(1, gpu=gpu | {"samples": 0, "trouble": trouble})
    made = left.compose()
    assert made.ok and made.ranks[0].visible_gpus == "0"
    assert made.ranks[0].gpu is not None and made.ranks[0].gpu.power_w_mean == 68.0
    throttled, blind = made.notes
    for token in ("Rank 0", "Tesla T4", "worker1.lab", "throttled", "power cap", "25 %", "40 samples"):
        assert token in throttled
    assert "Rank 1" in blind and "worker2.lab" in blind and blind.endswith(trouble)


def test_what_a_rank_used_is_kept_and_may_be_absent(left: Left) -> None:
    left.rank(1, use=rank_use(), parameters=4_369_666)
    made = left.compose()
    assert made.ok and made.ranks[0].use is None
    used = made.ranks[1].use
    assert used is not None and made.ranks[1].parameters == 4_369_666
    assert used.network.interfaces is not None and used.network.interfaces["eth0"].sent_bytes == 500 * 2**20
    assert (used.energy.cpu_j, used.energy.trouble) == (None, NO_RAPL)
    text = made.model_dump_json()
    jsonschema.validate(json.loads(text), json.loads(SCHEMA.read_text()))
    old = json.loads(text)
    for rank in old["ranks"]:
        del rank["use"], rank["parameters"]
    assert parse_record(json.dumps(old).encode(), Path("record.json")).ranks[1].use is None


def test_what_training_reads_is_what_records_hold() -> None:
    RankUse.model_validate_json(json.dumps(Meter().stop()))


def test_what_a_stack_says_of_its_containers_and_of_its_times_is_kept(left: Left) -> None:
    left.rank(0, host="3f9a41c2")
    assert left.compose().ranks[0].node is None
    notes = ["It was paused."]
    left.write("launcher.json", {"queue_s": 0.5, "hosts": {"3f9a41c2": "worker2"}, "notes": notes})
    made = left.compose()
    assert [rank.node for rank in made.ranks] == ["worker2", "worker2"]
    assert made.notes == notes


def test_another_stack_that_could_not_be_used_is_noted(left: Left) -> None:
    left.write("broken.json", {"ddp": "Its own reason fails the run.", "other": "Nobody is let in."})
    made = left.compose()
    assert made.ok
    assert made.notes == [
        "When it began, other could not be asked to end what it still ran: Nobody is let in."
    ]


def test_training_that_was_put_together_from_two_parts_does_not_count(left: Left) -> None:
    told = left.outputs / "progress.jsonl"
    told.write_text('{"event": "start", "time": 1, "steps_per_epoch": 9}\n{"event": "st\n')
    assert left.compose().ok
    told.write_text(told.read_text() + '{"event": "resume", "time": 2, "steps": 12, "epochs": 1}\n')
    made = left.compose()
    assert (made.status, made.weights_digest) == ("failed", "w" * 64)
    assert made.reason is not None and "12 steps" in made.reason and "wwwwwwww" in made.reason


def test_a_run_whose_ranks_were_started_again_is_disturbed_and_says_how(left: Left) -> None:
    made = left.compose()
    assert made.ok and made.starts is not None
    assert [(each.rank, each.node, each.by) for each in made.starts] == [
        (0, "worker1", "torchrun"),
        (1, "worker2", "torchrun"),
    ]
    left.starts(1, 1003.0, 1021.5, boot="c")
    made = left.compose()
    assert (made.status, made.weights_digest, made.ok) == ("disturbed", "w" * 64, False)
    assert made.reason is not None and made.starts is not None and len(made.starts) == 3
    assert made.reason.startswith(
        "Something started rank 1 more than once (on worker2 at 00:16:43 UTC by torchrun and on worker2 at "
        "00:17:01 UTC by torchrun): the last start came 18.5 s after the first"
    )
    # From a checkpoint that the first start left.
    told = left.outputs / "progress.jsonl"
    told.write_text('{"event": "resume", "time": 2, "steps": 12, "epochs": 1}\n')
    made = left.compose()
    assert made.status == "disturbed"
    assert made.reason is not None and made.reason.endswith("Training went on from step 12.")


def test_several_ranks_that_were_started_again_are_counted_with_one_as_the_example(left: Left) -> None:
    left.starts(0, 1003.0, 1020.0)
    marks = [{"rank": 1, "host": "worker1", "boot": boot, "by": f"allocation {boot}"} for boot in "bc"]
    lines = [json.dumps(mark | {"started": 1003.0 + 30 * at}) for at, mark in enumerate(marks)]
    (left.outputs / "starts-1.jsonl").write_text("\n".join(lines) + "\n")
    reason = left.compose().reason
    assert reason is not None
    assert "started 2 ranks more than once (rank 1 on worker1 at 00:16:43 UTC by allocation b and" in reason
    assert "by allocation c; worker1 rebooted in between)" in reason and "30.0 s after the first" in reason


def test_a_run_that_its_stack_began_again_before_any_rank_left_a_mark_is_disturbed(left: Left) -> None:
    left.write("launcher.json", {"queue_s": 0.5, "begun_again": "It was begun 2 times."})
    made = left.compose()
    assert (made.status, made.reason) == ("disturbed", "It was begun 2 times.")


def test_a_failed_run_whose_ranks_were_started_again_says_both(left: Left) -> None:
    left.starts(0, 1003.0, 1020.0)
    left.result(status="yielded")
    made = left.compose()
    assert made.status == "failed" and made.reason is not None and "yielded" in made.reason
    assert any("Something started rank 0 more than once" in note for note in made.notes)


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        (None, "Ranks without a mark of their start: 1."),
        ('{"rank": 1, "started": 3.0, "ho', "starts-1.jsonl, as the run left it,"),
        (
            '{"rank": 1, "started": 3.0, "host": "h", "boot": "b", "by": "x"}\n'
            '{"rank": 2, "started": 3.0, "host": "h", "boot": "b", "by": "x"}\n',
            "Starts of ranks that do not exist: 2.",
        ),
    ],
)
def test_marks_that_are_missing_or_wrong_are_a_fault(left: Left, marks: str | None, reason: str) -> None:
    path = left.outputs / "starts-1.jsonl"
    if marks is None:
        path.unlink()
    else:
        path.write_text(marks)
    made = left.compose()
    assert made.status == "failed" and made.reason is not None and made.reason.startswith(reason)


def test_the_nodes_that_the_command_ran_on_have_the_inventorys_names(left: Left) -> None:
    made = left.compose()
    assert made.launch is not None and made.launch.hosts == []  # as in older records
    left.write("launch.json", left.launch | {"hosts": ["master.lab", "elsewhere", "198.18.0.2"]})
    made = left.compose()
    assert made.launch is not None and made.launch.hosts == ["elsewhere", "master", "worker1"]


def test_clocks_that_differ_are_said(left: Left) -> None:
    left.write("launch.json", left.launch | {"started": 1004.0})
    made = left.compose()
    assert made.phases is not None and made.phases["launch"] == 0
    assert re.search(r"\blaunch\b.*-1\.000\b", made.notes[0])


@pytest.mark.parametrize(
    ("rank", "reason"),
    [
        (
            {"weights_digest": "v" * 64},
            "The weights differ between ranks (rank 0: wwwwwwww, rank 1: vvvvvvvv).",
        ),
        ({"threads": 2}, "Rank 1 ran with 2 threads instead of 1."),
        (
            {"environment_digest": None},
            "Rank 1 on worker2.lab ran in another environment (none that it knew of)",
        ),
        ({"uid": 0}, "Rank 1 ran as root"),
        ({"uid": 991}, "The ranks ran as different users (0: uid 990, 1: uid 991)."),
        ({"code_digest": "6" * 64}, "Rank 1 on worker2.lab ran other training code"),
        ({"code_digest": None}, "Rank 1 on worker2.lab ran other training code"),
        ({"train_s": -1.0}, "rank-1.json, as the run left it, is not valid"),
        ({"world_size": 1}, "Rank 1 saw 1 ranks instead of 2."),
        ({"phases": {"coffee": 1.0}}, "Rank 1 reports phases that there are not: coffee."),
        ({"phases": {"forward": -1.0}}, "rank-1.json, as the run left it, is not valid"),
    ],
)
def test_a_rank_that_did_something_else_makes_the_run_fail(
    left: Left, rank: dict[str, Any], reason: str
) -> None:
    left.rank(1, **rank)
    made = left.compose()
    assert made.status == "failed" and str(made.reason).startswith(reason)


def test_ranks_run_in_the_environment_of_their_stacks_own_if_it_has_one(left: Left) -> None:
    stack = left.request.specification.stack
    own = ENVIRONMENT.model_copy(update={"environments": {stack: "f" * 64, "another": "a" * 64}})
    left.request = dataclasses.replace(left.request, environment=own)
    assert str(left.compose().reason).startswith(
        f"Rank 0 on worker1.lab ran in another environment ({'e' * 12}) than its stack's ({'f' * 12})."
    )
    for rank in (0, 1):
        left.rank(rank, environment_digest="f" * 64)
    assert left.compose().ok


def test_runs_with_the_newest_libraries_are_in_the_environment_of_these(left: Left) -> None:
    asked = left.request.specification
    conditions = asked.conditions.model_copy(update={"libraries": "newest"})
    environments = {asked.stack: "a" * 64, "newest": "f" * 64}
    left.request = dataclasses.replace(
        left.request,
        specification=asked.model_copy(update={"conditions": conditions}),
        environment=ENVIRONMENT.model_copy(update={"environments": environments}),
    )
    assert str(left.compose().reason).startswith(
        f"Rank 0 on worker1.lab ran in another environment ({'e' * 12}) than that of the newest libraries "
        f"({'f' * 12})."
    )
    for rank in (0, 1):
        left.rank(rank, environment_digest="f" * 64)
    assert left.compose().ok


def test_training_runs_as_the_user_that_the_cluster_names(left: Left) -> None:
    left.request = dataclasses.replace(left.request, uid=6100)
    made = left.compose()
    assert made.status == "failed" and figures(made.reason) == ["0", "990", "6100"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"validation_count": 1024}, "The metrics were counted over 1024 samples"),
        ({"epochs": []}, "Of the epochs 1 to 2 there are figures for []."),
        ({"epochs": [{"epoch": 0, "seconds": 1.0}]}, "result.json, as the run left it, is not valid"),
        ({"status": "stopped"}, "Training ended with the status 'stopped'."),
    ],
)
def test_a_result_that_is_not_whole_makes_the_run_fail(
    left: Left, result: dict[str, Any], reason: str
) -> None:
    left.result(**result)
    made = left.compose()
    assert made.status == "failed" and str(made.reason).startswith(reason)


def test_a_run_without_evaluation_is_whole_without_metrics(left: Left) -> None:
    asked = left.request.specification
    conditions = asked.conditions.model_copy(update={"evaluation": "none"})
    without = asked.model_copy(update={"conditions": conditions})
    left.request = dataclasses.replace(left.request, specification=without)
    left.result(validation_count=None)
    assert left.compose().status == "ok"
    left.result(validation_count=1000)
    made = left.compose()
    assert made.status == "failed" and figures(made.reason) == ["1000", "0"]


def test_every_metric_of_a_workload_is_kept(left: Left) -> None:
    epochs = [
        {"epoch": epoch, "seconds": 20.0, "validation_count": 1000, "validation_perplexity": 9.0 / epoch}
        for epoch in (1, 2)
    ]
    left.result(epochs=epochs)
    made = left.compose()
    assert [epoch.metric("perplexity") for epoch in made.epochs] == [9.0, 4.5]
    assert made.epochs[0].metric("count") == 1000 and made.epochs[0].metric("f1") is None
    assert Record.model_validate_json(made.model_dump_json()) == made


def test_missing_and_damaged_files_make_the_run_fail(left: Left) -> None:
    def reason() -> str:
        made = left.compose()
        assert made.status == "failed" and made.reason is not None
        return made.reason

    (left.outputs / "rank-1.json").unlink()
    assert figures(reason()) == ["0", "1", "0"]  # of the ranks 0 to 1, only 0 left its file
    (left.outputs / "result.json").write_text("{")
    with pytest.raises(DamagedOutput) as damaged:
        read_output(ResultFile, left.outputs / "result.json")
    assert reason() == str(damaged.value) and reason().startswith("result.json, ")
    (left.outputs / "result.json").unlink()
    assert "no result.json" in reason()
    left.write("spec.json", {"stack": "ddp"})
    left.rank(1)
    left.result()
    assert reason().startswith("spec.json, ") and "work: " in reason()  # it lacks the work
    (left.outputs / "launch.json").unlink()
    assert "no launch.json" in reason()


def test_another_specification_on_the_nodes_makes_the_run_fail(left: Left) -> None:
    left.write("spec.json", spec("ddp", 2).model_dump(mode="json"))
    assert left.compose().ok
    left.write("spec.json", spec("ddp", 2, seed=7).model_dump(mode="json"))
    made = left.compose()
    assert made.status == "failed" and "(spec.json)" in str(made.reason)


def empty_program(left: Left) -> None:
    """Makes it a run of an empty program, which leaves its launch and nothing else."""
    one = left.request.specification
    conditions = one.conditions.model_copy(update={"program": "empty"})
    specification = one.model_copy(update={"conditions": conditions})
    left.request = dataclasses.replace(left.request, specification=specification)
    for path in left.outputs.glob("*.json*"):
        if path.name != "launch.json":
            path.unlink()


def test_an_empty_program_leaves_its_launch_and_nothing_else(left: Left) -> None:
    empty_program(left)
    made = left.compose()
    assert made.ok and made.total_s == 60.0 and made.notes == []
    assert made.launch is not None and made.launch.seconds == 50.0
    assert (made.train_s, made.phases, made.weights_digest, made.quality) == (None, None, None, None)
    assert made.ranks == [] and made.epochs == [] and not made.starts
    again = parse_record(made.model_dump_json().encode(), Path("record.json"))
    assert again == made
    for changes, said in (
        ({"launch": None}, "a run that is ok must have launch"),
        ({"train_s": 1.0}, "a run of an empty program that is ok has no train_s"),
        ({"weights_digest": "a" * 64}, "a run of an empty program that is ok has no weights_digest"),
    ):
        content = json.loads(made.model_dump_json()) | changes
        with pytest.raises(UserError, match=said):
            parse_record(json.dumps(content).encode(), Path("record.json"))


@pytest.mark.parametrize("file", ["result.json", "rank-0.json", "starts-0.jsonl", "prepared.json"])
def test_a_stack_that_trained_in_the_place_of_an_empty_program_is_found_out(left: Left, file: str) -> None:
    left.write("prepared.json", {"started": 990.0, "ended": 995.0, "by": "x", "rows": 1})
    kept = (left.outputs / file).read_bytes()
    empty_program(left)
    (left.outputs / file).write_bytes(kept)
    made = left.compose()
    assert made.status == "failed"
    assert made.reason == f"The run was to start an empty program, but left {file}: its stack trained."


def test_an_empty_program_counts_only_if_it_was_launched_as_asked(left: Left) -> None:
    left.write("spec.json", left.request.specification.model_dump(mode="json"))
    training = (left.outputs / "spec.json").read_bytes()
    empty_program(left)
    (left.outputs / "spec.json").write_bytes(training)
    made = left.compose()
    assert made.status == "failed" and "(spec.json)" in str(made.reason)
    (left.outputs / "launch.json").unlink()
    assert "no launch.json" in str(left.compose().reason)


def test_training_that_leaves_only_its_launch_does_not_count(left: Left) -> None:
    for path in left.outputs.glob("*.json*"):
        if path.name != "launch.json":
            path.unlink()
    made = left.compose()
    assert made.status == "failed" and "left no result.json" in str(made.reason)


def test_python_never_started(left: Left) -> None:
    for path in left.outputs.glob("*.json"):
        path.unlink()
    left.observation.exit_code = 2
    message = "Failed to connect to the host via ssh: timeout"
    left.log.write_text(
        "TASK [ddp : Launch] ***\nfatal: [worker1]: UNREACHABLE! => \n    changed: false\n"
        f"    msg: '{message}'\n    unreachable: true\n\n"
        "PLAY RECAP ***\nworker1: failed\n"
    )
    made = left.compose()
    assert made.status == "failed" and made.phases is None and made.ranks == []
    assert made.reason == f"worker1: {message}."
    (left.outputs / "logs" / "worker2.log").write_text("epoch 1 of 2\n")
    assert left.compose().reason == made.reason  # the stack's log shows only what went well
    assert last_lines(left.log, 1) == ["    unreachable: true"]


def test_an_interrupted_run_keeps_the_figures_that_were_seen(left: Left) -> None:
    (left.outputs / "result.json").unlink()
    left.observation.interrupted = "Told to stop."
    left.observation.epochs_seen = [{"epoch": 1, "train_loss": 0.6, "seconds": 9.0, "surprise": 1}]
    made = left.compose()
    assert made.status == "interrupted" and made.reason == left.observation.interrupted
    assert [epoch.train_loss for epoch in made.epochs] == [0.6] and made.validation_correct is None
    (note,) = made.notes
    assert "epochs" in note


def test_the_cause_is_taken_from_the_rank_that_failed_first(tmp_path: Path) -> None:
    def error(rank: int, kind: str, message: str) -> None:
        content = {"rank": rank, "host": "worker1", "type": kind, "message": message}
        (tmp_path / f"error-{rank}.json").write_text(json.dumps(content))

    error(0, "RuntimeError", "[gloo] Connection closed by peer")
    error(1, "ValueError", "password=swordfish is wrong.")
    said = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert said.startswith("Rank 1 ") and "RuntimeError" not in said and "swordfish" not in said
    for token in ("worker1:", "ValueError:", "password=***", "(2 ranks"):
        assert token in said


def test_a_rank_that_is_gone_is_the_cause_and_one_that_failed_is_before_those_that_say_so(
    tmp_path: Path,
) -> None:
    def error(rank: int, kind: str, message: str) -> None:
        content = {"rank": rank, "host": f"worker{rank + 1}", "type": kind, "message": message}
        (tmp_path / f"error-{rank}.json").write_text(json.dumps(content))

    gone, damaged = "Rank 1 on worker2 is gone: no sign of life for 3 s.", "The data are damaged."
    error(0, "PeerError", gone)
    said = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert said.startswith("Rank 0 ") and said.endswith(f"worker1: PeerError: {gone}")
    error(1, "DataError", damaged)
    said = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert said.startswith("Rank 1 ") and f"worker2: DataError: {damaged.rstrip('.')}" in said


def test_a_rank_that_left_nothing_is_named_where_others_only_lost_it(tmp_path: Path) -> None:
    closed = "[gloo] Connection closed by peer"
    content = {"rank": 0, "host": "worker1", "type": "RuntimeError", "message": closed}
    (tmp_path / "error-0.json").write_text(json.dumps(content))
    alone = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert alone.startswith("Rank 0 ") and alone.endswith(f"worker1: RuntimeError: {closed}.")
    (tmp_path / "spec.json").write_text(json.dumps({"work": {"workers": 2, "slots_per_worker": 1}}))
    silent = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert silent.startswith("Rank 1 ") and silent.endswith(f"RuntimeError: {closed}.")
    assert "rank 0" in silent and "worker1" in silent
    # Where each node has a log, that of the rank's node says more.
    (tmp_path / "launch.json").write_text(json.dumps({"nodes": ["worker1", "worker2"]}))
    (tmp_path / "logs").mkdir()
    for node, line in (("worker1", "Closing."), ("worker2", "/bin/sh: python: not found")):
        (tmp_path / "logs" / f"{node}.log").write_text(f"{line}\n")
    logged = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert logged.startswith("Rank 1 ") and "worker2 ends with: /bin/sh: python: not found;" in logged
    (tmp_path / "rank-1.json").write_text("{}")
    assert cause_of_failure(tmp_path, tmp_path / "none.log", 1) == alone
    # The rendezvous store may be lost together with the rank.
    (tmp_path / "rank-1.json").unlink()
    content |= {"type": "PeerError", "message": "The rendezvous store has not answered for 4 s."}
    (tmp_path / "error-0.json").write_text(json.dumps(content))
    silent = cause_of_failure(tmp_path, tmp_path / "none.log", 1)
    assert silent.startswith("Rank 1 ") and "PeerError" in silent


TORCHRUN_SAYS = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-11-24_23:44:06
  host      : worker2
  rank      : 1 (local_rank: 0)
  exitcode  : -{signal} (pid: 32253)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal {signal} received by PID 32253
============================================================
"""
SPARK_GOES_ON = "RuntimeError: TorchDistributor failed during training. View stdout logs for details."


def test_a_rank_that_a_signal_ended_is_named_with_its_node_and_the_signal(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "master.log"
    log.parent.mkdir()

    def said(number: int, prefix: str = "") -> str:
        lines = (TORCHRUN_SAYS.format(signal=number) + SPARK_GOES_ON).splitlines()
        log.write_text("".join(f"{prefix}{line}\n" for line in lines))
        return cause_of_failure(tmp_path, tmp_path / "none.log", 1)

    assert said(9) == "Rank 1 on worker2 was killed by signal 9 (SIGKILL)."
    assert said(7, prefix="[2026-11-24] [rank=1] || ") == "Rank 1 on worker2 was killed by signal 7 (SIGBUS)."
    assert said(99) == "Rank 1 on worker2 was killed by signal 99."
    assert "TorchDistributor failed" in said(15)  # with this signal torchrun ends the others
    noticed = {"rank": 0, "host": "worker1", "type": "PeerError", "message": "Rank 1 on worker2 is gone."}
    (tmp_path / "error-0.json").write_text(json.dumps(noticed))
    assert said(9) == (
        "Rank 1 on worker2 was killed by signal 9 (SIGKILL); rank 0 on worker1 noticed: "
        "PeerError: Rank 1 on worker2 is gone."
    )
    # A rank that failed by itself is the cause, whatever happened to others then.
    (tmp_path / "error-0.json").write_text(json.dumps(noticed | {"type": "DataError", "message": "Damaged."}))
    assert said(9) == "Rank 0 on worker1: DataError: Damaged."


def test_a_stop_is_the_cause_where_ranks_only_lost_each_other(tmp_path: Path) -> None:
    def error(kind: str, message: str) -> None:
        content = {"rank": 1, "host": "worker2", "type": kind, "message": message}
        (tmp_path / "error-1.json").write_text(json.dumps(content))

    log = tmp_path / "ansible.log"
    log.write_text(f"fatal: [worker1]: FAILED! => \n    msg: The container 1 is gone: {STOPPED}.\n")
    for exit_code in (None, 1):  # one worker may have noted a failure before it was stopped
        assert STOPPED in cause_of_failure(tmp_path / "nothing", log, exit_code)
        error("RuntimeError", "[gloo] Connection closed by peer")
        assert STOPPED in cause_of_failure(tmp_path, log, exit_code)
        error("DataError", "The data are damaged.")
        assert STOPPED not in cause_of_failure(tmp_path, log, exit_code)


def test_what_ansible_says_over_several_lines_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "fatal: [a -> b]: FAILED! => \n    msg: |-\n        One\n        two.\n    rc: 1\n"
        "other\n"
        "failed: [c] (item=1) => FAILED!\n    msg: non-zero return code\n"
    )
    assert failure_message(log) == "a: One two."
    log.write_text(
        "fatal: [b]: FAILED! => \n    msg: non-zero return code\n    rc: 1\n"
        "    stderr: |-\n        Warning: first\n        no room: at all\n    stderr_lines: <omitted>\n"
    )
    assert failure_message(log) == "b: no room: at all"
    assert failure_message(tmp_path / "none") is None
    assert step_under_way(tmp_path / "none") is None
    log.write_text("nothing of use\n")
    assert failure_message(log) is None


def test_a_reason_is_short_and_without_secrets() -> None:
    assert sentence('Refused: {"password": "abc"}\nat https://ada:pw@store') == (
        'Refused: {"password": "***"} at https://***@store.'
    )
    assert len(sentence("x" * 1000)) == 400


def test_the_archive_depends_on_the_code_alone(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        package = tmp_path / name / "training"
        (package / "__pycache__").mkdir(parents=True)
        (package / "a.py").write_text("A = 1\n")
        (package / "__pycache__" / "a.py").write_text(name)
        (package / "notes.txt").write_text(name)
        (package / "a.py").chmod(0o600 if name == "one" else 0o755)
        digests.append(sha256(build_archive(package)))
    assert digests[0] == digests[1]
    (tmp_path / "two" / "training" / "a.py").write_text("A = 2\n")
    assert sha256(build_archive(tmp_path / "two" / "training")) != digests[0]
    with pytest.raises(UserError, match=str(tmp_path / "none")):
        build_archive(tmp_path / "none")


def test_progress_in_words() -> None:
    progress = Progress(epochs=2)
    assert progress.text() == "starting" and progress.seconds_left is None

    def add(**event: Any) -> None:
        progress.add(json.dumps(event))

    add(event="start", time=100.0, epochs=2, steps_per_epoch=10, world_size=1, parameters=1)
    assert progress.text() == "training starts"
    add(event="step", time=105.0, epoch=1, step=5, steps=10, loss=0.614, lr=0.1, samples_per_s=209.6)
    assert figures(progress.text()) == ["1", "2", "0.61", "210"]  # epoch of how many, loss, samples/s
    assert progress.seconds_left == pytest.approx(15)
    progress.add('{"event": "step", "ti')  # cut off
    progress.add("[]")
    add(event="step", time=110.0, epoch=1, step=10, steps=10, loss=None, lr=0.1, samples_per_s=209.6)
    assert "loss nan" in progress.text()
    add(event="epoch", time=111.0, epoch=1, train_loss=0.6, seconds=11.0)
    assert progress.epoch_figures == [{"epoch": 1, "train_loss": 0.6, "seconds": 11.0}]
    add(event="end", time=130.0, weights_digest="w")
    assert progress.ended and not figures(progress.text())
    rough = [duration(seconds).removeprefix("about ") for seconds in (1, 33, 70, 600, 7200)]
    assert rough == ["5 s", "35 s", "1 min", "10 min", "2.0 h"]


def test_the_step_that_a_playbook_has_begun_last(tmp_path: Path) -> None:
    log = tmp_path / "prepare.log"
    log.write_text("PLAY [Prepare] ***\n\nTASK [dataset : Find [some] files] *** \nok: [master]\n")
    assert step_under_way(log) == "Find [some] files"
    with log.open("a") as file:
        file.write("\nTASK [Describe the node] ****\n")
    assert step_under_way(log) == "Describe the node"
