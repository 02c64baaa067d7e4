"""The figures of a campaign, from its records alone: means, overheads, speed-ups, and equal weights."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Estimate, Ratio, estimate, ratios_together
from experiments.campaign.campaign import Campaign, CampaignFile, newest_ok
from experiments.campaign.concurrent import same_occasion
from experiments.campaign.plan import PlannedRun
from experiments.campaign.stacks import Setup, read_setup
from experiments.matrix.references import Reference, references_in
from experiments.records.record import RECORD, TEST, Arithmetic, Record
from experiments.util.words import listed
from training.spec import PHASES

PREPARING: Final = "preparing"  # beside the phases: how long runs that begin with texts took to tokenise them
USUAL_AXES: Final = ("stack", "workers", "epochs", "seed")  # those that every matrix has
PROGRAM: Final = ("program", "training")  # of every run in a cell
REPETITION: Final = "repetition"  # an axis that changes nothing but the run's name
SHARES: Final = ("accuracy", "top_5_accuracy")  # metrics that are shares of a split's samples
Z_95: Final = 1.959963984540054  # two-sided 95 % of the normal distribution


class Parts(dict[str, Any]):
    """A mapping as the value of an axis: equal to it, and named by those of its parts that vary."""

    def __init__(self, value: Mapping[str, Any], varying: Iterable[str]) -> None:
        super().__init__(value)
        self.varying = {name: value[name] for name in varying if name in value}

    def __str__(self) -> str:
        """`heads 4 and hidden 256`, or a dash."""
        parts = [f"{name} {_part_text(part)}" for name, part in self.varying.items()]
        return listed(parts) if parts else "\N{EN DASH}"


def _part_text(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part, sort_keys=True)


@dataclass(frozen=True)
class Accuracy:
    """The share of samples classified correctly; with several seeds, the mean over the runs."""

    accuracy: float
    correct: int | None  # None with several seeds
    count: int
    half_width: float  # of one run's 95 % interval: the split is a sample
    n: int


@dataclass(frozen=True)
class Cell:
    """The runs that differ only in their seed."""

    axes: dict[str, Any]  # without the seed
    stack: str
    workers: int
    planned: int
    records: list[Record]  # those that count
    train_s: Estimate | None
    total_s: Estimate | None
    around_training_s: Estimate | None  # total_s less train_s
    accuracy: Accuracy | None
    metrics: dict[str, Estimate]  # after the last epoch; first the one by which people judge the model
    phases: dict[str, float] | None  # means; with PREPARING, where the runs made their tokens
    overhead_train: Ratio | None  # train_s over the baseline stack's, by pairs of the same seed
    overhead_total: Ratio | None
    speed_up: Ratio | None  # one worker's train_s over this, on the same stack, by pairs of the same seed

    @property
    def settings(self) -> dict[str, Any]:
        """Its values of the matrix's other axes; a first repetition is none, nor is that it trains."""
        return {
            name: value
            for name, value in self.axes.items()
            if name not in USUAL_AXES and (name, value) not in ((REPETITION, 1), PROGRAM)
        }

    @property
    def epochs(self) -> int:
        """Of each run."""
        return int(self.axes["epochs"])

    @property
    def phases_total_s(self) -> float | None:
        """The sum of its phases' means."""
        return None if self.phases is None else sum(self.phases.values())

    @property
    def disturbed(self) -> str | None:
        """By what its runs are disturbed, which share it as a condition; None: by nothing that is known."""
        return self.records[0].disturbed if self.records else None

    @property
    def by_standin(self) -> list[Record]:
        """Those of its records whose run a stand-in made, in place of the stack's own software."""
        return [record for record in self.records if record.standin is not None]

    @property
    def timed(self) -> list[Record]:
        """Those of its records whose times are the stack's."""
        return [record for record in self.records if record.timed]

    @property
    def quality(self) -> Estimate | None:
        """The metric by which people judge the trained model."""
        return self.metrics.get(self.metric)

    @property
    def metric(self) -> str:
        """Name of the metric by which people judge the trained model."""
        return self.records[0].specification.work.data.metric if self.records else "accuracy"

    def one_evaluation(self, metric: str) -> float | None:
        """Half the 95 % interval of a share of so many samples, in a single evaluation; None = no share."""
        if metric == "accuracy":
            return self.accuracy.half_width if self.accuracy is not None else None
        found = self.metrics.get(metric)
        if metric.removeprefix(TEST) not in SHARES or found is None:
            return None
        of_test = metric.startswith(TEST)
        first = self.records[0]
        count = first.specification.work.data.test if of_test else first.validation_count
        return half_width(found.mean, count) if count else None

    def curve(self, name: str) -> dict[int, float]:
        """The mean over its runs after each epoch, by epoch: `train_loss`, or a metric of validation."""
        by_epoch: dict[int, list[float]] = {}
        for epoch in (epoch for record in self.records for epoch in record.epochs):
            value = epoch.train_loss if name == "train_loss" else epoch.metric(name)
            if value is not None:
                by_epoch.setdefault(epoch.epoch, []).append(value)
        return {epoch: statistics.fmean(values) for epoch, values in by_epoch.items()}

    @property
    def efficiency(self) -> Estimate | None:
        """The speed-up per worker, with its interval."""
        if self.speed_up is None:
            return None
        found = self.speed_up
        low, high = (None if end is None else end / self.workers for end in (found.low, found.high))
        return Estimate(found.ratio / self.workers, low, high, sd=None, n=found.n)


Apart = dict[str, list[Arithmetic]]
"""What the runs of each side (a stack, a campaign) computed with, where it is not the same on all."""


@dataclass(frozen=True)
class SameWork:
    """One work that more than one stack has done where equal bits can be expected (equal `arithmetic`)."""

    workers: int
    epochs: int
    seed: int
    work_digest: str
    digests: dict[str, list[str]]  # of the weights, by stack

    @property
    def equal(self) -> bool:
        """Whether all ended with the same weights."""
        return len({digest for digests in self.digests.values() for digest in digests}) == 1


@dataclass(frozen=True)
class MissingRun:
    """A planned run without a result that counts."""

    run: PlannedRun
    reason: Literal["impossible", "not yet", "not needed", "not ok", "others"]
    """`others`: it is ok, but a run that it began with has no result of the same moment; `not needed`: all
    was decided without it (`--decide`)."""
    last: Record | None = None  # the newest attempt, where none is ok


@dataclass(frozen=True)
class Figures:
    """What a campaign's records say cell by cell, and which of them count."""

    campaign: CampaignFile
    cells: list[Cell]
    works: list[SameWork]
    works_of_one_stack: int
    # What each stack computed with, of works that stacks did where their last bits can't be compared.
    works_apart: list[Apart]
    by_chance: int  # runs whose last bits may differ by chance: no weights of theirs are compared
    without_digest: int  # runs whose programs reported no digest of their weights
    not_run: list[MissingRun]
    attempts: list[Record]  # those that failed, were interrupted or disturbed
    # Including those of users who began at once, which are in no cell; those not timed without their times.
    counting: list[Record]
    bare: list[Record]  # those that count and whose program was empty, which are in none of the above
    references: list[Reference]  # the inventory's, for this matrix and others
    setup: Setup = field(default_factory=Setup)  # of its stacks and of provisioning
    places: dict[str, str] = field(
        default_factory=dict
    )  # of the files of records that count, in the campaign

    @property
    def weights_differ(self) -> bool:
        """Whether equal work ended with different weights, so that times can't be compared."""
        return any(not work.equal for work in self.works)

    @property
    def unproven(self) -> bool:
        """Whether it is not known what a run did, so that times can't be compared."""
        return self.without_digest > 0

    @property
    def results(self) -> list[Record]:
        """All that count, whatever their program."""
        return [*self.counting, *self.bare]

    @property
    def by_standin(self) -> list[Record]:
        """Those that count and whose run a stand-in made, in place of the stack's own software."""
        return [record for record in self.counting if record.standin is not None]

    @property
    def same_steps(self) -> bool | None:
        """Whether an epoch of equal data has as many steps with any number of workers; None with only one."""
        steps: dict[str, dict[int, set[int]]] = {}  # by data set and workers
        for work in (record.specification.work for record in self.counting):
            steps.setdefault(work.data_digest, {}).setdefault(work.workers, set()).add(work.steps_per_epoch)
        several = [set().union(*found.values()) for found in steps.values() if len(found) > 1]
        return all(len(found) == 1 for found in several) if several else None


def half_width(accuracy: float, count: int) -> float:
    """Half the width of the 95 % interval of a share of `count` (normal approximation of the binomial)."""
    return Z_95 * math.sqrt(accuracy * (1 - accuracy) / count)


def figures_of(campaign: Campaign) -> Figures:
    """The figures of `campaign` as its records stand now.

    Raises:
        UserError: a record, or the file of the references, is damaged.
    """
    plan, wanted = campaign.file.plan, campaign.file.wanted
    recorded = {run.run_id: campaign.recorded(run.run_id) for run in plan}
    records = {run_id: [record for _, record in found] for run_id, found in recorded.items()}
    newest = {run.run_id: found for run in wanted if (found := newest_ok(recorded[run.run_id]))}
    # Times that are not the stack's can't get into any figure.
    results = {
        run_id: record if record.timed else record.without_times() for run_id, (_, record) in newest.items()
    }
    counting = {run_id: record for run_id, record in results.items() if not record.specification.bare}
    proving = [record for record in counting.values() if record.weights_digest is not None]
    certain = [record for record in proving if _is_deterministic(record)]
    works, of_one_stack, apart = _same_work(certain)
    return Figures(
        campaign=campaign.file,
        cells=_cells(campaign.file, counting),
        works=works,
        works_of_one_stack=of_one_stack,
        works_apart=apart,
        by_chance=len(proving) - len(certain),
        without_digest=len(counting) - len(proving),
        not_run=[
            missing
            for run in wanted
            if (missing := _missing(run, records[run.run_id], results, decided=campaign.decided)) is not None
        ],
        attempts=[record for run in plan for record in records[run.run_id] if not record.ok],
        counting=list(counting.values()),
        bare=[record for record in results.values() if record.specification.bare],
        references=references_in(campaign.folder, campaign.file.references),
        setup=read_setup(campaign.folder),
        places={
            run_id: f"{run_id}/{attempt.folder.name}/{RECORD}" for run_id, (attempt, _) in newest.items()
        },
    )


def _missing(
    run: PlannedRun, records: Sequence[Record], counting: Mapping[str, Record], *, decided: bool
) -> MissingRun | None:
    """Why a planned run has no result that counts; None if it has one."""
    if not records and run.cannot_run is None and decided:
        return MissingRun(run, "not needed")
    if not records:
        return MissingRun(run, "not yet" if run.cannot_run is None else "impossible")
    if not any(record.ok for record in records):
        return MissingRun(run, "not ok", records[-1])
    if run.together and not same_occasion([counting.get(run_id) for run_id in run.together]):
        return MissingRun(run, "others")
    return None


def _cells(file: CampaignFile, counting: Mapping[str, Record]) -> list[Cell]:
    groups: dict[tuple[tuple[str, str], ...], list[PlannedRun]] = {}
    for run in (run for run in file.measured if not run.together):
        groups.setdefault(run.cell, []).append(run)
    found = {key: _of(runs, counting) for key, runs in groups.items()}

    def other(key: tuple[tuple[str, str], ...], **changed: Any) -> list[Record]:
        """The records of the cell that differs from `key` only in what is `changed`."""
        return found.get(
            tuple((name, repr(changed.get(name)) if name in changed else value) for name, value in key), []
        )

    cells = []
    parts = _varying_parts([runs[0] for runs in groups.values()])
    for key, runs in groups.items():
        axes: dict[str, Any] = {
            name: Parts(value, parts[name]) if name in parts else value
            for name, value in runs[0].axes.items()
            if name != "seed"
        }
        workers = runs[0].specification.work.workers
        records = found[key]
        base = [] if axes["stack"] == file.baseline else other(key, stack=file.baseline)
        alone = other(key, workers=1) or _same_batch_alone(runs[0], groups, found)
        cells.append(
            Cell(
                axes=axes,
                stack=axes["stack"],
                workers=workers,
                planned=len(runs),
                records=records,
                train_s=estimate(_times(records, "train_s")),
                total_s=estimate(_times(records, "total_s")),
                around_training_s=estimate(
                    [each.total_s - each.train_s for each in records if each.total_s and each.train_s]
                ),
                accuracy=_accuracy(records),
                metrics=_metrics(records),
                phases=_phases(records),
                overhead_train=time_ratio(paired_by_seed(records, base)),
                overhead_total=time_ratio(paired_by_seed(records, base, "total_s"), "total_s"),
                speed_up=time_ratio(paired_by_seed(alone, records)) if workers > 1 else None,
            )
        )
    return _together(cells, file.looks)


def _varying_parts(runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """The axes whose values are mappings, as a model's are: the names of the parts that are not alike in all.

    A script's arguments are one part, and shown as a command line.
    """
    found = {}
    for axis in {name for run in runs for name in run.axes}:
        values = [run.axes.get(axis) for run in runs]
        mappings = [value for value in values if isinstance(value, Mapping) and list(value) != ["arguments"]]
        if len(mappings) == len(values):
            names = sorted({name for value in mappings for name in value})
            found[axis] = [
                name for name in names if len({repr(value.get(name, ...)) for value in mappings}) > 1
            ]
    return found


def _together(cells: Sequence[Cell], looks: int) -> list[Cell]:
    """The same cells; the intervals of each kind of ratio hold for all cells and looks at once."""
    train, total, speed = (
        iter(ratios_together([ratio for ratio in ratios if ratio is not None], looks))
        for ratios in (
            [cell.overhead_train for cell in cells],
            [cell.overhead_total for cell in cells],
            [cell.speed_up for cell in cells],
        )
    )
    return [
        replace(
            cell,
            overhead_train=cell.overhead_train and next(train),
            overhead_total=cell.overhead_total and next(total),
            speed_up=cell.speed_up and next(speed),
        )
        for cell in cells
    ]


def _same_batch_alone(
    run: PlannedRun,
    groups: Mapping[tuple[tuple[str, str], ...], list[PlannedRun]],
    found: Mapping[tuple[tuple[str, str], ...], list[Record]],
) -> list[Record]:
    """The records of a single worker whose batch is as large as that of this run's workers together."""
    ours, free = run.specification.work, {"workers", "batch_per_worker", "seed"}
    for key, runs in groups.items():
        work = runs[0].specification.work
        rest = {name: value for name, value in runs[0].axes.items() if name not in free}
        same = rest == {name: value for name, value in run.axes.items() if name not in free}
        if same and work.workers == 1 and work.global_batch == ours.global_batch:
            return found[key]
    return []


def _of(runs: Sequence[PlannedRun], counting: Mapping[str, Record]) -> list[Record]:
    return [counting[run.run_id] for run in runs if run.run_id in counting]


def _times(records: Sequence[Record], clock: str) -> list[float]:
    return [seconds for record in records if (seconds := getattr(record, clock)) is not None]


def _accuracy(records: Sequence[Record]) -> Accuracy | None:
    counted = [
        (record.validation_correct, record.validation_count)
        for record in records
        if record.validation_correct is not None and record.validation_count
    ]
    if not counted:
        return None
    accuracy = statistics.fmean(correct / count for correct, count in counted)
    correct, count = counted[0]
    return Accuracy(
        accuracy, correct if len(counted) == 1 else None, count, half_width(accuracy, count), len(counted)
    )


def _metrics(records: Sequence[Record]) -> dict[str, Estimate]:
    last = [record.epochs[-1] for record in records if record.epochs]
    if not last:
        return {}
    judged = records[0].specification.work.data.metric
    names = dict.fromkeys(
        (
            judged,
            *(name for epoch in last for name in epoch.metrics),
            "loss",
            *(f"{TEST}{name}" for epoch in last for name in epoch.test if name not in ("count", "correct")),
        )
    )
    found = {
        name: estimate([value for epoch in last if (value := epoch.metric(name)) is not None])
        for name in names
    }
    return {name: each for name, each in found.items() if each is not None}


def _phases(records: Sequence[Record]) -> dict[str, float] | None:
    found = [record.phases for record in records if record.phases is not None]
    if not found:
        return None
    means = {name: statistics.fmean(phases[name] for phases in found) for name in PHASES}
    preparing = [record.prepared.seconds for record in records if record.phases and record.prepared]
    # If some runs of a cell did it, all did: how tokens are made is a condition, and a cell shares those.
    return means | {PREPARING: statistics.fmean(preparing)} if preparing else means


def phase_names(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Every phase, in the order shown; if any runs made their tokens, that as well."""
    if not any(PREPARING in (cell.phases or {}) for cell in cells):
        return PHASES
    before = PHASES.index("imports")
    return (*PHASES[:before], PREPARING, *PHASES[before:])


def _is_deterministic(record: Record) -> bool:
    return record.specification.work.deterministic and record.specification.conditions.deterministic


def _same_work(records: Sequence[Record]) -> tuple[list[SameWork], int, list[Apart]]:
    """Works that more than one stack has done.

    Then how many works only one stack has done, and those that each stack did where it computes otherwise.
    """
    works: dict[str, list[Record]] = {}
    for record in records:
        works.setdefault(record.work_digest, []).append(record)
    compared, of_one_stack, apart = [], 0, []
    for found in works.values():
        alike = _alike(found)
        several = [each for each in alike if len({record.specification.stack for record in each}) > 1]
        for each in several:
            digests: dict[str, list[str]] = {}
            for record in each:
                assert record.weights_digest is not None
                digests.setdefault(record.specification.stack, []).append(record.weights_digest)
            work = each[0].specification.work
            compared.append(SameWork(work.workers, work.epochs, work.seed, each[0].work_digest, digests))
        if len({record.specification.stack for record in found}) == 1:
            of_one_stack += len(alike)
        else:
            of_stacks = arithmetic_by((record.specification.stack, record) for record in found)
            apart += [of_stacks] if len(alike) > len(several) else []
    return compared, of_one_stack, apart


def arithmetic_by(runs: Iterable[tuple[str, Record]]) -> Apart:
    """What the runs of each side computed with, each once."""
    found: Apart = {}
    for side, record in runs:
        each = found.setdefault(side, [])
        each += [record.arithmetic] if record.arithmetic not in each else []
    return found


def _alike(records: Sequence[Record]) -> list[list[Record]]:
    """Runs of one work, those together that can end with equal bits."""
    found: dict[Arithmetic, list[Record]] = {}
    for record in records:
        found.setdefault(record.arithmetic, []).append(record)
    return list(found.values())
