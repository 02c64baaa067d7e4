"""Every figure of a report as rows of a table, in CSV and Parquet, for whoever computes further."""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv, parquet

from experiments.analysis.comparisons import Compared, Parts
from experiments.analysis.figures import Figures, cell_fields
from experiments.analysis.resource_use import usage_rows
from experiments.report.sections.dissertation import Beside
from experiments.report.sections.settings import settings

COLUMNS: Final = pa.schema(
    [
        ("section", pa.string()),
        ("stack", pa.string()),
        ("workers", pa.int64()),
        ("epochs", pa.int64()),
        ("setting", pa.string()),  # the values of the matrix's other axes
        ("quantity", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),  # ends of the 95 % interval, where there is one
        ("high", pa.float64()),
        ("sd", pa.float64()),
        ("runs", pa.int64()),
        ("p", pa.float64()),  # corrected
        ("dissertation", pa.float64()),
        ("reference", pa.float64()),  # of the inventory, with the ends of its band; none = open
        ("band_low", pa.float64()),
        ("band_high", pa.float64()),
        ("run", pa.string()),  # of a row that is one run's own
        ("seed", pa.int64()),
        ("p_equivalent", pa.float64()),  # of a difference of 3 % or more (TOST)
        ("visible", pa.float64()),  # the smallest difference that would have shown, as a fraction
        ("table", pa.string()),  # of the dissertation, with its epochs and runs
        ("epochs_there", pa.string()),
        ("runs_there", pa.int64()),
    ]
)


def rows_of(
    figures: Figures, compared: list[Compared], parts: list[Parts], beside: list[Beside]
) -> list[dict[str, Any]]:
    """One row for each figure."""
    rows: list[dict[str, Any]] = []
    for cell in figures.cells:
        about = cell_fields(cell)
        for name, found in (("train_s", cell.train_s), ("total_s", cell.total_s)):
            if found is not None:
                rows.append(
                    about
                    | {"section": "times", "quantity": name, "value": found.mean, "sd": found.sd}
                    | {"low": found.low, "high": found.high, "runs": found.n}
                )
        if cell.accuracy is not None:
            half = cell.accuracy.half_width
            value = cell.accuracy.accuracy
            rows.append(
                about
                | {"section": "accuracy", "quantity": "accuracy", "value": value, "runs": cell.accuracy.n}
                | ({"low": value - half, "high": value + half} if cell.accuracy.n == 1 else {})
            )
            # The interval is one run's: a mean of several, of the same reviews, has another.
            rows.append(
                about
                | {"section": "accuracy", "quantity": "accuracy, half a 95 % interval of one run"}
                | {"value": half, "runs": cell.accuracy.n}
            )
        for name, seconds in (cell.phases or {}).items():
            rows.append(
                about | {"section": "phases", "quantity": name, "value": seconds, "runs": len(cell.records)}
            )
        if cell.speed_up is not None and cell.efficiency is not None:
            each, share = cell.speed_up, cell.efficiency
            scaling = about | {"section": "scaling", "runs": each.n}
            rows.append(
                scaling | {"quantity": "speed_up", "value": each.ratio, "low": each.low, "high": each.high}
            )
            rows.append(
                scaling
                | {"quantity": "efficiency", "value": share.mean, "low": share.low, "high": share.high}
            )
        if cell.overhead_total is not None:
            whole = cell.overhead_total
            rows.append(
                about
                | {"section": "overhead", "quantity": f"total_s over {figures.campaign.baseline}"}
                | {"value": whole.ratio, "low": whole.low, "high": whole.high, "runs": whole.n}
            )
    for other in compared:
        cell, ratio = other.cell, other.ratio
        about = cell_fields(cell)
        rows.append(
            about
            | {"section": "comparison", "quantity": f"train_s over {figures.campaign.baseline}"}
            | {"value": ratio.ratio, "low": ratio.low, "high": ratio.high, "runs": ratio.n}
            | {"p": other.corrected_p, "p_equivalent": ratio.equivalent_p, "visible": ratio.visible}
        )
    for setting in settings(figures):
        ratio = setting.ratio
        told = f"train_s, {setting.axis} {setting.cell.axes[setting.axis]} over {setting.first}"
        rows.append(
            cell_fields(setting.cell)
            | {"section": "settings", "quantity": told, "value": ratio.ratio, "runs": ratio.n}
            | {"low": ratio.low, "high": ratio.high, "p": setting.corrected_p}
            | {"p_equivalent": ratio.equivalent_p, "visible": ratio.visible}
        )
    for part in parts:
        about = {"section": "parts", "stack": part.stack, "workers": part.workers, "runs": part.here.n}
        about["setting"] = part.setting
        there = part.there
        rows.append(
            about
            | {"quantity": "fixed_s", **_with_ends(part.here.fixed_s, part.here.fixed_half)}
            | {"dissertation": there.fixed_s if there else None}
        )
        rows.append(
            about
            | {"quantity": "step_s", **_with_ends(part.here.step_s, part.here.step_half)}
            | {"dissertation": there.step_s if there else None}
        )
    for one in beside:
        rows.append(
            {"section": "dissertation", "stack": one.stack, "workers": one.workers, "setting": one.setting}
            | {"epochs": int(one.epochs) if one.epochs.isdigit() else None}
            | {"quantity": one.quantity, "value": one.here, "dissertation": one.there, "runs": one.runs}
            | {"table": one.table, "epochs_there": one.there_epochs, "runs_there": one.there_runs}
            | {"low": one.low, "high": one.high}
        )
    return rows + usage_rows(figures.cells) + _run_rows(figures)


def _with_ends(value: float, half: float | None) -> dict[str, float]:
    return {"value": value} if half is None else {"value": value, "low": value - half, "high": value + half}


def _run_rows(figures: Figures) -> list[dict[str, Any]]:
    """Every run's own times: what the means are made of, and an outlier is seen in."""
    return [
        cell_fields(cell)
        | {"section": "runs", "run": record.run_id, "seed": record.specification.work.seed}
        | {"quantity": f"{clock} of the run", "value": seconds, "runs": 1}
        for cell in figures.cells
        for record in cell.records
        for clock, seconds in (("train_s", record.train_s), ("total_s", record.total_s))
        if seconds is not None
    ]


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    """The rows as CSV."""
    out = io.BytesIO()
    csv.write_csv(_table(rows), out)
    return out.getvalue()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    """The rows as Parquet."""
    out = io.BytesIO()
    parquet.write_table(_table(rows), out)
    return out.getvalue()


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in COLUMNS.names} for row in rows], COLUMNS)
