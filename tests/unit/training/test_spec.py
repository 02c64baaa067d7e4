"""The run specification: valid or one clear sentence, equal or a different digest."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from training.settings import canonical_json
from training.spec import (
    Conditions,
    RunSpec,
    SpecError,
    Work,
    explain,
    read_spec,
)
from training.workloads.text_classification.settings import Data

DATA = {"train": 100, "validation": 20, "seed": 1, "max_length": 16}
WORK = {"data": DATA, "data_digest": "0" * 64, "workers": 2, "epochs": 20, "seed": 1}


def work(**changes: Any) -> Work:
    return Work.model_validate(WORK | changes)


def complaint(kind: type[BaseModel], fields: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(fields)
    return explain(caught.value)


def test_importing_it_needs_neither_torch_nor_transformers() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules)"
    code = f"import sys, training.spec; sys.exit(bool({heavy}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        work,
        data=st.just(DATA | {"train": 64 * 512}),
        workers=st.integers(1, 64),
        epochs=st.integers(1, 1000),
        seed=st.integers(0, 2**31 - 1),
        batch_per_worker=st.integers(1, 512),
        learning_rate=st.floats(1e-9, 1),
        weight_decay=st.floats(0, 1),
    ),
    st.builds(
        Conditions,
        threads=st.integers(1, 64),
        pinning=st.text(min_size=1, max_size=50),
        deterministic=st.booleans(),
    ),
)
def test_it_round_trips_through_json(work: Work, conditions: Conditions) -> None:
    spec = RunSpec(stack="ddp", work=work, conditions=conditions)
    again = RunSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert again.run_id == spec.run_id
    assert RunSpec.model_validate(spec.model_dump(mode="json")) == spec


def test_the_run_id_is_readable_and_changes_with_every_part() -> None:
    spec = RunSpec(stack="ddp", work=work())
    assert spec.run_id == f"ddp-w2-e20-s1-{spec.digest[:8]}"
    others = [
        RunSpec(stack="spark", work=work()),
        RunSpec(stack="ddp", work=work(weight_decay=0.02)),
        RunSpec(stack="ddp", work=work(), conditions=Conditions(threads=2)),
    ]
    assert len({spec.digest, *(other.digest for other in others)}) == 4
    assert others[0].work.digest == spec.work.digest


def test_a_condition_that_came_later_changes_a_digest_only_where_it_is_used() -> None:
    before = {"threads": 1, "pinning": "none", "link_rate": None, "device": "cpu", "compile": False}
    text = json.dumps(before, sort_keys=True, separators=(",", ":"))
    assert Conditions().digest == hashlib.sha256(text.encode()).hexdigest()
    run = RunSpec(stack="ddp", work=work())
    assert '"tokenizing"' not in canonical_json(run) and '"tokenizing"' in run.model_dump_json()
    later = (
        *({"tokenizing": "in_loop"}, {"tokenizing": "in_run"}, {"reporting": "step"}),
        *({"runtime": "native"}, {"launcher": "none"}, {"rank_environment": {"NCCL_DEBUG": "INFO"}}),
        *({"slow_worker": 0.5}, {"startup_hook": "install"}, {"data_place": "shared"}, {"rank_0": "master"}),
        {"scoring": "evaluate"},
        *({"libraries": "newest"}, {"threads": "stack"}, {"evaluation_batch": 64}, {"program": "empty"}),
    )
    changed = [Conditions.model_validate(each) for each in later]
    assert len({Conditions().digest, *(each.digest for each in changed)}) == 16
    before.pop("threads")
    assert all(each.model_dump(mode="json") | before == each.model_dump(mode="json") for each in changed)
    runs = [RunSpec(stack="ddp", work=work(), conditions=each) for each in changed]
    assert len({run.run_id, *(each.run_id for each in runs)}) == 16
    assert "slow_worker: " in complaint(Conditions, {"slow_worker": 1.0})
    assert "tokenizing: " in complaint(Conditions, {"tokenizing": "after"})
    assert "startup_hook: " in complaint(Conditions, {"startup_hook": "always"})
    assert "libraries: " in complaint(Conditions, {"libraries": "old"})
    assert "threads" in complaint(Conditions, {"threads": "all"})
    said = complaint(RunSpec, {"stack": "ddp", "work": WORK, "conditions": {"script_output": "stack"}})
    assert "script_output: stack is of scripts, and text-classification is none" in said
    for needing in ({"slow_worker": 0.5}, {"tokenizing": "in_run"}):
        assert "which threads: stack leaves open" in complaint(Conditions, {"threads": "stack"} | needing)


def test_an_empty_program_has_nothing_of_training() -> None:
    spec = RunSpec(stack="ddp", work=work(), conditions=Conditions(program="empty", runtime="native"))
    assert spec.bare and spec.run_id.startswith("ddp-empty-w2-e20-s1-")
    assert not RunSpec(stack="ddp", work=work()).bare
    for name, value in (
        *(("tokenizing", "in_run"), ("save", "last"), ("predictions", True), ("metrics", ["f1"])),
        *(("trace", {"steps": 1}), ("evaluation", "none"), ("bits", "portable"), ("data_place", "shared")),
    ):
        said = complaint(Conditions, {"program": "empty", name: value})
        assert f"program: empty trains nothing, so it has nothing for {name}; leave out" in said
    assert "program: " in complaint(Conditions, {"program": "none"})
    script = work().model_dump() | {"workload": "script", "model": {}, "warmup_steps": 500}
    script |= {"data": {"script": "train.py", "train": 500}}
    said = complaint(RunSpec, {"stack": "ddp", "work": script, "conditions": {"program": "empty"}})
    assert "program: empty stands beside training whose first and last step are known, and train.py" in said


def test_a_setting_of_the_work_that_came_later_changes_a_digest_only_where_it_is_used() -> None:
    # As it was before there were workloads, schedules and optimisers to choose from.
    assert work().digest == "70bb0014422e0bb081cef6d021c72e287fc2ad692113de3582cc06d2a5cd53f8"
    assert RunSpec(stack="ddp", work=work()).run_id == "ddp-w2-e20-s1-6154cbb0"
    later: tuple[dict[str, Any], ...] = (
        *({"optimiser": "sgd"}, {"optimiser_implementation": "for_loop"}, {"momentum": 0.5}),
        *({"schedule": "cosine"}, {"clip_gradients": 1.0}),
        {"workload_digest": "1" * 64, "workload": "mine"},
        *({"padding": "longest"}, {"padding": "none"}, {"model": {"last_layer": "first_token"}}),
        *({"dropout_draws": "16_bit"}, {"model": {"attention_dropout": 0.1}}, {"grouping": "length"}),
        {"precision": "bf16"},
    )
    assert len({work().digest, *(work(**each).digest for each in later)}) == 14


def test_the_former_name_of_dense_is_read_and_stays_in_digests() -> None:
    former = work(gradient_sync="allreduce")
    assert former == work() and former.gradient_sync == "dense"
    assert former.digest == work(gradient_sync="dense").digest
    assert '"gradient_sync":"allreduce"' in canonical_json(RunSpec(stack="ddp", work=former))
    others = {work(gradient_sync=name).digest for name in ("auto", "rows", "bf16", "fp16", "powersgd")}
    assert len({former.digest, *others}) == 6
    assert "gradient_sync: " in complaint(Work, WORK | {"gradient_sync": "sparse"})


def test_powersgd_keeps_what_no_checkpoint_has() -> None:
    said = complaint(Work, WORK | {"gradient_sync": "powersgd", "checkpoint_every_epochs": 1})
    assert "leave out checkpoint_every_epochs and checkpoint_every_steps" in said


def test_the_order_and_the_notation_of_ranks_variables_mean_nothing() -> None:
    one = Conditions.model_validate({"rank_environment": {"NCCL_IB_DISABLE": 0, "NCCL_DEBUG": "INFO"}})
    two = Conditions.model_validate({"rank_environment": {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0"}})
    assert one == two and one.digest == two.digest
    assert one.rank_environment == {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0"}
    assert Conditions(rank_environment={}).digest == Conditions().digest
    again = Conditions.model_validate_json(one.model_dump_json())
    assert again == one


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"NCCL-DEBUG": "INFO"},
            "rank_environment: 'NCCL-DEBUG' is no name of a variable: use letters, digits",
        ),
        ({"1ST": "x"}, "'1ST' is no name of a variable"),
        *[
            ({name: "1"}, f"rank_environment: {name} is set by launching or training itself: leave it out")
            for name in (
                *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
                *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TRAINBED_ENV_DIGEST", "PYTHONPATH", "PATH"),
            )
        ],
        ({"NCCL_DEBUG": ""}, "the value of NCCL_DEBUG must be text of 1 to 1,000 printable ASCII characters"),
        ({"NCCL_DEBUG": "INFO\n"}, "the value of NCCL_DEBUG must be text"),
        ({"NCCL_DEBUG": " INFO"}, "the value of NCCL_DEBUG must be text"),
        ({"NCCL_DEBUG": "a\\b"}, "the value of NCCL_DEBUG must be text"),
        ({"NCCL_DEBUG": False}, "rank_environment.NCCL_DEBUG: input should be a valid string, not False"),
        (["NCCL_DEBUG=INFO"], "rank_environment: should be a mapping, not ['NCCL_DEBUG=INFO']"),
        ({f"A{number}": "1" for number in range(101)}, "it has 101 variables, and 100 are the most"),
    ],
)
def test_a_variable_that_ranks_can_not_have_is_refused_in_one_sentence(variables: Any, said: str) -> None:
    sentence = complaint(Conditions, {"rank_environment": variables})
    assert said in sentence and "\n" not in sentence


@pytest.mark.parametrize("value", ["=eth1", "^docker0,lo", "mlx5_0:1", "a b", "#1", "${x}", "x" * 1000])
def test_values_that_settings_of_networks_have_are_taken(value: str) -> None:
    assert Conditions(rank_environment={"NCCL_X": value}).rank_environment == {"NCCL_X": value}


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        work().seed = 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": "5e-5"}, "learning_rate: input should be a valid number, not '5e-5' (YAML reads"),
        ({"workers": 0}, "workers: input should be greater than or equal to 1, not 0"),
        ({"workers": True}, "workers: input should be a valid integer, not True"),
        ({"learning_rate": float("inf")}, "learning_rate: input should be a finite number"),
        ({"data_digest": "abc"}, "data_digest: "),
        ({"epoch": 3}, "epoch: is not a known setting"),
        (
            {"data": DATA | {"max_length": 9000}},
            "data.max_length: input should be less than or equal to 8192",
        ),
        ({"model": {"hidden": 10, "heads": 3}}, "model: hidden (10) must be a multiple of heads (3)"),
        ({"batch_per_worker": 51}, "a batch of 102 (2 ranks of 51) is larger than the 100 samples to train"),
        ({"gradient_accumulation": 33}, "a batch of 32 samples can't be computed in 33 parts"),
        ({"model": {"init": "pretrained"}}, "model.init: pretrained needs data.pretrained"),
        ({"model": {"init": "hub"}}, "model.init: input should be 'scratch' or 'pretrained', not 'hub'"),
        ({"model": {"init": "pretrained", "layers": 3}}, "model.layers: is not a known setting"),
        ({"data": DATA | {"source": "files"}}, "data: train_file goes with source: files, and only with it"),
        ({"data": DATA | {"train_file": "x.csv"}}, "data: train_file goes with source: files"),
        ({"data": DATA | {"validation_file": "x.csv"}}, "data: validation_file needs a train_file"),
        (
            {"data": DATA | {"tokenizer": "pretrained"}},
            "data: pretrained (which encoder) goes with tokenizer",
        ),
        ({"data": DATA | {"pretrained": "x"}}, "data: pretrained (which encoder) goes with tokenizer"),
        ({"data": DATA | {"train": 0}}, "data.train: input should be greater than or equal to 1, not 0"),
        ({"data": DATA | {"source": "imdb2"}}, "data.source: "),
        (
            {"data": DATA | {"vocabulary": 10}},
            "data.vocabulary: input should be greater than or equal to 200",
        ),
        ({"model": {"dropout": 1.0}}, "model.dropout: input should be less than 1"),
        ({"keep_checkpoints": 0}, "keep_checkpoints: input should be greater than or equal to 1"),
        ({"weight_decay": -0.1}, "weight_decay: input should be greater than or equal to 0"),
        ({"epochs": 2.5}, "epochs: input should be a valid integer"),
        ({"precision": "fp8"}, "precision: "),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(changes: dict[str, Any], said: str) -> None:
    sentence = complaint(Work, WORK | changes)
    assert said in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_what_is_missing_is_said() -> None:
    assert "seed: is missing" in complaint(Data, {"train": 1, "validation": 1, "max_length": 16})


@pytest.mark.parametrize("stack", ["", "DDP", "d-d-p", "2ddp", "ddp\n"])
def test_a_stack_is_named_in_lower_case_letters_and_digits(stack: str) -> None:
    assert "stack: " in complaint(RunSpec, {"stack": stack, "work": WORK})


@pytest.mark.parametrize(
    ("last_batch", "workers", "steps"), [("keep", 1, 4), ("drop", 1, 3), ("keep", 2, 2), ("drop", 2, 1)]
)
def test_steps_of_an_epoch(last_batch: str, workers: int, steps: int) -> None:
    assert work(last_batch=last_batch, workers=workers, batch_per_worker=32).steps_per_epoch == steps


def test_a_file_that_is_not_there_or_not_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.json can't be read"):
        read_spec(RunSpec, tmp_path / "absent.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(SpecError, match=r"broken\.json is not valid: "):
        read_spec(RunSpec, broken)


def test_a_trials_values_take_the_place_of_the_runs_own() -> None:
    from training.launchers.determined_search import with_values

    run = RunSpec(stack="determined", work=work())
    trial = with_values(run, {"learning_rate": 0.001, "warmup_steps": 7})
    assert (trial.work.learning_rate, trial.work.warmup_steps) == (0.001, 7)
    assert trial.model_dump() == run.model_dump() | {"work": trial.work.model_dump()}
    with pytest.raises(SpecError, match="not fields of the work: learning_rat; its fields are "):
        with_values(run, {"learning_rat": 0.1})
    with pytest.raises(SpecError, match=r"A value of the search.*learning_rate"):
        with_values(run, {"learning_rate": -1.0})
