"""What a campaign's report shows, table by table."""

from __future__ import annotations

from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import Campaign
from experiments.report.sections.times import times_table
from experiments.report.tables import Table
from experiments.report.writer import report_tables


def tables(made: Campaign) -> dict[str, Table]:
    """Its tables and their parts by title."""
    analysis = analyse(made)
    found = [times_table(analysis.figures), *report_tables(analysis)]
    return {each.title: each for table in found for each in (table, *table.parts)}


def rows(table: Table) -> list[dict[str, str]]:
    """A table's rows as shown, keyed by column name."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.texts]
