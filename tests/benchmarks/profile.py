"""Where a core's time goes: a step of the engine by operator, beside what the core can do.

python -m tests.benchmarks.profile --data DIR (a prepared data set) [--length 128|512] [--out FOLDER]

One core, one thread, BERT-tiny. Steps with torch's profiler and steps without it take turns, on the same
samples. Writes profile-LENGTH.json, and profile-LENGTH.md, whose text can be kept as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from experiments.report.formats import PERCENT, TENTHS, Value, number, quantity
from experiments.report.tables import Table, columns
from tests.benchmarks import flop
from tests.benchmarks.bert import SHAPES, Bert, Case, begin, step, work_of
from tests.benchmarks.engine import Alone
from tests.benchmarks.machine import described
from tests.benchmarks.operators import OPTIMISER, ROWS, STEP, Ranges, times_of
from tests.benchmarks.pages import machine_table, markdown
from tests.benchmarks.peaks import (
    Peak,
    array_bytes,
    bandwidth,
    matrix_peak,
    on_one_core,
    products_of,
)
from training.errors import DataError
from training.job import set_arithmetic
from training.metrics.phases import Phases
from training.spec import RunSpec
from training.state import Training
from training.util.files import write_json
from training.util.process import keep_freed_memory
from training.workloads.text_classification.padding import ROUNDED_TO

CLIPPED: Final = 1.0  # the largest norm of a step's gradients
BATCHES: Final = 8  # of samples, which every round takes
ROUNDS: Final = 5
SHARE: Final = replace(PERCENT, digits=1)
CALIBRATION: Final = Case(length=16, batch=4, clip_gradients=CLIPPED)  # tells what the profiler takes
CALIBRATION_ROUNDS: Final = 50
CLOSE: Final = 0.02  # how far the rows' sum may be from a step
GIGA: Final = 1e9
MIB: Final = 1 << 20
ADAMW_BYTES: Final = 28
"""That fused AdamW moves for a parameter: reads of weight, gradient and two moments, and three writes."""

INTRODUCTION: Final = """\
# Where a core's time goes, at {length} tokens

A step of the engine (data, forward and backward pass, clipping, AdamW) on one core and one thread: BERT-tiny
({shape}), batch {batch} of {length} tokens, dropout 0.1.
Means over {batches} batches. Each was computed {rounds} times with torch's profiler and as often without it,
in turns, and the fastest of each counts.
Written by `python -m tests.benchmarks.profile --data DIR --length {length}`.
"""
BY_OPERATOR: Final = """\
Shares of a step without the profiler, and ms in brackets. An operator's time is what it takes itself,
without the operators that it calls. Attention's matrix products are attention's. What is not in any operator
is Python and autograd's own work. What the profiler takes for an operator falls to the row that calls it, and
is taken off there: {each} us, measured just before in the same way, on steps of {batch} samples of {length}
tokens, which are next to nothing else."""
BESIDE_PEAK: Final = """\
FLOP of a step's matrix products, counted, and by arithmetic in brackets; time is that of a step without the
profiler. The peak is that of the fastest product (rows x inner length x columns) in the precision of the
products: of those that a layer has, or of a large square."""
MOVED: Final = """\
Fused AdamW moves 28 bytes for a parameter: it reads weight, gradient and two moments (fp32), and writes all
but the gradient. Its time is the row *optimiser* above. Copy (a = b) and triad (a = b + s c) are measured as
STREAM does, over arrays of {array} MiB. What stays in a cache from step to step can move faster."""


@dataclass(frozen=True)
class Seen:
    """What torch's profiler saw of one step."""

    seconds: float
    rows_ms: Mapping[str, float]
    calls: Mapping[str, int]


@dataclass(frozen=True)
class Profile:
    """A step of a case, as a mean over the fastest of each batch."""

    case: Case
    batches: int
    rounds: int  # in which each batch was computed with the profiler, and without it
    unprofiled_ms: float
    profiled_ms: float
    rows_ms: Mapping[str, float]  # of a step with the profiler, by `operators.ROWS`
    calls: Mapping[str, float]  # of operators and ranges in a step, by the row that calls them
    flop: float  # of a step, counted
    flop_by_arithmetic: float
    parameters: int

    @property
    def profiler_us(self) -> float:
        """Microseconds that the profiler takes for a call; 0 where steps with it are not slower."""
        return max(self.profiled_ms - self.unprofiled_ms, 0.0) * 1000 / sum(self.calls.values())

    def without(self, profiler_us: float) -> dict[str, float]:
        """Ms by row, without the us that the profiler takes for each call."""
        return {name: spent - self.calls[name] * profiler_us / 1000 for name, spent in self.rows_ms.items()}


@dataclass(frozen=True)
class Limits:
    """What one core can do at most."""

    fp32: Peak
    bf16: Peak
    bandwidth: Mapping[str, float]  # bytes per s, by kernel
    array: int  # bytes of each array that was moved

    def peak(self, case: Case) -> Peak:
        """Of matrix products in the precision of a case."""
        return self.bf16 if case.bf16 else self.fp32


def cases(length: int) -> list[Case]:
    """What is profiled."""
    plain = Case(length=length, clip_gradients=CLIPPED)
    skipping = replace(plain, skipping=True)
    fast = replace(skipping, fast_dropout=True)
    return [plain, skipping, fast, *(replace(each, bf16=True) for each in (plain, fast))]


def batches(case: Case, count: int) -> list[torch.Tensor]:
    """The numbers of the samples of each step."""
    return [torch.arange(case.batch) + number * case.batch for number in range(count)]


def measure(case: Case, data: Path, rounds: int = ROUNDS, count: int = BATCHES) -> Profile:
    """Profile a case; a first round warms up and does not count.

    Args:
        case: what to profile, on the CPU.
        data: folder of the prepared data set.
        rounds: in each, all batches are computed with the profiler and without it.
        count: of different batches.

    Raises:
        DataError: the data set can't be used.
    """
    workload = Bert(case, data)
    training = begin(workload, Phases(), Alone())
    taken = batches(case, count)
    plain: list[list[float]] = [[] for _ in taken]
    profiled: list[list[Seen]] = [[] for _ in taken]
    for turn in range(rounds + 1):
        for number_of, chosen in enumerate(taken):
            # Each goes first in half of the turns, so that a drift of the machine affects both.
            for with_profiler in (turn % 2 == 0, turn % 2 == 1):
                if with_profiler:
                    profiled[number_of].append(profiled_step(training, chosen))
                else:
                    plain[number_of].append(seconds_of(training, chosen))
    fastest = [min(found[1:], key=lambda seen: seen.seconds) for found in profiled]
    return Profile(
        case,
        count,
        rounds,
        sum(min(found[1:]) for found in plain) / count * 1000,
        sum(seen.seconds for seen in fastest) / count * 1000,
        {name: sum(seen.rows_ms[name] for seen in fastest) / count for name in ROWS},
        {name: sum(seen.calls[name] for seen in fastest) / count for name in ROWS},
        sum(flop.counted(training, chosen) for chosen in taken) / count,
        sum(
            flop.by_arithmetic(workload.shape, found, workload.outputs, filling(workload, found))
            for found in (lengths(workload, chosen) for chosen in taken)
        )
        / count,
        sum(each.numel() for each in training.model.parameters()),
    )


def lengths(workload: Bert, chosen: torch.Tensor) -> list[int]:
    """Tokens that are computed of each sample."""
    mask = workload.batch("train", chosen, 1)["attention_mask"]
    found: list[int] = (
        (mask if workload.work.padding == "none" else torch.ones_like(mask)).sum(dim=1).tolist()
    )
    return found


def filling(workload: Bert, found: Sequence[int]) -> int:
    """Tokens that fill up a batch of texts of these lengths."""
    return -sum(found) % ROUNDED_TO if workload.work.padding == "none" else 0


def seconds_of(training: Training, chosen: torch.Tensor) -> float:
    """Of a step."""
    began = time.perf_counter()
    step(training, chosen)
    return time.perf_counter() - began


def profiled_step(training: Training, chosen: torch.Tensor) -> Seen:
    """A step with torch's profiler."""
    usual, ranges = training.phases, Ranges()
    training.phases = ranges
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        with record_function(STEP):
            step(training, chosen)
            ranges.end()
        seconds = time.perf_counter() - began
    training.phases = usual
    return Seen(seconds, *times_of(profiler.events()))


def rows_table(profiles: Sequence[Profile], us: float) -> Table:
    """A step by operator, in shares of a step without the profiler, which takes `us` for a call."""

    def row(name: str, of: Mapping[str, float]) -> list[Value | str]:
        shares = (
            Value(
                of[each.case.settings] / each.unprofiled_ms,
                SHARE,
                note=number(of[each.case.settings], TENTHS),
            )
            for each in profiles
        )
        return [name, *shares]

    def each(what: str) -> dict[str, float]:
        return {one.case.settings: getattr(one, what) for one in profiles}

    found = {one.case.settings: one.without(us) for one in profiles}
    sums = {settings: sum(rows_ms.values()) for settings, rows_ms in found.items()}
    taken = {one.case.settings: sum(one.rows_ms.values()) - sums[one.case.settings] for one in profiles}
    left = {one.case.settings: one.unprofiled_ms - sums[one.case.settings] for one in profiles}
    shares = {one.case.settings: sums[one.case.settings] / one.unprofiled_ms for one in profiles}
    rows = [row(name, {settings: rows_ms[name] for settings, rows_ms in found.items()}) for name in ROWS]
    rows += [
        row("sum of the rows above", sums),
        row("left over", left),
        row("a step without the profiler", each("unprofiled_ms")),
        row("a step with the profiler", each("profiled_ms")),
        row("taken off the rows, as the profiler's", taken),
    ]
    names = [one.case.settings for one in profiles]
    return Table(
        "A step by operator",
        BY_OPERATOR.format(
            each=number(us, TENTHS), batch=number(CALIBRATION.batch), length=number(CALIBRATION.length)
        ),
        columns("", *names, words=("",)),
        rows,
        after=[closeness(shares)],
    )


def closeness(shares: Mapping[str, float]) -> str:
    """Whether the rows add up to a step: the share that they do, by settings."""
    far = [
        f"{name} ({quantity(share - 1, replace(SHARE, signed=True))})"
        for name, share in shares.items()
        if abs(share - 1) > CLOSE
    ]
    if far:
        return (
            f"**The rows do not add up to a step within {quantity(CLOSE, PERCENT)}: {', '.join(far)}.** "
            "Measure again on a machine that does nothing else."
        )
    return f"The rows add up to a step within {quantity(CLOSE, PERCENT)}, for each setting."


def peak_table(profiles: Sequence[Profile], limits: Limits) -> Table:
    """The share of the matrix-product peak that a step reaches."""
    rows: list[list[Value | str]] = []
    for one in profiles:
        rate, peak = one.flop / one.unprofiled_ms * 1000, limits.peak(one.case)
        rows.append(
            [
                one.case.settings,
                Value(one.flop / GIGA, TENTHS, note=number(one.flop_by_arithmetic / GIGA, TENTHS)),
                Value(rate / GIGA, TENTHS),
                Value(peak.flop_per_s / GIGA, TENTHS, note=" x ".join(map(str, peak.product))),
                Value(rate / peak.flop_per_s, SHARE),
            ]
        )
    return Table(
        "Beside the core's peak",
        BESIDE_PEAK,
        columns("settings", "GFLOP", "GFLOP/s", "peak GFLOP/s", "share of the peak", words=("settings",)),
        rows,
    )


def optimiser_table(profiles: Sequence[Profile], limits: Limits, us: float) -> Table:
    """What the optimiser moves, beside what the core can move; the profiler takes `us` a call."""
    rows: list[list[Value | str]] = []
    for one in profiles:
        moved = ADAMW_BYTES * one.parameters
        spent = one.without(us)[OPTIMISER]
        rate = moved / spent * 1000
        cells = [Value(limits.bandwidth[name] / GIGA, TENTHS) for name in ("copy", "triad")]
        rows.append(
            [
                one.case.settings,
                Value(one.parameters / 1e6, TENTHS),
                Value(moved / MIB),
                Value(spent, TENTHS),
                Value(rate / GIGA, TENTHS),
                *cells,
                Value(rate / limits.bandwidth["triad"], PERCENT),
            ]
        )
    names = ("million parameters", "MiB moved", "ms", "GB/s", "copy GB/s", "triad GB/s", "share of triad")
    return Table(
        "The optimiser's memory traffic",
        MOVED.format(array=number(limits.array / MIB)),
        columns("settings", *names, words=("settings",)),
        rows,
    )


def introduction(length: int, profiles: Sequence[Profile]) -> str:
    """What was measured."""
    first = profiles[0]
    return INTRODUCTION.format(
        length=number(length),
        shape=", ".join(f"{number(value)} {name}" for name, value in SHAPES[first.case.shape].items()),
        batch=number(first.case.batch),
        batches=number(first.batches),
        rounds=number(first.rounds),
    )


def page(
    length: int, profiles: Sequence[Profile], limits: Limits, us: float, machine: Mapping[str, str]
) -> str:
    """All tables, as Markdown."""
    tables = [
        rows_table(profiles, us),
        peak_table(profiles, limits),
        optimiser_table(profiles, limits, us),
        machine_table(machine),
    ]
    return "\n".join([introduction(length, profiles), *map(markdown, tables)])


def measure_limits(case: Case, array: int) -> Limits:
    """What this core can do."""
    shape = SHAPES[case.shape]
    products = products_of(case.batch * case.length, shape["hidden"], shape["intermediate"])
    fp32, bf16 = (matrix_peak(products, dtype) for dtype in (torch.float32, torch.bfloat16))
    return Limits(fp32, bf16, bandwidth(array), array)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a prepared data set")
    parser.add_argument("--length", type=int, default=128, help="tokens that its texts are cut to")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help=f"of {BATCHES} steps with the profiler and as many without ({ROUNDS})",
    )
    parser.add_argument(
        "--array-mb", type=int, help="MiB of each array that is moved, in place of 4 times the largest cache"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks"), help="folder to write into")
    given = parser.parse_args(argv)
    todo = cases(given.length)
    try:
        spec = RunSpec(stack="local", work=work_of(todo[0], given.data))
        array = given.array_mb * MIB if given.array_mb else array_bytes()
        set_arithmetic(spec)
        machine = {**described(), "core": str(on_one_core()), "threads": "1"}
        machine["allocator"] = (
            "tuned" if keep_freed_memory() else "stock, as this C library can't keep freed memory"
        )
        limits = measure_limits(todo[0], array)
        us = measure(CALIBRATION, given.data, CALIBRATION_ROUNDS).profiler_us
        profiles = []
        for case in todo:
            profiles.append(measure(case, given.data, given.rounds))
            print(f"{case.settings}: {number(profiles[-1].unprofiled_ms, TENTHS)} ms a step", flush=True)
    except DataError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    base = given.out / f"profile-{given.length}"
    found = {
        "machine": machine,
        "limits": asdict(limits),
        "profiler_us": us,
        "profiles": [asdict(each) for each in profiles],
    }
    write_json(base.with_suffix(".json"), found)
    text = page(given.length, profiles, limits, us, machine)
    base.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
