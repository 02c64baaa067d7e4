"""Memory of a training step by part, what settings save, and what fits a small card.

python -m tests.benchmarks.memory --data DIR (a prepared data set of 512 tokens or more) [--out FOLDER]

Each measurement is made in a process of its own, with one thread. After each of them memory.json and
memory.md are written; what memory.json has already is not measured again. On a GPU (--device cuda) it has not
been run yet.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from experiments.report.formats import GROUPED, PERCENT, RATIO, TENTHS, Value, number, quantity
from experiments.report.tables import Table, columns
from tests.benchmarks.bert import SHAPES, Case, Shape, work_of
from tests.benchmarks.machine import described
from tests.benchmarks.memory_case import STEPS, Question, answer
from tests.benchmarks.pages import machine_table, markdown
from tests.benchmarks.side_by_side import side_by_side
from training.errors import DataError
from training.util.files import write_json
from training.util.network import free_port

MIB: Final = 1 << 20
LARGEST: Final = 256  # samples that are tried at once
BUDGET: Final = 3 << 30  # bytes; the card that the dissertation had

WHOLE: Final = (Case("tiny", 128, 32), Case("base", 128, 16))
"""Whose parts are measured, with each way to save memory."""

COMPARED: Final = (
    Case("tiny", 128, 32),
    Case("tiny", 512, 32),
    Case("mini", 128, 32),
    Case("base", 128, 2),
    Case("tiny", 128, 32, workers=2),
    Case("tiny", 128, 32, workers=2, gradient_sync="rows"),
    Case("tiny", 128, 32, skipping=True),
    Case("tiny", 512, 32, skipping=True),
    Case("tiny", 128, 32, skipping=True, fast_dropout=True, bf16=True),
    Case("tiny", 512, 32, skipping=True, fast_dropout=True, bf16=True),
)
"""Whose peak is compared with a plain loop's."""

LENGTHS: Final = (128, 512)
FITTED: Final[tuple[Shape, ...]] = ("large", "base", "mini", "tiny")
PLAIN: Final = "plain loop"
PARTS: Final = ("weights", "gradients", "optimiser", "activations", "peak")

INTRODUCTION: Final = """\
# Memory

What a training step needs, what settings save, and which batches fit a card of 3 GB, where the
dissertation had to give up BERT-base. Written by `python -m tests.benchmarks.memory --data DIR`, where DIR
is a prepared data set of reviews. The models are Google's BERTs from scratch, with AdamW, dropout and a
vocabulary from the reviews. MiB are 2^20 bytes.
"""
PARTED: Final = """\
MiB measured, and in brackets by arithmetic. Measured is what is resident beyond the process before it has
a model (on a GPU: what torch's allocator has given out). Arithmetic counts 4 bytes a parameter for
weights, 4 for gradients, and 8 for AdamW's two moments; autocast keeps them all in fp32. Activations are
what autograd keeps after a forward pass, tensor by tensor; with bf16 that includes copies of the weights.
The peak is weights, the optimiser's state, and the larger of gradients and activations, as gradients
appear while activations go. With accumulation both are there. With checkpointing the layers' inputs are,
and the activations of one layer. The measured peak also has what lives inside operators, such as
gradients of activations."""
FITTING: Final = """\
The largest batch, of powers of two up to {largest}, that fits beyond the process before it has a
model. (On a CPU the process may have no more addresses than that; on a GPU torch's allocator gives out no
more.) Before the semicolon in brackets: the largest part of a batch with `gradient_accumulation`, which
also holds the gradients of the parts before it; in such parts a batch may be as large as one likes. It is
what a run that is short of memory advises. After the semicolon: the largest batch by arithmetic, without
what lives inside operators."""
BESIDE: Final = """\
Peak of a whole process in MiB after {steps} steps. The libraries are included, and are the same in all. The
plain loop is as in PyTorch's tutorials, with the same batches and optimiser, and the same model but for
settings that the first column names; with two workers it is DistributedDataParallel as it comes, and the peak
is that of the worker with the higher one. *Tuned* is the allocator as runs have it (`allocator: tuned`,
which keeps freed memory); the others have the C library's own. The last column is of the larger one. What is
kept lies in blocks of sizes that were asked for before, so a process can hold more than it uses; with
plain settings it does, the more the longer the samples are."""


@dataclass(frozen=True)
class Answer:
    """A question, and what was found."""

    question: Question
    found: Mapping[str, Any]  # see the functions of memory_case


def with_each_saving(case: Case) -> list[Case]:
    """A plain case, and the same with each setting that saves memory."""
    return [
        case,
        replace(case, accumulation=min(4, case.batch)),
        replace(case, checkpointing=True),
        replace(case, bf16=True),
        replace(case, checkpointing=True, bf16=True),
        replace(case, skipping=True),
    ]


def questions(data: str, device: str, budget: int, largest: int) -> Iterator[Question]:
    """All that is measured; what takes longest comes last. On a GPU no two workers: they need one each."""
    for case in COMPARED:
        if device == "cuda" and case.workers > 1:
            continue
        if device == "cpu":
            yield Question("engine", case, data, device, keeps_freed_memory=True)
        yield Question("engine", case, data, device)
        yield Question(PLAIN, case, data, device)
    fitted = [Case(shape, length, 2) for shape in FITTED for length in LENGTHS]
    slow = [replace(case, checkpointing=True) for case in fitted]
    for whole in WHOLE:
        for case in with_each_saving(whole):
            yield Question("parts", case, data, device)
    slow = [*slow, *(replace(case, bf16=True) for case in slow)]
    for case in (*fitted, *(replace(case, bf16=True) for case in fitted), *reversed(slow)):
        yield Question("fits", case, data, device, budget, largest)


def ask(question: Question) -> Answer:
    """Measure in a process of its own, with the libraries that this one has loaded.

    Raises:
        RuntimeError: that process failed; it has said why.
    """
    if question.case.workers > 1:
        return Answer(question, _of_several(question))
    context = multiprocessing.get_context("fork")  # this process itself uses no GPU
    found, put = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(put, question))
    process.start()
    put.close()
    try:
        return Answer(question, found.recv())
    except EOFError:
        process.join()
        raise RuntimeError(
            f"The process for {question.kind} of {question.case} ended with exit code {process.exitcode}."
        ) from None
    finally:
        process.join()


def _of_several(question: Question) -> dict[str, Any]:
    """The peak of the worker with the highest one; each is a process."""
    ranks, port, cores = range(question.case.workers), free_port(), sorted(os.sched_getaffinity(0))
    calls = [partial(answer, question, rank, port) for rank in ranks]
    found = side_by_side(calls, [cores[rank % len(cores)] for rank in ranks])
    return {"peak": max(each["peak"] for each in found)}


def _send(put: Connection, question: Question) -> None:
    put.send(answer(question))


def model(case: Case) -> str:
    """`BERT-tiny, 128 tokens`."""
    return f"BERT-{case.shape}, {case.length} tokens"


def parts_table(answers: Sequence[Answer]) -> Table:
    """Each part of a step's memory, measured and counted."""
    plain: dict[tuple[str, int], int] = {}
    rows: list[list[Value | str]] = []
    for one in answers:
        case, measured, counted = one.question.case, one.found["measured"], one.found["counted"]
        peak = plain.setdefault((case.shape, case.length), measured["peak"])
        cells = [
            Value(measured[name] / MIB, TENTHS, note=number(counted[name] / MIB, TENTHS)) for name in PARTS
        ]
        rows.append(
            [
                f"{model(case)}, batch {case.batch}",
                case.settings,
                *cells,
                Value(measured["peak"] / peak, PERCENT),
            ]
        )
    return Table(
        "Where a step's memory goes",
        PARTED,
        columns("model", "settings", *PARTS, "peak, of plain", words=("model", "settings")),
        rows,
    )


def savings(answers: Sequence[Answer]) -> list[str]:
    """What each setting takes of the plain peak, a sentence for each."""
    of_plain: dict[str, list[float]] = {}
    plain: dict[tuple[str, int], int] = {}
    for one in answers:
        case, peak = one.question.case, one.found["measured"]["peak"]
        before = plain.setdefault((case.shape, case.length), peak)
        of_plain.setdefault(case.settings, []).append(peak / before)
    of_plain.pop("plain", None)
    said = []
    for name, shares in of_plain.items():
        texts = dict.fromkeys(quantity(each, PERCENT) for each in sorted(shares))
        said.append(f"`{name}` takes {' to '.join(texts)} of the plain peak")
    return ["- " + ".\n- ".join(said) + "."] if said else []


def _loop(case: Case) -> str:
    """`BERT-tiny, 128 tokens, batch 32`, and what is not plain."""
    name = f"{model(case)}, batch {case.batch}"
    return name if case.settings == "plain" else f"{name}, {case.settings}"


def loops_table(answers: Sequence[Answer]) -> Table:
    """The peak of a process with the engine's loop, and with a plain one."""
    peaks: dict[Case, dict[str, int]] = {}
    for one in answers:
        question = one.question
        name = question.kind + (", tuned" if question.keeps_freed_memory else "")
        peaks.setdefault(question.case, {})[name] = one.found["peak"]
    names = list(dict.fromkeys(name for found in peaks.values() for name in found))
    whole = {case: found for case, found in peaks.items() if PLAIN in found}  # which is measured last
    most = {case: max(peak for name, peak in found.items() if name != PLAIN) for case, found in whole.items()}
    rows: list[list[Value | str]] = [
        [
            _loop(case),
            *(Value(found[name] / MIB) for name in names),
            Value(most[case] / found[PLAIN], RATIO),
        ]
        for case, found in whole.items()
    ]
    above = [
        f"{name} with {_loop(case)} ({number(peak / found[PLAIN], RATIO)})"
        for case, found in whole.items()
        for name, peak in found.items()
        if peak > found[PLAIN]
    ]
    verdict = (
        f"Above the plain loop: {'; '.join(above)}."
        if above
        else "The engine needs at most what the plain loop needs."
    )
    return Table(
        "Beside a plain loop",
        BESIDE.format(steps=number(STEPS)),
        columns("model", *names, "engine, of plain loop", words=("model",)),
        rows,
        after=[verdict],
    )


def batch_text(size: int, largest: int) -> str:
    """A batch in words; more than the largest was not tried."""
    return f"{number(size)} or more" if size >= largest else number(size) if size else "none"


def fit_text(found: Mapping[str, int] | None, largest: int) -> str:
    """What fits, in a table's cell."""
    if found is None:
        return "not measured"
    batch, part = (batch_text(found[name], largest) for name in ("batch", "part"))
    return f"{batch} ({part}; {number(found['arithmetic'], GROUPED)})"


def fits_table(answers: Sequence[Answer], budget: int) -> Table:
    """The largest batches that fit."""
    by_case: dict[tuple[Shape, int], dict[str, Mapping[str, int]]] = {}
    for one in answers:
        case = one.question.case
        by_case.setdefault((case.shape, case.length), {})[case.settings] = one.found
    names = list(dict.fromkeys(name for found in by_case.values() for name in found))
    largest = answers[0].question.largest
    rows = [
        [f"BERT-{shape}", number(length), *(fit_text(found.get(name), largest) for name in names)]
        for (shape, length), found in by_case.items()
    ]
    return Table(
        f"What fits {number(budget / MIB, GROUPED)} MiB",
        FITTING.format(largest=number(largest)),
        columns("model", "tokens", *names, words=("model",)),
        rows,
        after=[*base_sentences(by_case, largest), *largest_model(by_case)],
    )


def base_sentences(
    by_case: Mapping[tuple[Shape, int], Mapping[str, Mapping[str, int]]], largest: int
) -> list[str]:
    """With what BERT-base fits, by length."""
    said = []
    for (shape, length), found in by_case.items():
        if shape == "base":
            with_each = (f"{name}, {batch_text(sizes['batch'], largest)}" for name, sizes in found.items())
            said.append(
                f"The batch that fits with BERT-base at {number(length)} tokens: {'; '.join(with_each)}."
            )
    return said


def largest_model(by_case: Mapping[tuple[Shape, int], Mapping[str, Mapping[str, int]]]) -> list[str]:
    """The largest that fits with a batch of one or more; none while no larger one has been tried."""
    tried = {shape for shape, _ in by_case}
    fit = {shape for (shape, _), found in by_case.items() if any(each["batch"] for each in found.values())}
    there, too_large = (
        [each for each in SHAPES if each in fit],
        [each for each in SHAPES if each in tried - fit],
    )
    if not there or not too_large:
        return []
    return [f"The largest model that fits is BERT-{there[-1]}; with BERT-{too_large[0]} no batch does."]


def parameters(answers: Sequence[Answer]) -> str:
    """How many each model has."""
    found = {one.question.case.shape: one.found["counted"]["parameters"] for one in answers}
    sizes = (f"BERT-{shape} {number(count / 1e6, TENTHS)} million" for shape, count in found.items())
    return f"Parameters: {', '.join(sizes)}."


def page(answers: Sequence[Answer], missing: int, machine: Mapping[str, str], budget: int) -> str:
    """All tables of which something is known, as Markdown; `missing` measurements have not been made."""
    of = {kind: [each for each in answers if each.question.kind == kind] for kind in ("parts", "fits")}
    loops = [each for each in answers if each.question.kind not in of]
    tables = []
    if of["parts"]:
        table = parts_table(of["parts"])
        tables.append(replace(table, after=[parameters(of["parts"]), *savings(of["parts"])]))
    tables += [loops_table(loops)] if loops else []
    tables += [fits_table(of["fits"], budget)] if of["fits"] else []
    unfinished = f"**{number(missing)} measurements of this page have not been made.**\n" if missing else ""
    return "\n".join(
        filter(None, [INTRODUCTION, unfinished, *map(markdown, [*tables, machine_table(machine)])])
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a prepared data set")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--budget-mb", type=int, default=BUDGET // MIB, help="memory that batches must fit, in MiB"
    )
    parser.add_argument("--largest", type=int, default=LARGEST, help="batch that is tried to fit, at most")
    parser.add_argument("--out", type=Path, default=Path("benchmarks"), help="folder to write into")
    given = parser.parse_args(argv)
    budget = given.budget_mb * MIB
    try:
        work_of(Case(length=max(LENGTHS)), given.data)
    except DataError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    file, machine = given.out / "memory.json", described()
    known: list[dict[str, Any]] = []
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["machine"] != machine:
            sys.stderr.write(f"{file} is of another machine or other libraries; give another --out.\n")
            return 1
        known = kept["answers"]
        print(f"{file} has {len(known)} measurements, which are not made again.", flush=True)
    answers: list[Answer] = []
    asked = list(questions(str(given.data.resolve()), given.device, budget, given.largest))
    for question in asked:
        found = next((each["found"] for each in known if each["question"] == asdict(question)), None)
        try:
            answers.append(ask(question) if found is None else Answer(question, found))
        except RuntimeError as error:
            sys.stderr.write(f"{error} What was measured before is in {file}.\n")
            return 1
        if found is None:
            known.append(asdict(answers[-1]))
            write_json(file, {"machine": machine, "answers": known})
        text = page(answers, len(asked) - len(answers), machine, budget)
        (given.out / "memory.md").write_text(text, encoding="utf-8")
        print(f"{question.kind}, {model(question.case)}, {question.case.settings}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
