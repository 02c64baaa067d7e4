"""A step's time by operator, what a core can do, and the tables made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from experiments.report.formats import MINUS
from tests.benchmarks import flop
from tests.benchmarks import profile as benchmark
from tests.benchmarks.bert import Bert, Case, begin, step
from tests.benchmarks.engine import Alone
from tests.benchmarks.operators import (
    ATTENTION,
    CLIPPING,
    COPIES,
    DATA,
    DRAWS,
    ELEMENTWISE,
    EMBEDDING,
    MATRIX,
    NORMALISATION,
    OPTIMISER,
    OUTSIDE,
    ROWS,
    STEP,
    Ranges,
    row_of,
    times_of,
)
from tests.benchmarks.peaks import Peak, bandwidth, best_time, matrix_peak, products_of
from tests.benchmarks.profile import Limits, Profile
from tests.unit.training.training_helpers import Datasets, data_spec
from training.errors import DataError
from training.metrics.phases import Phases

CASE = Case("tiny", length=16, batch=8, clip_gradients=1.0)
LIMITS = Limits(Peak((4, 5, 6), 2e9), Peak((7, 8, 9), 4e9), {"copy": 1e9, "triad": 2e9}, 512 << 20)


@pytest.mark.parametrize(
    ("names", "row"),
    [
        (["aten::addmm", "aten::linear", "phase: forward"], MATRIX),
        (["aten::mm", "AddmmBackward0", "phase: backward"], MATRIX),
        (
            ["aten::bmm", "aten::matmul", "aten::_scaled_dot_product_attention_math", "phase: forward"],
            ATTENTION,
        ),
        (["aten::mul", "aten::_scaled_dot_product_attention_math", "phase: forward"], ATTENTION),
        (["aten::_softmax_backward_data", "SoftmaxBackward0", "phase: backward"], ATTENTION),
        (["aten::_log_softmax_backward_data", "LogSoftmaxBackward0", "phase: backward"], COPIES),
        (
            ["aten::bernoulli_", "aten::dropout", "aten::scaled_dot_product_attention", "phase: forward"],
            DRAWS,
        ),
        (["aten::random_", "phase: forward"], DRAWS),
        (["aten::div_", "aten::dropout", "phase: forward"], ELEMENTWISE),
        (
            ["aten::sum", "autograd::engine::evaluate_function: AddmmBackward0", "phase: backward"],
            ELEMENTWISE,
        ),
        (["aten::native_layer_norm", "aten::layer_norm", "phase: forward"], NORMALISATION),
        (
            ["aten::fill_", "aten::embedding_dense_backward", "EmbeddingBackward0", "phase: backward"],
            EMBEDDING,
        ),
        (["aten::_fused_adamw_", "Optimizer.step#AdamW.step", "phase: optimiser"], OPTIMISER),
        (["Optimizer.zero_grad#AdamW.zero_grad", "phase: optimiser"], OPTIMISER),
        (["aten::linalg_vector_norm", "phase: optimiser"], CLIPPING),
        (["aten::to", "phase: data"], DATA),
        (["phase: data"], DATA),
        (["aten::copy_", "aten::clone", "phase: forward"], COPIES),
        (["phase: optimiser"], OUTSIDE),
        (
            ["AddmmBackward0", "autograd::engine::evaluate_function: AddmmBackward0", "phase: backward"],
            OUTSIDE,
        ),
        ([], OUTSIDE),
    ],
)
def test_an_operator_belongs_to_one_row(names: list[str], row: str) -> None:
    assert row_of([*names, STEP]) == row


def test_the_rows_of_a_real_step_are_all_of_it(datasets: Datasets) -> None:
    training = begin(Bert(CASE, datasets(data_spec()).path), Phases(), Alone())
    ranges = Ranges()
    training.phases = ranges
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            with record_function(STEP):
                step(training, torch.arange(8))
                ranges.end()
    events = profiler.events()
    times, calls = times_of(events)
    steps = [event.cpu_time_total / 1000 for event in events if event.name == STEP]
    assert len(steps) == 2
    assert sum(times.values()) == pytest.approx(sum(steps), rel=1e-3)
    assert list(times) == list(calls) == list(ROWS) and all(spent > 0 for spent in times.values())
    # Phases, the optimiser and autograd call operators.
    assert calls[OUTSIDE] > calls[OPTIMISER] > 0


def event(name: str, spent: float, caller: SimpleNamespace | None = None) -> SimpleNamespace:
    return SimpleNamespace(name=name, self_cpu_time_total=spent, cpu_parent=caller)


def test_time_is_an_operators_own_and_calls_are_its_callers() -> None:
    whole = event(STEP, 5000.0)
    product = event("aten::addmm", 3000.0, whole)
    events = [whole, product, event("aten::gelu", 2000.0, product), event("aten::gelu", 9000.0)]
    times, calls = times_of(events)
    assert {name: spent for name, spent in times.items() if spent} == {OUTSIDE: 5, MATRIX: 3, ELEMENTWISE: 2}
    assert {name: count for name, count in calls.items() if count} == {OUTSIDE: 1, MATRIX: 1}


@pytest.mark.parametrize("fast_dropout", [False, True])
@pytest.mark.parametrize("skipping", [False, True])
def test_counted_flop_is_that_of_arithmetic(skipping: bool, fast_dropout: bool, datasets: Datasets) -> None:
    case = replace(CASE, skipping=skipping, fast_dropout=fast_dropout)
    workload = Bert(case, datasets(data_spec()).path)
    chosen = torch.arange(8)
    lengths = benchmark.lengths(workload, chosen)
    assert (max(lengths) <= 16 and len(set(lengths)) > 1) if skipping else lengths == [16] * 8
    filling = benchmark.filling(workload, lengths)
    assert (filling > 0) == skipping
    computed = flop.by_arithmetic(workload.shape, lengths, workload.outputs, filling)
    assert flop.counted(begin(workload, Phases(), Alone()), chosen) == computed


def test_bf16_and_fp32_steps_differ_and_both_are_steps(datasets: Datasets) -> None:
    data, losses = datasets(data_spec()).path, []
    for bf16 in (False, True):
        training = begin(Bert(replace(CASE, bf16=bf16), data), Phases(), Alone())
        before = [each.detach().clone() for each in training.model.parameters()]
        for _ in range(2):  # the first step's learning rate is 0
            step(training, torch.arange(8))
        after = list(training.model.parameters())
        assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
        assert {each.dtype for each in after} == {torch.float32}
        losses.append(torch.cat([each.detach().flatten() for each in after]))
    assert not torch.equal(*losses)


def test_a_whole_measurement_is_made_of_real_steps(datasets: Datasets) -> None:
    found = benchmark.measure(CASE, datasets(data_spec()).path, rounds=1, count=2)
    assert (found.batches, found.rounds, found.flop) == (2, 1, found.flop_by_arithmetic)
    assert sum(found.calls.values()) > 100
    assert found.unprofiled_ms > 0
    assert 0 < sum(found.rows_ms.values()) <= 1.01 * found.profiled_ms


def test_texts_that_are_too_short_are_one_sentence(datasets: Datasets, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"have 16 tokens, and 128 are asked for; give another --length, or"):
        Bert(Case(), datasets(data_spec()).path)
    with pytest.raises(
        DataError, match=r"dataset.json can't be read \(No such file or directory\); give --data"
    ):
        Bert(Case(), tmp_path)


def test_samples_are_cut_to_the_length(datasets: Datasets) -> None:
    batch = Bert(replace(CASE, length=8), datasets(data_spec()).path).batch("train", torch.arange(3), 1)
    assert {name: tuple(each.shape) for name, each in batch.items() if name != "labels"} == {
        name: (3, 8) for name in batch if name != "labels"
    }
    assert batch["labels"].shape == (3,)


def made_up(rows: float, case: Case = CASE) -> Profile:
    """A profile whose rows take so many ms each, of a step of 100 ms; one of them calls 1,000 operators."""
    calls = {**dict.fromkeys(ROWS, 0.0), OUTSIDE: 1000.0}
    return Profile(case, 8, 5, 100.0, 102.0, dict.fromkeys(ROWS, rows), calls, 1e8, 1e8, 1_000_000)


def test_what_the_profiler_takes_is_taken_off_the_row_that_calls() -> None:
    found = made_up(9.0)
    assert found.profiler_us == pytest.approx(2.0)  # 2 ms longer, with 1,000 operators
    assert replace(found, profiled_ms=99.0).profiler_us == 0
    assert found.without(3.0) == pytest.approx({**dict.fromkeys(ROWS, 9.0), OUTSIDE: 6.0})


def test_rows_are_shares_of_a_step_and_what_is_left_is_a_row() -> None:
    table = benchmark.rows_table([made_up(103 / len(ROWS))], 2.0)
    assert (
        "is taken off there: 2.0 us, measured just before in the same way, on steps of 4 samples of 16"
        in " ".join(table.before.split())
    )
    texts = table.texts
    assert [row[0] for row in texts[: len(ROWS)]] == list(ROWS)
    assert [row[1] for row in texts[: len(ROWS)]] == ["9.4 % (9.4)"] * 10 + ["7.4 % (7.4)"]
    assert texts[len(ROWS) :] == [
        ["sum of the rows above", "101.0 % (101.0)"],
        ["left over", f"{MINUS}1.0 % ({MINUS}1.0)"],
        ["a step without the profiler", "100.0 % (100.0)"],
        ["a step with the profiler", "102.0 % (102.0)"],
        ["taken off the rows, as the profiler's", "2.0 % (2.0)"],
    ]
    assert table.after == ["The rows add up to a step within 2 %, for each setting."]


def test_rows_that_do_not_add_up_are_said() -> None:
    near, far = made_up(103 / len(ROWS)), made_up(107 / len(ROWS), replace(CASE, bf16=True))
    (said,) = benchmark.rows_table([near, far], 2.0).after
    assert "**The rows do not add up to a step within 2 %: precision: bf16 (+5.0 %).**" in said


def test_shares_of_what_the_core_can_do() -> None:
    profiles = [made_up(10.0), made_up(10.0, replace(CASE, bf16=True))]
    # 0.1 GFLOP in 100 ms is 1 GFLOP/s; 28 MB in 10 ms are 2.8 GB/s.
    assert benchmark.peak_table(profiles, LIMITS).texts == [
        ["plain", "0.1 (0.1)", "1.0", "2.0 (4 x 5 x 6)", "50.0 %"],
        ["precision: bf16", "0.1 (0.1)", "1.0", "4.0 (7 x 8 x 9)", "25.0 %"],
    ]
    assert benchmark.optimiser_table(profiles[:1], LIMITS, 2.0).texts == [
        ["plain", "1.0", "27", "10.0", "2.8", "1.0", "2.0", "140 %"]
    ]


def test_the_page_has_every_table() -> None:
    text = benchmark.page(128, [made_up(9.0)], LIMITS, 2.0, {"processor": "made up"})
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "# Where a core's time goes, at 128 tokens",
        "## A step by operator",
        "## Beside the core's peak",
        "## The optimiser's memory traffic",
        "## Machine",
    ]
    assert "| processor | made up |" in text
    assert max(map(len, text.splitlines())) <= 150


def test_the_fastest_product_is_found() -> None:
    products = products_of(64, 8, 16)
    assert products[:6] == [(64, 8, 8), (64, 8, 16), (64, 16, 8), (8, 64, 8), (8, 64, 16), (16, 64, 8)]
    peak = matrix_peak(products[:6], torch.float32, seconds=0.01)
    assert peak.product in products and peak.flop_per_s > 0


def test_memory_is_moved_or_there_is_no_room() -> None:
    assert set(bandwidth(1 << 20, seconds=0.01)) == {"copy", "triad"}
    with pytest.raises(DataError, match=r"Three arrays of 1073741824 MiB don't fit into the \d+ MiB"):
        bandwidth(1 << 50)


def test_the_best_time_is_of_several_calls() -> None:
    calls: list[int] = []
    assert best_time(lambda: calls.append(1), 0.0) >= 0
    assert len(calls) == 2  # one to warm up
