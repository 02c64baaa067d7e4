"""What goes into a paper: tables as LaTeX, a paragraph on methods, and the records behind every figure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import figures_of
from experiments.campaign.campaign import open_campaign
from experiments.campaign.plan import PlannedRun
from experiments.report.latex import as_latex, escaped
from experiments.report.sections.methods import methods
from experiments.report.tables import Column, Table
from experiments.report.writer import report_tables, write_report
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import campaign, planned, record, spec
from training.spec import RunSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = Path(shutil.copytree(THREE_STACKS, tmp_path / THREE_STACKS.parent.name / THREE_STACKS.name))
    write_report(open_campaign(kept))
    return kept


def test_every_table_is_there_as_latex(folder: Path) -> None:
    text = (folder / "tables.tex").read_text(encoding="utf-8")
    found = report_tables(analyse(open_campaign(folder)))
    tables = [each for table in found for each in (table, *table.parts) if each.rows]
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == len(tables) + 1
    for table in tables:
        assert rf"\caption{{{escaped(table.title)}}}" in text
    for kinds, body in re.findall(r"\\begin{tabular}{(\w+)}\n(.*?)\\end{tabular}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(rows) > 1
        assert all(len(re.findall(r"(?<!\\)&", row)) == len(kinds) - 1 for row in rows)
    assert r"64.2 $\pm$ 4.9 & 56.4 to 72.0" in text and r"$-$13.1 to +32.8" in text
    assert not re.search(r"(?<!\\)[%#_]", text.partition("\n")[2])


def test_what_latex_takes_for_commands_is_escaped() -> None:
    table = Table("50 % & more", "", [Column("a_b"), Column("#", number=True)], [[r"\x {y} ~^", "<1"]])
    text = as_latex("made", "", [table])
    assert r"\caption{50 \% \& more}" in text and r"\begin{tabular}{lr}" in text
    assert r"a\_b & \# \\" in text
    assert r"\textbackslash{}x \{y\} \textasciitilde{}\textasciicircum{} & \textless{}1 \\" in text


def test_the_paragraph_says_what_was_equal_and_what_was_not(folder: Path, tmp_path: Path) -> None:
    text = methods(figures_of(open_campaign(folder)))
    for said in (
        "bert, 2 layers, 128 wide, 2 heads, from scratch, on movie-reviews, 4,000 samples to train",
        "The stacks were ddp, spark and determined; 24 runs with the seeds 1, 2, 3 and 4 count",
        "What varied: workers 1 and 2.",
        "torch 2.13.0",
        "(2 epochs, batch 32 per worker, AdamW, learning rate 0.001, linear schedule, 20 warm-up steps, "
        "weight decay 0.01, no gradient clipping, fp32, deterministic, 1 thread per rank). No test split was "
        "held out.",
        "Equal work gave equal weights, to the last bit",
    ):
        assert said in text
    assert text in (folder / "report.md").read_text(encoding="utf-8")
    nothing = campaign(tmp_path / "a", [planned("ddp", 1)], [])
    assert methods(figures_of(nothing)) == ""


def test_the_paragraph_has_the_settings_of_the_training_and_the_gpus(tmp_path: Path) -> None:
    fields = spec("ddp", 1).model_dump()
    fields["work"] |= {"slots_per_worker": 2, "optimiser": "sgd", "schedule": "step", "clip_gradients": 1.0}
    fields["work"]["data"] |= {"test": 500}
    fields["conditions"] |= {"deterministic": False, "device": "cuda"}
    made = RunSpec.model_validate(fields)
    axes = {"stack": "ddp", "workers": 1, "epochs": 2, "seed": 1}
    plan = [PlannedRun(run_id=made.run_id, axes=axes, specification=made)]
    gpu = {"uuid": "GPU-1", "name": "NVIDIA A100"}
    ranks = [rank.model_dump() | {"gpu": gpu} for rank in record("ddp", 2, 30.0, 45.0).ranks]
    made_up = campaign(tmp_path, plan, [record("ddp", 1, 30.0, 45.0, **of_specification(made), ranks=ranks)])
    text = methods(figures_of(made_up))
    assert (
        "batch 32 per rank, SGD with momentum 0.9, learning rate 5e-05, step schedule, 500 warm-up steps, "
        "weight decay 0.01, gradients clipped to norm 1, fp32, not deterministic, 1 thread per rank). A test "
        "split of 500 samples was held out, and looked at once, after the last epoch."
    ) in text
    assert "32 per worker" not in text and "GPUs: NVIDIA A100." in text


def test_every_figure_leads_to_its_records(folder: Path, tmp_path: Path) -> None:
    report = (folder / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((\S+record\.json)\)", report)
    assert len(links) == 24 and all((folder / link).is_file() for link in links)
    assert "| ddp | 1 | [4 of 4](#records) |" in report and "\n## Records\n" in report
    against = report.partition("\n## Against ddp\n")[2].partition("\n## ")[0]
    assert "| spark | 1 | 2 | [4](#records) |" in against
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert all(f'<a href="{link}">' in page for link in links) and 'id="records"' in page
    # The second attempt counts.
    failed: dict[str, Any] = {"status": "failed", "reason": "It broke.", "weights_digest": None}
    tried = campaign(
        tmp_path / "a",
        [planned("ddp", 1)],
        [record("ddp", 1, 20.0, 25.0, **failed), record("ddp", 1, 20.0, 25.0, attempt=2)],
    )
    (place,) = figures_of(tried).places.values()
    assert place.endswith("/02/record.json") and (tried.folder / place).is_file()
