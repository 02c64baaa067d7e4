"""A step's memory by part, what fits a budget, and the tables made of them; real processes, tiny models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks import memory
from tests.benchmarks.bert import Case, work_of
from tests.benchmarks.memory import Answer
from tests.benchmarks.memory_case import Question
from tests.unit.training.training_helpers import Datasets, data_spec
from training.data.prepared import DESCRIPTION

CASE = Case("tiny", length=16, batch=32)
MIB = 1 << 20
MACHINE = {"processor": "made up"}


Ask = Callable[[Question], Answer]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """`memory.ask` in a process that has only loaded the libraries, as the command; this one has trained."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        yield lambda question: fresh.submit(memory.ask, question).result()


@pytest.fixture
def data(datasets: Datasets) -> str:
    """A small data set's folder."""
    return str(datasets(data_spec()).path)


def test_parts_are_what_arithmetic_says(ask: Ask, data: str) -> None:
    found = ask(Question("parts", CASE, data)).found
    measured, counted = found["measured"], found["counted"]
    assert counted["weights"] == 4 * counted["parameters"] + 2 * 512 * 8  # and two buffers of positions
    assert counted["gradients"] == 4 * counted["parameters"]
    assert 8 * counted["parameters"] <= counted["optimiser"] < 8 * counted["parameters"] + 1000
    # Pages, and tensors that share the heap.
    for part in ("weights", "gradients", "optimiser", "activations"):
        assert measured[part] == pytest.approx(counted[part], rel=0.25, abs=0.75 * MIB), part
    assert measured["peak"] >= 0.9 * counted["peak"]


def test_what_saves_memory_saves_activations(ask: Ask, data: str) -> None:
    kept = {
        name: ask(Question("parts", case, data)).found["counted"]["activations"]
        for name, case in {
            "plain": CASE,
            "parts": replace(CASE, accumulation=4),
            "recomputed": replace(CASE, checkpointing=True),
        }.items()
    }
    assert kept["parts"] == pytest.approx(kept["plain"] / 4, rel=0.1)
    assert kept["recomputed"] < kept["plain"] / 3


def test_the_batch_that_fits_grows_with_the_budget(ask: Ask, data: str) -> None:
    # Far more than the addresses that a C library reserves for another thread.
    none, some, more = (
        ask(Question("fits", replace(CASE, batch=2), data, "cpu", room * MIB, 4096)).found
        for room in (4, 300, 900)
    )
    assert none == {"part": 0, "batch": 0, "arithmetic": 0}
    assert 0 < some["part"] < more["part"] and 0 < some["arithmetic"] < more["arithmetic"]
    assert all(found["part"] <= found["batch"] <= 2 * found["arithmetic"] for found in (some, more))


def test_both_loops_have_a_peak(ask: Ask, data: str) -> None:
    engine, plain = (ask(Question(kind, CASE, data)).found["peak"] for kind in ("engine", "plain loop"))
    assert min(engine, plain) > 50 * MIB
    assert engine == pytest.approx(plain, rel=0.2)


def test_of_two_workers_the_higher_peak_counts(ask: Ask, data: str) -> None:
    two = replace(CASE, batch=8, workers=2, gradient_sync="rows")
    engine, plain = (ask(Question(kind, two, data)).found["peak"] for kind in ("engine", "plain loop"))
    assert min(engine, plain) > 50 * MIB
    assert engine == pytest.approx(plain, rel=0.2)


def test_a_process_that_fails_is_told(ask: Ask, data: str) -> None:
    with pytest.raises(RuntimeError, match=r"^The process for parts of Case\(.*\) ended with exit code 1\.$"):
        ask(Question("parts", replace(CASE, length=64), data))


def of_parts(case: Case, factor: float) -> Answer:
    """A made-up answer, of so many times 100 MiB at its peak."""
    sizes = {"weights": 10, "gradients": 10, "optimiser": 20, "activations": 60, "peak": 100}
    counted = {name: size * MIB for name, size in sizes.items()} | {"parameters": 2_600_000}
    measured = {name: round(size * factor * MIB) for name, size in sizes.items()}
    return Answer(Question("parts", case, "data"), {"measured": measured, "counted": counted})


def of_fit(case: Case, batch: int, part: int, arithmetic: int) -> Answer:
    """A made-up answer."""
    return Answer(
        Question("fits", case, "data", largest=256), {"batch": batch, "part": part, "arithmetic": arithmetic}
    )


def of_loops(engine: int, tuned: int, plain: int) -> list[Answer]:
    """Made-up peaks in MiB."""
    return [
        Answer(Question("engine", CASE, "data", keeps_freed_memory=True), {"peak": tuned * MIB}),
        Answer(Question("engine", CASE, "data"), {"peak": engine * MIB}),
        Answer(Question("plain loop", CASE, "data"), {"peak": plain * MIB}),
    ]


def test_parts_stand_beside_arithmetic_and_the_plain_peak() -> None:
    answers = [of_parts(CASE, 1.1), of_parts(replace(CASE, bf16=True), 0.55)]
    table = memory.parts_table(answers)
    assert table.texts[0][1:] == [
        "plain", "11.0 (10.0)", "11.0 (10.0)", "22.0 (20.0)", "66.0 (60.0)", "110.0 (100.0)", "100 %",
    ]  # fmt: skip
    assert table.texts[1][1] == "precision: bf16" and table.texts[1][-1] == "50 %"
    assert memory.savings(answers) == ["- `precision: bf16` takes 50 % of the plain peak."]
    assert memory.savings(answers[:1]) == []
    assert memory.parameters(answers) == "Parameters: BERT-tiny 2.6 million."


def test_an_engine_that_needs_more_than_a_plain_loop_is_said() -> None:
    fine = memory.loops_table(of_loops(engine=700, tuned=720, plain=720))
    assert fine.texts == [["BERT-tiny, 16 tokens, batch 32", "720", "700", "720", "1.00"]]
    assert fine.after == ["The engine needs at most what the plain loop needs."]
    more = memory.loops_table(of_loops(engine=700, tuned=756, plain=720))
    assert more.texts[0][-1] == "1.05"
    assert more.after == ["Above the plain loop: engine, tuned with BERT-tiny, 16 tokens, batch 32 (1.05)."]
    assert memory.loops_table(of_loops(1, 1, 1)[:2]).texts == []


def test_what_fits_is_told_with_what_is_not_known() -> None:
    base = Case("base", 128, 2)
    answers = [
        of_fit(base, 16, 8, 20),
        of_fit(replace(base, checkpointing=True), 256, 256, 900),
        of_fit(replace(base, length=512), 0, 0, 0),
    ]
    table = memory.fits_table(answers, 3 << 30)
    assert table.title == "What fits 3,072 MiB"
    assert table.texts == [
        ["BERT-base", "128", "16 (8; 20)", "256 or more (256 or more; 900)"],
        ["BERT-base", "512", "none (none; 0)", "not measured"],
    ]
    assert table.after == [
        "The batch that fits with BERT-base at 128 tokens: plain, 16; activation_checkpointing, 256 or more.",
        "The batch that fits with BERT-base at 512 tokens: plain, none.",
    ]
    answers.append(of_fit(Case("large", 128, 2), 0, 0, 0))
    assert memory.fits_table(answers, 3 << 30).after[-1] == (
        "The largest model that fits is BERT-base; with BERT-large no batch does."
    )


def test_the_page_says_what_is_missing() -> None:
    answers = [of_parts(CASE, 1.0), *of_loops(1, 1, 1), of_fit(CASE, 4, 2, 5)]
    heads = ["# Memory", "## Where a step's memory goes", "## Beside a plain loop", "## What fits 3,072 MiB"]
    whole = memory.page(answers, 0, MACHINE, 3 << 30)
    assert [line for line in whole.splitlines() if line.startswith("#")] == [*heads, "## Machine"]
    assert "have not been made" not in whole
    part = memory.page(answers[:1], 4, MACHINE, 3 << 30)
    assert "**4 measurements of this page have not been made.**" in part
    assert [line for line in part.splitlines() if line.startswith("#")] == [*heads[:2], "## Machine"]
    assert max(map(len, whole.splitlines())) <= 150


def test_what_is_known_is_not_measured_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question] = []

    def made_up(question: Question) -> Answer:
        asked.append(question)
        return Answer(question, {"peak": MIB})

    loops = [Question("engine", CASE, data), Question("plain loop", CASE, data)]
    monkeypatch.setattr(memory, "LENGTHS", (16,))
    monkeypatch.setattr(memory, "ask", made_up)
    monkeypatch.setattr(memory, "questions", lambda *_: iter(loops))
    arguments = ["--data", data, "--out", str(tmp_path)]
    assert memory.main(arguments) == 0
    assert memory.main(arguments) == 0
    assert asked == loops
    kept: dict[str, Any] = json.loads((tmp_path / "memory.json").read_text(encoding="utf-8"))
    assert [each["question"] for each in kept["answers"]] == [asdict(each) for each in loops]
    assert "The engine needs at most" in (tmp_path / "memory.md").read_text(encoding="utf-8")


def test_a_measurement_that_fails_ends_the_command_with_a_sentence(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "LENGTHS", (16,))
    monkeypatch.setattr(memory, "questions", lambda *_: iter([Question("parts", Case(), data)]))
    assert memory.main(["--data", data, "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"The process for parts of {Case()} ended with exit code 1. What was measured before is in "
        f"{tmp_path / 'memory.json'}.\n"
    )


def test_measurements_of_another_machine_are_not_mixed(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "LENGTHS", (16,))
    (tmp_path / "memory.json").write_text('{"machine": {}, "answers": []}', encoding="utf-8")
    assert memory.main(["--data", data, "--out", str(tmp_path)]) == 1
    assert "is of another machine or other libraries; give another --out" in capsys.readouterr().err


def test_every_shape_is_asked_about_on_the_card() -> None:
    asked = list(memory.questions("data", "cpu", 3 << 30, 256))
    fitted = [each.case for each in asked if each.kind == "fits"]
    assert {(case.shape, case.length) for case in fitted} == {
        (shape, length) for shape in ("tiny", "mini", "base", "large") for length in (128, 512)
    }
    assert len({json.dumps(asdict(each)) for each in asked}) == len(asked)
    on_gpu = list(memory.questions("data", "cuda", 3 << 30, 256))
    assert not any(each.keeps_freed_memory for each in on_gpu)
    assert {each.place for each in on_gpu} == {torch.device("cuda", 0)}
    several = [case for case in memory.COMPARED if case.workers > 1]
    assert {each.case.workers for each in on_gpu} == {1}
    assert len(on_gpu) == len(asked) - len(memory.COMPARED) - 2 * len(several)


def test_every_question_is_one_that_a_run_could_have(datasets: Datasets, tmp_path: Path) -> None:
    about = json.loads((datasets(data_spec()).path / DESCRIPTION).read_text(encoding="utf-8"))
    about["spec"] |= {"max_length": 512, "train": 64}
    (tmp_path / DESCRIPTION).write_text(json.dumps(about), encoding="utf-8")
    for question in memory.questions(str(tmp_path), "cpu", budget=3072 * MIB, largest=32):
        work = work_of(question.case, tmp_path)
        assert work.gradient_accumulation == question.case.accumulation <= question.case.batch
