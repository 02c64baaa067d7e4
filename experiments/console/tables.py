"""The tables on screen: a plan, and what became of a campaign."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.campaign.campaign import Campaign
from experiments.campaign.estimates import Estimates
from experiments.campaign.plan import PlannedRun
from experiments.campaign.sequential import FIRST_LOOK, SequentialRule
from experiments.cluster.environment import Node
from experiments.cluster.progress import duration
from experiments.cluster.room import cores_used, differences, spare_cores
from experiments.report.data_words import data_words
from experiments.report.formats import TENTHS, Format, number
from experiments.report.names import NOT_NEEDED, cells_name, setting_text, value_text
from experiments.util.screen import Screen
from experiments.util.words import counted, listed


def show_plan(
    screen: Screen, plan: list[PlannedRun], name: str, estimates: Estimates, workers: Mapping[str, Node]
) -> None:
    """The plan as a table: which runs can't be made here and why, and how long the others took before.

    Below it, which runs are the same here, how the workers differ, which of them runs go to, and which cores
    no run uses.
    """
    rows = []
    for at, run in enumerate(plan, start=1):
        known = None if run.cannot_run else estimates.of(run.specification)
        does = "warm-up, not counted" if run.warm_up else "runs"
        others = [run_id for run_id in run.together if run_id != run.run_id]
        does += f" together with {' and '.join(others)}" if others else ""
        rows.append([str(at), run.run_id, "" if known is None else duration(known), run.cannot_run or does])
    warm_ups = sum(run.warm_up for run in plan)
    title = f"Plan of {name}: {counted(len(plan) - warm_ups, 'run')}"
    title += f", {counted(warm_ups, 'warm-up')}" if warm_ups else ""
    screen.table(title, ["", "run", "takes", "on this cluster"], rows)
    possible = [run.specification for run in plan if run.cannot_run is None]
    seconds, unknown = estimates.of_all(possible)
    if seconds:
        rest = f", plus {unknown} of the {len(possible)} runs, never made before" if unknown else ""
        screen.line(f"By earlier records this takes {duration(seconds)}{rest}.")
    elif possible:
        screen.line("None of these runs was made before, so there is no estimate of the time.")
    for sentence in _about(workers, plan):
        screen.line(sentence)


def plan_as_json(
    plan: list[PlannedRun], name: str, estimates: Estimates, workers: Mapping[str, Node]
) -> dict[str, Any]:
    """The plan as JSON has it, with the seconds that runs took before."""
    return {
        "matrix": name,
        "runs": [
            {
                "run_id": run.run_id,
                "axes": run.axes,
                "warm_up": run.warm_up,
                "cannot_run": run.cannot_run,
                "together": run.together,
                "nodes": run.nodes,
                "expected_s": None if run.cannot_run else estimates.of(run.specification),
            }
            for run in plan
        ],
        "notes": list(_about(workers, plan)),
    }


def _about(workers: Mapping[str, Node], plan: Sequence[PlannedRun]) -> Iterator[str]:
    """What somebody who plans runs should know of the workers, a sentence each."""
    yield from _same_texts(workers, plan)
    differ = differences(workers)
    if differ:
        yield f"The workers differ in {listed(differ)}; the slowest sets the pace of a run."
    possible = [run for run in plan if run.cannot_run is None]
    smaller = [run for run in possible if run.specification.work.workers < len(workers)]
    if told := _places_text(smaller, alike=not differ):
        yield f"Of the runs on fewer than all {counted(len(workers), 'worker')}, {told}."
    runs = [run.specification for run in possible]
    used = max((cores_used(run) for run in runs), default=None)
    open_threads = any(run.conditions.threads == "stack" for run in runs)
    if used is None or open_threads or runs[0].conditions.device == "cuda":
        return
    if spare := spare_cores(workers, used):
        told = listed([f"{number} of {name}" for name, number in spare.items()])
        yield f"Cores that no run uses: {told} (a run uses {used} of each worker; worker_threads sets it)."


def _same_texts(workers: Mapping[str, Node], plan: Sequence[PlannedRun]) -> Iterator[str]:
    """Which settings of the matrix make no difference on these workers, a sentence each."""
    doubled: dict[str, int] = {}
    for run in plan:
        every = [run.axes, *run.also]
        named = [name for name in run.axes if len({value_text(axes.get(name)) for axes in every}) > 1]
        values = [setting_text({name: axes[name] for name in named}) for axes in every]
        if named:
            text = " and ".join(sorted(set(values)))
            doubled[text] = doubled.get(text, 0) + 1
    for text, count in doubled.items():
        yield f"The same on this cluster, so each is made once: {counted(count, 'run')} with {text}."
    asked = {run.specification.conditions.tokenizer_threads for run in plan} - {"one"}
    if asked and all(node.cores == 1 for node in workers.values()):
        yield (
            f"Every worker has one core, so tokenizer_threads {listed(sorted(asked))} is one thread here, as "
            "is one: their runs are made, and differ in name alone."
        )


def _places_text(runs: Sequence[PlannedRun], *, alike: bool) -> str:
    """Whose runs take turns over the workers, and whose don't; "" if there are none, or it is not known."""
    given = list(dict.fromkeys(run.specification.stack for run in runs if run.nodes))
    choosing = list(dict.fromkeys(run.specification.stack for run in runs if run.nodes == []))
    how = "take turns over the workers, seed by seed" if alike else "go to the first ones, as workers differ"
    return "; ".join(
        [
            *([f"those of {listed(given)} {how}"] if given else []),
            *([f"those of {listed(choosing)} go where the stack puts them"] if choosing else []),
        ]
    )


def show_work(screen: Screen, campaign: Campaign) -> None:
    """Which model is trained on which data."""
    works = [run.specification.work for run in campaign.file.plan]
    models = list(dict.fromkeys(work.model.text(work.data) for work in works))
    if campaign.file.has_own_loop:
        screen.line(f"Script: {'; '.join(models)}.")
        return
    data, sets = data_words(campaign.file), len(campaign.file.data_of_runs)
    several = f", {counted(sets, 'data set')} in all" if sets > 1 else ""
    screen.line(
        f"Data: {data.name}, {data.train} to train and {data.validation} to validate{several}. "
        f"{data.notes}".strip()
    )
    screen.line(f"Model: {'; '.join(models)}.")


def show_campaign(screen: Screen, campaign: Campaign) -> None:
    """What became of every run, as a table."""
    warm_ups = [run for run in campaign.file.plan if run.warm_up]
    rows = [_row(campaign, run) for run in [*campaign.file.wanted, *warm_ups]]
    metric = data_words(campaign.file).metric
    columns = ["run", "status", "train s", "total s", metric, "weights", ""]
    screen.table(f"Campaign {campaign.file.name} of {campaign.file.matrix}", columns, rows, status_column=1)
    screen.line(f"Records: {campaign.folder}")


class CampaignTables:
    """What `run` shows of a campaign: tables on its screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def begins(self, campaign: Campaign) -> None:
        """Says what is trained."""
        show_work(self._screen, campaign)

    def ends(self, campaign: Campaign) -> None:
        """Shows what became of every run."""
        show_campaign(self._screen, campaign)

    def decides(self, campaign: Campaign, rule: SequentialRule) -> bool:
        """Shows how many comparisons are decided; returns whether all are."""
        from experiments.analysis.sequential import look

        found = look(campaign, rule)
        number, percent = len(found.decided) + len(found.undecided), f"{rule.percent:g} %"
        if found.decided and not found.undecided:
            said = f"Each is different, or the same within {percent}. Further seeds are not needed."
            self._screen.line(f"Decided: {counted(number, 'comparison')}. {said}", "green")
            return True
        if all(len(cell.records) < FIRST_LOOK for cell in found.undecided):
            return False  # nothing can be decided yet
        names = listed([cells_name([cell], [*found.decided, *found.undecided]) for cell in found.undecided])
        self._screen.line(
            f"Decided: {len(found.decided)} of {counted(number, 'comparison')}; not yet: {names}."
        )
        return False

    def judges(self, campaign: Campaign) -> int:
        """Shows which figures left their bands; returns the exit code, 1 or 0."""
        # Imported here because the statistics take a second to load, and a run starts without them.
        from experiments.analysis.figures import figures_of
        from experiments.analysis.references import check_references
        from experiments.console.references import show_references

        return show_references(self._screen, check_references(figures_of(campaign)))


def _row(campaign: Campaign, run: PlannedRun) -> list[str]:
    records = campaign.records(run.run_id)
    record = campaign.counting(run.run_id) or (records[-1] if records else None)
    if record is None:
        yet = NOT_NEEDED if campaign.decided else "Not yet."
        return [run.run_id, "not run", "", "", "", "", run.cannot_run or yet]
    shown = record if record.standin is None else record.without_times()
    return [
        run.run_id,
        "warm-up" if record.ok and run.warm_up else record.status,
        _seconds(shown.train_s),
        _seconds(shown.total_s),
        "" if record.quality is None else number(record.quality, Format(3)),
        record.weights_digest[:8] if record.weights_digest else "",
        record.reason or record.why_not_timed or "",
    ]


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else number(seconds, TENTHS)
