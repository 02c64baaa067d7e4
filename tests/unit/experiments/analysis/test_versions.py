"""Versions by stack: of every package, also where a stack has an environment of its own."""

from __future__ import annotations

from pathlib import Path

from experiments.analysis.analysis import analyse
from experiments.records.record import Record
from experiments.report.sections.conditions import common_facts
from experiments.report.sections.methods import methods
from experiments.report.sections.versions import versions_table
from experiments.report.writer import write_report
from tests.unit.experiments.made_up_records import campaign, planned, record


def noting(stack: str, transformers: str, packages: dict[str, str] | None) -> Record:
    made = record(stack, 1, 30.0, 40.0)
    versions = {"python": "3.11.2", "torch": "2.13.0+cpu", "transformers": transformers}
    census = None if packages is None else {"packages": packages}
    ranks = [rank.model_copy(update={"versions": versions, "census": census}) for rank in made.ranks]
    return made.model_copy(update={"ranks": ranks})


def test_every_library_is_shown_for_every_stack(tmp_path: Path) -> None:
    records = [
        noting("ddp", "5.23.0", {"torch": "2.13.0", "pyspark": "4.3.0", "psutil": "7.2.2"}),
        noting("spark", "4.57.1", {"torch": "2.13.0", "pyspark": "3.5.1", "psutil": "7.2.2", "py4j": "0.10"}),
    ]
    made = campaign(tmp_path, [planned("ddp", 1), planned("spark", 1)], records)
    analysis = analyse(made)
    table = versions_table(analysis.versions)
    assert table.texts == [
        ["py4j", "\N{EN DASH}", "0.10"],
        ["pyspark", "4.3.0", "3.5.1"],
        ["transformers", "5.23.0", "4.57.1"],
        ["psutil", "7.2.2", "7.2.2"],
        ["python", "3.11.2", "3.11.2"],
        ["torch", "2.13.0+cpu", "2.13.0+cpu"],
    ]
    assert table.marked == [0, 1, 2] and "Not every rank" not in table.before
    said = "transformers 5.23.0 (ddp) and 4.57.1 (spark)"
    facts = dict(common_facts(analysis.figures))
    assert said in facts["Versions"] and facts["Versions"].endswith("of every library: Versions by stack")
    assert said in methods(analysis.figures)
    write_report(made)
    text = (made.folder / "report.md").read_text(encoding="utf-8")
    assert "| pyspark | 4.3.0 | 3.5.1 |" in text
    assert "openjdk 17.0.13" in text


def test_of_older_records_there_is_what_their_ranks_named(tmp_path: Path) -> None:
    plan = [planned("ddp", 1), planned("spark", 1)]
    records = [noting("ddp", "5.23.0", None), noting("spark", "5.23.0", {"trouble": "PermissionError"})]
    found = analyse(campaign(tmp_path, plan, records)).versions
    assert list(found.libraries) == ["python", "torch", "transformers"] and not found.of_all
    assert "Not every rank noted all its packages" in versions_table(found).before
