"""The data sets of a campaign whose runs differ in their data."""

from __future__ import annotations

from typing import Final

from experiments.analysis.figures import Figures
from experiments.matrix.model import OF_DATA
from experiments.report.data_words import data_words
from experiments.report.formats import GROUPED, Value
from experiments.report.names import value_text
from experiments.report.tables import Table, columns

TITLE: Final = "Data sets"
SIZES: Final = (f"{OF_DATA}train", f"{OF_DATA}validation")  # which have columns anyway
DIGITS: Final = 12  # of a digest


def data_sets_table(figures: Figures) -> Table:
    """A row for each data set, with the values of the matrix's axes; none if all runs have the same."""
    campaign = figures.campaign
    settings = campaign.data_of_runs if campaign.datasets else {}
    first = {run.specification.work.data_digest: run for run in reversed(campaign.measured)}
    axes = [axis for axis in campaign.measured[0].axes if axis.startswith(OF_DATA) and axis not in SIZES]
    names = ("data", *axes, "train", "validation", "tokens of a sample", "runs", "digest")
    used = [record.specification.work.data_digest for record in figures.counting]
    notes = data_words(campaign).notes
    return Table(
        title=TITLE,
        before=(
            "Runs with other data do other work: their weights are not compared, and ± and intervals never "
            "mix them. Train and validation: samples; runs: those that count."
        ),
        columns=columns(*names, words=("data", *axes, "digest")),
        rows=[
            [
                data.name,
                *(value_text(first[digest].axes[axis]) for axis in axes),
                Value(data.train, GROUPED),
                Value(data.validation or None, GROUPED),
                Value(data.tokens_per_sample),
                Value(used.count(digest)),
                Value(digest[:DIGITS], kind="code"),
            ]
            for digest, data in settings.items()
        ],
        after=[notes] if notes else [],
    )
