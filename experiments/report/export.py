"""Every figure of a report as rows of a table, in CSV and Parquet, for further computation."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv, parquet

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
        ("run", pa.string()),  # only in rows of a single run
        ("seed", pa.int64()),
        ("visible", pa.float64()),  # the smallest difference that would have shown, as a fraction
        ("table", pa.string()),  # of the dissertation, with its epochs and runs
        ("epochs_there", pa.string()),
        ("runs_there", pa.int64()),
        ("run_ids", pa.string()),  # of the row's cell: those that its figures come from
    ]
)


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """The rows as CSV."""
    out = io.BytesIO()
    csv.write_csv(_table(rows), out)
    return out.getvalue()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """The rows as Parquet."""
    out = io.BytesIO()
    parquet.write_table(_table(rows), out)
    return out.getvalue()


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in COLUMNS.names} for row in rows], COLUMNS)
