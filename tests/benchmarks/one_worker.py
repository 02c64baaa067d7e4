"""One worker: the engine with what it can leave out, beside Hugging Face's Trainer, on one core.

Every training is a process of its own with one thread on the same core. In each round all of them train once,
in turned order in every other round. All take the same batches, except where they are grouped by length. If
accuracies are asked for, each round has a seed of its own, and all models are judged in fp32. The engine's
processes keep freed memory, as ranks of a run do (`allocator: tuned`); Trainer's have the C library's
allocator as it is, except where its name says that it keeps freed memory, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError

from experiments.analysis.statistics import Difference, mean_difference
from experiments.report.formats import Format, Value, quantity
from experiments.util.words import counted
from tests.benchmarks.engine import Alone, by_the_engine, compute_as_a_rank, judged, opened
from tests.benchmarks.plan import Plan, in_turns
from tests.benchmarks.results import MISSED, OPEN, REACHED, Comparison, Part, Sample, compare
from tests.benchmarks.side_by_side import side_by_side
from tests.benchmarks.tables import said
from tests.benchmarks.trainer import BY_LENGTH, by_trainer
from training.compiled import check_compilers
from training.errors import LaunchError
from training.spec import Conditions, Work, explain
from training.util.process import keep_freed_memory


@dataclass(frozen=True)
class Peer:
    """A way for Trainer to train."""

    settings: Mapping[str, Any] = field(default_factory=dict)  # beside its defaults
    keeps_memory: bool = False  # that it freed, as the engine does


TRAINER: Final = "Trainer"
TRAINER_KEEPING: Final = "Trainer, freed memory kept"
TRAINER_BF16: Final = "Trainer, bf16"
TRAINER_BY_LENGTH: Final = "Trainer, grouped by length"
PEERS: Final[Mapping[str, Peer]] = {
    TRAINER: Peer(),
    TRAINER_KEEPING: Peer(keeps_memory=True),
    TRAINER_BF16: Peer({"bf16": True}),
    TRAINER_BY_LENGTH: Peer(BY_LENGTH),
}
ALWAYS: Final = (TRAINER, TRAINER_KEEPING)
"""What every variant is compared with, beside the Trainer that is set alike."""

AS_TRAINER: Final = "times as fast as Trainer"
AS_KEEPING: Final = "as Trainer that keeps freed memory"
AS_PEER: Final = "as Trainer set alike"
WARM_UP: Final = 2  # steps of a training that is thrown away
POINTS: Final = Format(1, signed=True)  # percentage points
EQUAL: Final = 1.0  # percentage points: accuracies that differ by less are called equal
LOOKED_AT: Final = 128  # samples for validation, unless the accuracy is asked for
UNJUDGED: Final = "no accuracy was measured (--accuracy)."


@dataclass(frozen=True)
class Variant:
    """A way for the engine to train."""

    name: str
    settings: Mapping[str, Any]  # of the work
    peer: str = TRAINER  # the Trainer that is set alike
    aims: Mapping[int, float] = field(default_factory=dict)  # times as fast as Trainer, by maximum length
    conditions: Conditions = field(default_factory=Conditions)


UNPADDED: Final = {"padding": "none"}
FIRST: Final = {"model": {"last_layer": "first_token"}}
DRAWS: Final = {"dropout_draws": "16_bit"}
UNDROPPED: Final = {"model": {"last_layer": "first_token", "attention_dropout": 0.0}}
NO_WEIGHTS_DROPPED: Final = {"model": {"attention_dropout": 0.0}}
LONGEST: Final = {"padding": "longest"}
BY_LENGTHS: Final = {"grouping": "length"}
BF16: Final = {"precision": "bf16"}
COMPILED: Final = Conditions(compile="default")
VARIANTS: Final = (
    Variant("plain", {}),
    Variant("padding: none", UNPADDED),
    Variant("last_layer: first_token", FIRST, aims={128: 2.0}),
    Variant("last_layer: first_token, compile: default", FIRST, conditions=COMPILED),
    Variant("both", UNPADDED | FIRST, aims={128: 2.0, 512: 4.0}),
    Variant("both, dropout_draws: 16_bit", UNPADDED | FIRST | DRAWS, aims={128: 2.0, 512: 4.0}),
    Variant("both, dropout_draws: 16_bit, attention_dropout: 0.0", UNPADDED | UNDROPPED | DRAWS),
    Variant("last_layer: first_token, dropout_draws: 16_bit", FIRST | DRAWS, aims={128: 2.0}),
    Variant("plain, bf16", BF16, TRAINER_BF16),
    Variant("padding: none, bf16", BF16 | UNPADDED, TRAINER_BF16),
    Variant("last_layer: first_token, bf16", BF16 | FIRST, TRAINER_BF16, aims={128: 3.0}),
    Variant("both, bf16", BF16 | UNPADDED | FIRST, TRAINER_BF16, aims={128: 3.0, 512: 6.0}),
    Variant(
        "both, dropout_draws: 16_bit, attention_dropout: 0.0, bf16",
        BF16 | UNPADDED | UNDROPPED | DRAWS,
        TRAINER_BF16,
        aims={128: 3.0, 512: 6.0},
    ),
    Variant(
        "last_layer: first_token, dropout_draws: 16_bit, bf16",
        BF16 | FIRST | DRAWS,
        TRAINER_BF16,
        aims={128: 3.0},
    ),
    Variant("grouping: length", BY_LENGTHS | LONGEST, TRAINER_BY_LENGTH),
)
ALONE: Final = (
    Variant("optimiser_implementation: for_loop", {"optimiser_implementation": "for_loop"}),
    Variant("dropout_draws: 16_bit", DRAWS),
    Variant("attention_dropout: 0.0", NO_WEIGHTS_DROPPED),
    Variant("dropout_draws: 16_bit, attention_dropout: 0.0", DRAWS | NO_WEIGHTS_DROPPED),
    Variant("padding: longest", LONGEST),
    Variant("padding: none, grouping: length", UNPADDED | BY_LENGTHS, TRAINER_BY_LENGTH),
)
"""What else docs/reference.md has a row for; measured if all settings are asked for."""


def measure(data_sets: Sequence[Path], plan: Plan, variants: Sequence[Variant] = VARIANTS) -> Part:
    """Train all of them on each data set, round by round.

    Args:
        data_sets: folders of prepared data sets, one for each maximum length.
        plan: how much.
        variants: of the engine; those that the work can't have are left out with a note.

    Raises:
        DataError: a data set is not there, or too small.
        RuntimeError: a training failed.
    """
    samples: list[Sample] = []
    comparisons: list[Comparison] = []
    notes: list[str] = []
    for data in data_sets:
        plain = plan.work_on(data)
        length, group = plain.data.tokens_per_sample, _group(plain)
        here, left_out = possible(data, plan, variants)
        notes += [f"{group}: {each}" for each in left_out]
        peers = [name for name in PEERS if name in {*ALWAYS, *(each.peer for each, _ in here)}]
        calls = {name: partial(_with_trainer, data, plan, PEERS[name]) for name in peers}
        calls |= {each.name: partial(_with_engine, data, plan, work, each.conditions) for each, work in here}
        mine = list(_rounds(group, calls, plan))
        comparisons.append(compare(mine, (group, TRAINER_KEEPING), (group, TRAINER), AS_TRAINER))
        comparisons += [found for each, _ in here for found in _compared(mine, group, each, length)]
        notes += accuracies(mine) or [f"{group}: {UNJUDGED}"]
        samples += sorted(mine, key=lambda each: each.round)
    return Part(
        name="one-worker", settings=plan.settings(), samples=samples, comparisons=comparisons, notes=notes
    )


def possible(
    data: Path, plan: Plan, variants: Sequence[Variant]
) -> tuple[list[tuple[Variant, Work]], list[str]]:
    """The variants that the work and this machine can have, each with it; a sentence for each other one."""
    there, left_out = [], []
    for each in variants:
        try:
            if each.conditions.compile:
                check_compilers(each.conditions.device)
            there.append((each, plan.work_on(data, **each.settings)))
        except (LaunchError, ValidationError) as error:
            why = explain(error) if isinstance(error, ValidationError) else error
            left_out.append(f"{each.name} is left out: {why}")
    return there, left_out


def _group(work: Work) -> str:
    return f"maximum length {work.data.tokens_per_sample}"


def _rounds(group: str, calls: Mapping[str, Any], plan: Plan) -> Iterator[Sample]:
    for number, name in in_turns(list(calls), plan.rounds):
        seed = number if plan.accuracy else 1
        (found,) = side_by_side([partial(calls[name], seed)], plan.cores[:1])
        sample = Sample(group=group, name=name, round=number, **found)
        print(said(sample), flush=True)
        yield sample


def _compared(
    samples: Sequence[Sample], group: str, variant: Variant, length: int | None
) -> Iterator[Comparison]:
    of = (group, variant.name)
    aim = None if length is None else variant.aims.get(length)
    yield compare(samples, of, (group, TRAINER), AS_TRAINER, aim)
    yield compare(samples, of, (group, TRAINER_KEEPING), AS_KEEPING)
    if variant.peer != TRAINER:
        yield compare(samples, of, (group, variant.peer), AS_PEER)


def accuracies(samples: Sequence[Sample]) -> list[str]:
    """Sentences on how each one's accuracy differs from Trainer's; none if no accuracy was asked for.

    Trainer with freed memory kept has none: its model is the same, to the last bit. Accuracies are equal if
    the whole 95 % interval of the difference lies within `EQUAL`.
    """
    found: dict[str, dict[int, float]] = {}
    for each in samples:
        if each.accuracy is not None and each.name != TRAINER_KEEPING:
            found.setdefault(each.name, {})[each.round] = each.accuracy
    theirs, said_of = found.pop(TRAINER, {}), []
    for name, mine in found.items():
        more = mean_difference([100 * (mine[number] - theirs[number]) for number in sorted(mine)])
        assert more is not None  # a name comes from a sample
        points = Value(more.mean, POINTS, low=more.low, high=more.high).text
        said_of.append(
            f"{samples[0].group}: the accuracy of {name} less that of {TRAINER} is {points} percentage "
            f"points ({counted(more.n, 'seed')}); equal within {quantity(EQUAL)}: {_is_equal(more)}."
        )
    return said_of


def _is_equal(more: Difference) -> str:
    if more.low is None or more.high is None:
        return OPEN
    if more.low > EQUAL or more.high < -EQUAL:
        return MISSED
    return REACHED if more.low >= -EQUAL and more.high <= EQUAL else OPEN


def _with_engine(data: Path, plan: Plan, work: Work, conditions: Conditions, seed: int) -> dict[str, float]:
    """What it took without compiling, which a run does once, however long it is."""
    work = work.model_copy(update={"seed": seed})
    compute_as_a_rank(work)
    by_the_engine(opened(shortened(work), data), Alone())
    workload, session = opened(work, data, conditions), Alone()
    training = by_the_engine(workload, session)
    seconds = sum(training.step_seconds) - session.compiling_s
    metrics = judged(workload, training.model, _judges(work, plan))
    return _found(seconds / len(training.step_seconds), metrics, plan)


def _with_trainer(data: Path, plan: Plan, peer: Peer, seed: int) -> dict[str, float]:
    if peer.keeps_memory:
        keep_freed_memory()
    work, cpu = plan.work_on(data, seed=seed), torch.device("cpu")
    by_trainer(opened(shortened(work), data), cpu, peer.settings)
    workload = opened(work, data)
    seconds, model = by_trainer(workload, cpu, peer.settings)
    metrics = judged(workload, model, _judges(work, plan))
    return _found(sum(seconds) / len(seconds), metrics, plan)


def shortened(work: Work) -> Work:
    """A few steps of the same work: what is slow at its first use has been used then."""
    few = min(WARM_UP, work.steps_per_epoch) * work.global_batch
    return work.model_copy(
        update={"epochs": 1, "data": work.data.model_copy(update={"train": min(few, work.data.train)})}
    )


def _judges(work: Work, plan: Plan) -> int:
    return work.data.validation if plan.accuracy else min(LOOKED_AT, work.data.validation)


def _found(seconds: float, metrics: Mapping[str, float], plan: Plan) -> dict[str, float]:
    found = {"ms": 1000 * seconds, "loss": metrics["loss"]}
    return found | ({"accuracy": metrics["accuracy"]} if plan.accuracy else {})
