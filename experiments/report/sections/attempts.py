"""Runs without a result that counts, and attempts that failed."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.analysis.figures import MissingRun
from experiments.records.record import Record, utc_text
from experiments.report.formats import Value
from experiments.report.names import missing_reason
from experiments.report.tables import Table, columns


def not_run_table(missing: Sequence[MissingRun]) -> Table:
    """Runs without a result, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for each in missing:
        by_reason.setdefault(missing_reason(each), []).append(each.run.run_id)
    return Table(
        title="Not run",
        before="",
        columns=columns("runs", "reason", words=("runs", "reason")),
        rows=[[Value(", ".join(run_ids), kind="code"), reason] for reason, run_ids in by_reason.items()],
    )


def attempts_table(attempts: Sequence[Record]) -> Table:
    """Attempts that failed, were interrupted or disturbed."""
    return Table(
        title="Attempts that do not count",
        before="",
        columns=columns(
            "run", "attempt", "status", "started", "reason", words=("run", "status", "started", "reason")
        ),
        rows=[
            [
                Value(record.run_id, kind="code"),
                Value(record.attempt),
                Value(record.status, kind="bad" if record.status == "failed" else ""),
                utc_text(record.started),
                record.reason or "",
            ]
            for record in attempts
        ],
    )
