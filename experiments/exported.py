"""Every figure of a report as rows of a table, in CSV and Parquet, for whoever computes further."""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv, parquet

from experiments.beside import Beside
from experiments.comparisons import Compared, Parts
from experiments.figures import Figures, cell_fields
from experiments.settings import settings
from experiments.use_figures import usage_rows

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
                | {"low": value - half, "high": value + half}
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
            | {"p": other.corrected_p}
        )
    for setting in settings(figures):
        ratio = setting.ratio
        told = f"train_s, {setting.axis} {setting.cell.axes[setting.axis]} over {setting.first}"
        rows.append(
            cell_fields(setting.cell)
            | {"section": "settings", "quantity": told, "value": ratio.ratio, "runs": ratio.n}
            | {"low": ratio.low, "high": ratio.high, "p": setting.corrected_p}
        )
    for part in parts:
        about = {"section": "parts", "stack": part.stack, "workers": part.workers, "runs": part.here.n}
        about["setting"] = part.setting
        there = part.there
        rows.append(
            about
            | {"quantity": "fixed_s", "value": part.here.fixed_s}
            | {"dissertation": there.fixed_s if there else None}
        )
        rows.append(
            about
            | {"quantity": "step_s", "value": part.here.step_s}
            | {"dissertation": there.step_s if there else None}
        )
    for one in beside:
        rows.append(
            {"section": "dissertation", "stack": one.stack, "workers": one.workers}
            | {"epochs": int(one.epochs) if one.epochs.isdigit() else None}
            | {"quantity": one.quantity, "value": one.here, "dissertation": one.there, "runs": one.runs}
            | {"low": one.low, "high": one.high}
        )
    return rows + usage_rows(figures.cells)


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
