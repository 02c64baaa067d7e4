"""Every figure of an analysis as a row of the exported figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from experiments.analysis.added import TOTAL, Added
from experiments.analysis.analysis import Analysis
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.fingerprint import Term
from experiments.analysis.fixed_costs import FixedCosts
from experiments.analysis.from_texts import FromTexts
from experiments.analysis.growth import Growth
from experiments.analysis.ladders import Waterfall
from experiments.analysis.scaling_model import ScalingModel
from experiments.analysis.scaling_model import Term as Cost
from experiments.analysis.statistics import Difference, Estimate, Ratio
from experiments.analysis.to_quality import CellToTarget, ToQuality
from experiments.analysis.users import Occasion, User
from experiments.records.record import Record
from experiments.report.names import link_text, setting_text

Row = dict[str, Any]

FINGERPRINT: Final[dict[Term, str]] = {
    "once": "train_s once, s",
    "step": "train_s a step, ms",
    "trained": "train_s for 32 samples trained on, ms",
    "evaluated": "train_s for 32 samples evaluated, ms",
}
GROWTH: Final[dict[Cost, str]] = {
    "fixed": "of each step",
    "flop": "for 10^9 operations",
    "attention": "for 10^6 attention weights",
    "parameters": "for 10^6 parameters",
    "bytes": "for a MB sent",
    "rounds": "for a round of messages",
    "link": "for a ms on the link",
}


def export_rows(analysis: Analysis) -> list[Row]:
    """One row for each figure."""
    figures, baseline = analysis.figures, analysis.figures.campaign.baseline
    return [
        *(row for cell in figures.cells for row in _cell_rows(cell, baseline)),
        *_comparison_rows(analysis, baseline),
        *_own_clock_rows(analysis),
        *_noise_rows(analysis),
        *_drift_rows(analysis),
        *(row for each in analysis.added for row in _added_rows(each, baseline)),
        *(row for each in analysis.fixed_costs for row in _fixed_cost_rows(each)),
        *_split_rows(analysis),
        *_fingerprint_rows(analysis, baseline),
        *_published_rows(analysis),
        *_use_rows(analysis),
        *_step_rows(analysis),
        *(row for each in analysis.growth for row in _growth_rows(each)),
        *_run_rows(figures),
        *_reference_rows(analysis),
        *(row for each in analysis.waterfalls for row in _ladder_rows(each)),
        *(row for each in analysis.from_texts for row in _from_texts_rows(each, baseline)),
        *(row for each in analysis.occasions for row in _occasion_rows(each)),
        *_to_quality_rows(analysis.to_quality, baseline),
    ]


def _cell(cell: Cell, section: str) -> Row:
    """What all rows of a cell have in common."""
    return {
        "section": section,
        "stack": cell.stack,
        "workers": cell.workers,
        "epochs": cell.epochs,
        "setting": setting_text(cell.settings),
        "run_ids": _ids(cell.records),
    }


def _ids(records: Sequence[Record]) -> str:
    return " ".join(record.run_id for record in records)


def _figure(quantity: str, value: float | None, runs: int, **more: Any) -> Row:
    return {"quantity": quantity, "value": value, "runs": runs, **more}


def _estimate(quantity: str, found: Estimate) -> Row:
    return _figure(quantity, found.mean, found.n, low=found.low, high=found.high, sd=found.sd)


def _ratio(quantity: str, found: Ratio) -> Row:
    return _figure(quantity, found.ratio, found.n, low=found.low, high=found.high)


def _difference(quantity: str, found: Difference) -> Row:
    return _figure(quantity, found.mean, found.n, low=found.low, high=found.high)


def _tests(found: Ratio) -> Row:
    return {"p": found.p, "visible": found.visible}


def _cell_rows(cell: Cell, baseline: str) -> Iterator[Row]:
    for name, found in (("train_s", cell.train_s), ("total_s", cell.total_s)):
        if found is not None:
            yield _cell(cell, "times") | _estimate(name, found)
    for name, found in cell.metrics.items():
        yield _cell(cell, "quality") | _estimate(name, found)
        if (half := cell.one_evaluation(name)) is not None:
            quantity = f"{name}, half a 95 % interval of one evaluation"
            yield _cell(cell, "quality") | _figure(quantity, half, found.n)
    for name, seconds in (cell.phases or {}).items():
        yield _cell(cell, "phases") | _figure(name, seconds, len(cell.timed))
    if cell.speed_up is not None and cell.efficiency is not None:
        yield _cell(cell, "scaling") | _ratio("speed_up", cell.speed_up)
        yield _cell(cell, "scaling") | _estimate("efficiency", cell.efficiency)
    if cell.overhead_total is not None:
        yield _cell(cell, "overhead") | _ratio(f"total_s over {baseline}", cell.overhead_total)


def _comparison_rows(analysis: Analysis, baseline: str) -> Iterator[Row]:
    for stack in analysis.comparisons:
        ratio = stack.ratio
        row = _cell(stack.cell, "comparison")
        yield row | _ratio(f"train_s over {baseline}", ratio) | _tests(ratio)
        more = _difference(f"train_s a step, s more than {baseline}'s", stack.more_a_step)
        yield row | more | {"dissertation": stack.published_step_s}
        if stack.more_outside is not None:
            yield row | _difference(f"outside train_s, s more than {baseline}'s", stack.more_outside)
    for setting in analysis.settings:
        names = ", ".join(setting.axes)
        own, first = (", ".join(map(str, values)) for values in (setting.values, setting.first))
        quantity = f"train_s, {names} {own} over {first}"
        row = _cell(setting.cell, "settings")
        yield row | _ratio(quantity, setting.ratio) | _tests(setting.ratio)
        value = f"{names} {own} more than {first}"
        for name, found in (
            ("train_s a step", setting.more_a_step),
            ("outside train_s", setting.more_outside),
        ):
            if found is not None:
                yield row | _difference(f"{name}, s, {value}", found)


def _added_rows(each: Added, baseline: str) -> Iterator[Row]:
    """The baseline's parts, and how much longer they are on other stacks."""
    for part in each.parts:
        name = part.name if part.name == TOTAL else f"{part.name}, s"
        yield _cell(each.baseline, "added") | _estimate(name, part.baseline)
        for cell in each.cells:
            if (found := part.added.get(cell.stack)) is not None:
                more = _difference(f"{name}, more than {baseline}'s", found)
                yield _cell(cell, "added") | more | {"p": found.p}


def _fixed_cost_rows(each: FixedCosts) -> Iterator[Row]:
    """What a run takes however long it trains, and the bare start of its stack."""
    row = _cell(each.cell, "fixed costs")
    yield row | _estimate("to the first step, s", each.to_first_step_s)
    yield row | _estimate("after the last step, s", each.after_last_step_s)
    yield row | _estimate("both, s", each.both_s)
    yield row | _estimate("around the command, s", each.around_s)
    if each.bare is not None:
        yield row | _estimate("bare start, s", each.bare.start_s)
        for name, more in (
            ("both, more than the bare start, s", each.bare.more_s),
            ("both and around, more than the bare start, s", each.bare.more_with_around_s),
        ):
            yield row | _difference(name, more) | {"p": more.p}


def _own_clock_rows(analysis: Analysis) -> Iterator[Row]:
    for each in analysis.own_clock:
        quantity = f"{each.metric}, more than on {each.baseline.stack}"
        more = each.more_ms
        yield (
            _cell(each.cell, "own clock")
            | _difference(quantity, more)
            | {"p": more.p, "visible": more.visible}
        )


def _noise_rows(analysis: Analysis) -> Iterator[Row]:
    for each in analysis.noise.again:
        yield (
            _cell(each.cell, "noise") | _ratio("train_s over the first ones", each.ratio) | _tests(each.ratio)
        )
        if each.outside is not None:
            yield _cell(each.cell, "noise") | _difference("outside train_s, s more", each.outside)


def _drift_rows(analysis: Analysis) -> Iterator[Row]:
    if (found := analysis.drift.trend) is not None:
        quantity = "change of train_s in an hour"
        ends = {"low": found.low, "high": found.high, "p": found.p}
        yield {"section": "drift"} | _figure(quantity, found.slope, found.n, **ends)


def _split_rows(analysis: Analysis) -> Iterator[Row]:
    for each in analysis.time_splits:
        here, there = each.here, each.dissertation
        row = {"section": "parts", "stack": each.stack, "workers": each.workers}
        row["setting"] = setting_text(each.settings)
        for quantity, value, half, published in (
            ("fixed_s", here.fixed_s, here.fixed_half, there.fixed_s if there else None),
            ("step_s", here.step_s, here.step_half, there.step_s if there else None),
        ):
            ends = {} if half is None else {"low": value - half, "high": value + half}
            yield row | _figure(quantity, value, here.n, dissertation=published, **ends)
        if each.more_a_step is not None:
            yield row | _difference("step_s, more than the first stack's", each.more_a_step)


def _fingerprint_rows(analysis: Analysis, baseline: str) -> Iterator[Row]:
    for each in analysis.fingerprints:
        row = {"section": "fingerprint", "stack": each.stack, "workers": each.workers}
        row["setting"] = setting_text(each.settings)
        for term, cost in each.costs.items():
            yield row | _difference(f"{FINGERPRINT[term]}, more than {baseline}'s", cost)


def _published_rows(analysis: Analysis) -> Iterator[Row]:
    for each in analysis.published:
        yield {
            "section": "dissertation",
            "stack": each.stack,
            "workers": each.workers,
            "epochs": each.epochs[0] if len(each.epochs) == 1 else None,
            "setting": setting_text(each.settings),
            "dissertation": each.published,
            "table": ", ".join(each.tables) if each.is_printed else None,
            "epochs_there": ", ".join(map(str, each.published_epochs)),
            "runs_there": each.published_runs,
            **_figure(each.quantity, each.here, each.runs, low=each.low, high=each.high),
        }


def _use_rows(analysis: Analysis) -> Iterator[Row]:
    for each in analysis.resource_use:
        for name, value in each.found.items():
            if value is not None:
                yield _cell(each.cell, "usage") | _estimate(name, value)


def _step_rows(analysis: Analysis) -> Iterator[Row]:
    """What steps took on each rank, in milliseconds."""
    for each in analysis.steps:
        row, rank = _cell(each.cell, "steps"), f"of rank {each.rank}"
        yield row | _estimate(f"step_ms {rank}, median", each.median)
        for name, value in (
            ("95th percentile", each.p95),
            ("99th percentile", each.p99),
            ("longest", each.longest),
        ):
            yield row | _figure(f"step_ms {rank}, {name}", value, each.runs)


def _growth_rows(each: Growth) -> Iterator[Row]:
    """What a step's time grows with, how well that predicts, and what it predicts."""
    model = each.model
    if not isinstance(model, ScalingModel):
        return
    row = {"section": "growth", "stack": each.stack, "setting": setting_text(each.settings)}
    for term, cost in model.costs.items():
        ends = {"low": cost.low, "high": cost.high}
        yield row | _figure(f"step_ms {GROWTH[term]}", cost.value, each.runs, **ends)
    if model.held_out is not None:
        for name, error in (("median", model.held_out.median), ("worst", model.held_out.worst)):
            yield row | _figure(f"error of a cell held out, {name}", error, each.runs)
    for found in each.predictions:
        there = row | {"workers": found.workers}
        link, ends = link_text(found.link_gbit), {"low": found.step_ms.low, "high": found.step_ms.high}
        yield there | _figure(f"step_ms by the model, link {link}", found.step_ms.value, each.runs, **ends)
        yield there | _figure(f"efficiency by the model, link {link}", found.efficiency, each.runs)


def _run_rows(figures: Figures) -> Iterator[Row]:
    """Every run's own times, which the means are made from and which show outliers."""
    for cell in figures.cells:
        for record in cell.records:
            seed = record.specification.work.seed
            run = {"run": record.run_id, "seed": seed, "run_ids": record.run_id}
            for clock, seconds in (("train_s", record.train_s), ("total_s", record.total_s)):
                if seconds is not None:
                    yield _cell(cell, "runs") | _figure(f"{clock} of the run", seconds, 1, **run)


def _reference_rows(analysis: Analysis) -> Iterator[Row]:
    for each in analysis.references.checked:
        reference = each.reference
        yield {
            "section": "references",
            "stack": each.cell.stack,
            "workers": each.cell.workers,
            "epochs": each.cell.epochs,
            "run_ids": _ids(each.cell.records),
            "reference": reference.value,
            "band_low": reference.low,
            "band_high": reference.high,
            **_figure(reference.quantity, each.here, each.n),
        }


def _ladder_rows(waterfall: Waterfall) -> Iterator[Row]:
    """Each step's seconds, its share of the last rung, and the phases that changed most."""
    axes = waterfall.axes
    row = {"section": "why", "workers": axes["workers"], "epochs": axes["epochs"]}
    for step in waterfall.every_step:
        name, p = f"{waterfall.ladder}: {step.above} > {step.below}", {"p": step.seconds.p}
        yield row | _difference(f"{name}, s", step.seconds) | p
        if step.percent is not None:
            yield row | _difference(f"{name}, %", step.percent) | p
        for phase, seconds in step.phases:
            yield row | _figure(f"{name}, {phase}, s", seconds, step.seconds.n)


def _from_texts_rows(each: FromTexts, baseline: str) -> Iterator[Row]:
    row = _cell(each.cell, "from texts")
    yield row | _estimate("preparing_s", each.preparing_s)
    yield row | _estimate("train_s", each.training_s)
    yield row | _estimate("end_to_end_s", each.end_to_end_s)
    if each.preparing_ratio is not None:
        yield row | _ratio(f"preparing_s over {baseline}", each.preparing_ratio)
    if each.ratio is not None:
        yield row | _ratio(f"end_to_end_s over {baseline}", each.ratio) | {"p": each.ratio.p}


def _to_quality_rows(found: ToQuality | None, baseline: str) -> Iterator[Row]:
    """The time to the matrix's target; nothing if it has none."""
    for each in found.cells if found is not None else []:
        time, ratio, row = each.time, each.ratio, _cell(each.cell, "to quality")
        yield row | _figure("runs that reached the target", len(each.epochs), len(each.runs))
        if time is not None:
            ends = {"low": time.low_s, "high": time.high_s}
            yield row | _figure("to_target_s, median", time.median_s, time.n, **ends)
            if time.restricted_s is not None:
                yield row | _figure("to_target_s, restricted mean", time.restricted_s, time.n)
                yield row | _figure("to_target_s, restricted to", time.within_s, time.n)
        if ratio is not None:
            yield row | _ratio(f"to_target_s over {baseline}", ratio) | _tests(ratio)
        yield from _run_to_target_rows(each)


def _run_to_target_rows(each: CellToTarget) -> Iterator[Row]:
    for run in each.runs:
        run_id = run.record.run_id
        row = _cell(each.cell, "to quality") | {"run": run_id, "seed": run.seed, "run_ids": run_id}
        if run.epoch is not None:
            yield row | _figure("epoch of the target", run.epoch, 1)
        if run.seconds is not None:
            name = "to_target_s of the run" if run.epoch is not None else "to_target_s of the run, censored"
            yield row | _figure(name, run.seconds, 1)


def _occasion_rows(each: Occasion) -> Iterator[Row]:
    alone = _cell(each.cell, "users")
    seeds = ", ".join(str(user.seed) for user in each.users)

    def row(words: str, users: Sequence[User]) -> Row:
        own = _ids([user.record for user in users])
        return alone | {"setting": ", ".join(filter(None, (alone["setting"], words))), "run_ids": own}

    for user in each.users:
        one = row(f"seed {user.seed} of {seeds}", [user])
        of_alone = one | {"run_ids": alone["run_ids"]}
        yield one | _figure("took_s", user.took_s, 1)
        yield of_alone | _figure("took_s alone", user.alone.took_s, user.alone.runs)
        yield one | _figure("waited_s", user.waited_s, 1)
        yield of_alone | _figure("waited_s alone", user.alone.waited_s, user.alone.runs)
        yield one | _figure("slowdown", user.slowdown, 1)
    whole, runs = row(f"seeds {seeds}", each.users), len(each.users)
    yield whole | _figure("fairness", each.fairness, runs)
    yield whole | _figure("makespan_s", each.makespan_s, runs)
    yield whole | _figure("in turn, alone", each.in_turn_s, runs)
    yield whole | _figure("overlap_s", each.overlap_s, runs)
