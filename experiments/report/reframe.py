"""A campaign in the layout of ReFrame's run report, for tools that follow benchmarks by such reports.

It has the fields of ReFrame's JSON schema of run reports at data version 4.2 (ReFrame 4.9 and 4.10), and is
valid by it. But it is only like ReFrame's:

- ReFrame did not run. There are no stage folders, so `--restore-session` can't repeat the test cases.
- A reference that does not exist is null, with a verdict of null. ReFrame writes 0, and `pass`.
- A test case's `result` says whether the run counts, also where a figure of it left its reference's band.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from experiments.analysis.analysis import Analysis
from experiments.campaign.campaign import FILE as CAMPAIGN_FILE
from experiments.campaign.campaign import CampaignFile
from experiments.campaign.plan import PlannedRun
from experiments.matrix.references import Reference
from experiments.records.record import VALIDATION, Record
from experiments.report.export_runs import epoch_figures, has_own_times, lasting_id, marks, run_seconds
from experiments.report.names import missing_reason, value_text
from experiments.util.files import json_text

DATA_VERSION: Final = "4.2"  # of ReFrame's schema of run reports
NOTE: Final = "Written by trainbed in the layout of ReFrame's run report; ReFrame did not run."
RESULTS: Final = {"ok": "pass", "failed": "fail", "disturbed": "fail", "interrupted": "abort"}  # by status
SKIPPED: Final = "skip"  # never tried
TIME: Final = "%Y%m%dT%H%M%S%z"
VARIABLES: Final = {"train_s": "train_s", "total_s": "total_s", "accuracy": f"{VALIDATION}accuracy"}
"""The performance variable of a run that a reference's quantity is for."""

Case = dict[str, Any]


@dataclass(frozen=True)
class _Expected:
    """What a run's variable is compared with."""

    source: str  # in words
    value: float
    reference: Reference | None = None  # with its band; None: it judges nothing

    def compared(self, value: float, unit: str | None) -> list[Any]:
        """What follows a run's value: reference, tolerance below and above, unit, verdict."""
        if self.reference is None:
            return [self.value, None, None, unit, None]
        below, low, high = self.reference.below, self.reference.low, self.reference.high
        outside = (low is not None and value < low) or (high is not None and value > high)
        lower = None if below is None else -below
        return [self.value, lower, self.reference.above, unit, "fail" if outside else "pass"]


Expectations = dict[tuple[str, str], _Expected]  # by run and variable


def as_reframe(analysis: Analysis) -> str:
    """The campaign as JSON: a test case for each planned run but warm-ups, in the order of the matrix."""
    figures, campaign = analysis.figures, analysis.figures.campaign
    session, expected = str(lasting_id(campaign)), _expectations(analysis)
    counting = {record.run_id: record for record in figures.results}
    missing = {each.run.run_id: each for each in figures.not_run}
    cases = []
    for number, run in enumerate(campaign.wanted):
        record, why = counting.get(run.run_id), None
        if record is None:
            lacking = missing[run.run_id]
            record = lacking.last
            why = missing_reason(lacking) if record is None else record.reason
        ids = {"uuid": f"{session}:0:{number}", "session_uuid": session, "run_index": 0}
        place = {"record": figures.places.get(run.run_id)}
        cases.append(_case(campaign, run, record, why, expected) | ids | place)
    numbers = _numbers(cases)
    return json_text(
        {
            "session_info": _session(analysis, session) | numbers,
            "runs": [{**numbers, "run_index": 0, "testcases": cases}],
            "restored_cases": [],
        }
    )


def _session(analysis: Analysis, session: str) -> dict[str, Any]:
    """The campaign as one session, from its start to its last run's end."""
    figures, campaign = analysis.figures, analysis.figures.campaign
    ends = [record.ended for record in [*figures.results, *figures.attempts] if record.ended is not None]
    started, ended = campaign.started, max([campaign.started, *ends])
    nodes = campaign.environment.nodes
    return {
        "data_version": DATA_VERSION,
        "uuid": session,
        # Where runs are submitted; the campaign does not know its controller.
        "hostname": next((name for name, node in nodes.items() if "master" in node.groups), ""),
        "time_start": started.strftime(TIME),
        "time_start_unix": started.timestamp(),
        "time_end": ended.strftime(TIME),
        "time_end_unix": ended.timestamp(),
        "time_elapsed": (ended - started).total_seconds(),
        "matrix": campaign.matrix,
        "campaign": campaign.name,
        "note": NOTE,
    }


def _numbers(cases: list[Case]) -> dict[str, int]:
    found = Counter(case["result"] for case in cases)
    return {
        "num_cases": len(cases),
        "num_failures": found["fail"],
        "num_aborted": found["abort"],
        "num_skipped": found[SKIPPED],
    }


def _case(
    campaign: CampaignFile, run: PlannedRun, record: Record | None, why: str | None, expected: Expectations
) -> Case:
    """One run; `record` is of the attempt that counts, else of the last one, and `why` says why none does."""
    specification, environment = run.specification, campaign.environment
    system, partition = Path(environment.inventory).name, specification.conditions.device
    result = SKIPPED if record is None else RESULTS[record.status]
    ended = None if record is None else record.ended
    variables = {} if record is None else _variables(record)
    known = {name: expected[run.run_id, name] for name in variables if (run.run_id, name) in expected}
    return {
        **run.axes,  # ReFrame has parameters as fields of their own, too
        "name": " ".join(
            [campaign.matrix, *(f"%{name}={value_text(value)}" for name, value in run.axes.items())]
        ),
        "unique_name": run.run_id,
        "descr": campaign.description,
        "filename": CAMPAIGN_FILE,  # which defines the run
        "fixture": False,
        "tags": [] if record is None else marks(record),
        "system": system,
        "partition": partition,
        "environ": environment.lock,
        "scheduler": specification.stack,
        "num_tasks": specification.work.world_size,
        "num_tasks_per_node": specification.work.slots_per_worker,
        "job_nodelist": _nodes(record),
        "result": result,
        "fail_phase": "run" if result in ("fail", "abort") else None,
        "fail_reason": why,
        "job_completion_time": _moment(ended),
        "job_completion_time_unix": None if ended is None else ended.timestamp(),
        "time_total": record.total_s if record is not None and has_own_times(record) else None,
        "perfvalues": {
            f"{system}:{partition}:{name}": [
                value,
                *(known[name].compared(value, unit) if name in known else [None, None, None, unit, None]),
            ]
            for name, (value, unit) in variables.items()
        },
        "reference_sources": {name: each.source for name, each in known.items()},
    }


def _variables(record: Record) -> dict[str, tuple[float, str | None]]:
    """A run's seconds and its figures after the last epoch, with their units; none if it does not count."""
    if not record.ok:
        return {}
    figures = epoch_figures(record.epochs[-1]) if record.epochs else {}
    return {name: (value, "s") for name, value in run_seconds(record).items()} | {
        name: (value, None) for name, value in figures.items()
    }


def _expectations(analysis: Analysis) -> Expectations:
    """The inventory's first reference for a variable; else the dissertation's seconds of as many epochs."""
    found: Expectations = {}
    for each in analysis.published:
        if each.quantity != "seconds of training" or each.epochs != each.published_epochs:
            continue
        key = (each.stack, each.workers, each.epochs, each.settings)
        source = f"the dissertation, table {', '.join(each.tables)}"
        for cell in analysis.figures.cells:
            if (cell.stack, cell.workers, (cell.epochs,), cell.settings) == key:
                for record in cell.records:
                    found[record.run_id, "train_s"] = _Expected(source, each.published)
    for checked in reversed(analysis.references.checked):
        reference = checked.reference
        if (name := VARIABLES.get(reference.quantity)) is not None:
            for record in checked.cell.records:
                found[record.run_id, name] = _Expected("the inventory", reference.value, reference)
    return found


def _nodes(record: Record | None) -> list[str]:
    return [] if record is None else sorted({rank.node or rank.host for rank in record.ranks})


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
