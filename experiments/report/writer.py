"""The report of a campaign: the same records give the same bytes, in Markdown and as one HTML page."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from experiments.analysis.comparisons import comparisons, parts
from experiments.analysis.dissertation import dissertation
from experiments.analysis.figures import Figures, figures_of
from experiments.analysis.ladders import waterfalls
from experiments.analysis.users import occasions, users_rows
from experiments.campaign.campaign import PLOTS, Campaign
from experiments.records.record import utc_text
from experiments.report.export import as_csv, as_parquet, rows_of
from experiments.report.plots import plots_of
from experiments.report.sections.conclusions import conclusions, same_steps, weights_differ, weights_sentence
from experiments.report.sections.conditions import common_facts, work_text
from experiments.report.sections.decisions import decision_table
from experiments.report.sections.dissertation import beside, beside_table
from experiments.report.sections.from_texts import from_texts, from_texts_rows, from_texts_table
from experiments.report.sections.hardware import gpu_row, gpus_text, placement
from experiments.report.sections.ladders import why_rows, why_table
from experiments.report.sections.organisation import organisation_tables
from experiments.report.sections.references import band_conclusion, band_rows, band_table, judge
from experiments.report.sections.resource_use import usage_table
from experiments.report.sections.settings import settings, settings_table
from experiments.report.sections.times import accuracy_note, row, times_chart, varying_axes
from experiments.report.sections.users import together_sentences, users_tables
from experiments.report.tables import NOTHING, comparison_table, parts_table, phases_table
from experiments.util.files import write_whole

TEMPLATES: Final = Path(__file__).parent / "templates"
SHOWN: Final = {
    "times": "Training time by stack and number of workers, here and in the dissertation; each bar is the "
    "mean of n runs, each dot one of them.",
    "phases": "Where the time of every stack goes, phase by phase; each bar shows the means of n runs.",
    "why": "How much of each ladder's training time every step takes away.",
    "curves": "Training loss and validation accuracy after each epoch; each line is the mean of n runs.",
}


def write_report(campaign: Campaign) -> tuple[Path, ...]:
    """Writes report.md, report.html, figures.csv and figures.parquet into the campaign's folder; their paths.

    Raises:
        UserError: a record is damaged.
    """
    figures = figures_of(campaign)
    content = view(figures)
    plots = plots_of(figures, dissertation(), content["waterfalls"])
    content |= {"plots": _plots_inside(plots)}
    rows = rows_of(figures, content["compared"], content["parts"], content["beside"])
    rows += band_rows(content["judged"])
    rows += why_rows(content["waterfalls"])
    rows += from_texts_rows(content["from_texts"], figures.campaign.baseline)
    rows += users_rows(occasions(figures))
    written: dict[str, str | bytes] = {
        "report.md": _render("report.md.j2", content, html=False),
        "report.html": _render("report.html.j2", content, html=True),
        "figures.csv": as_csv(rows),
        "figures.parquet": as_parquet(rows),
        **{f"{PLOTS}/{name}": data for name, data in plots.items()},
    }
    (campaign.folder / PLOTS).mkdir(exist_ok=True)
    for name, text in written.items():
        write_whole(campaign.folder / name, text)
    return tuple(campaign.folder / name for name in written)


def _render(template: str, content: dict[str, Any], *, html: bool) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # A reason may hold anything: it must not end a cell of a Markdown table.
    environment.filters["cell"] = lambda value: (
        " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
    )
    return environment.get_template(template).render(**content)


def _by_reason(not_run: list[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Runs that were not made, those with the same reason together."""
    found: dict[str, list[str]] = {}
    for run_id, reason in not_run:
        found.setdefault(reason, []).append(run_id)
    return [(run_ids, reason) for reason, run_ids in found.items()]


def view(figures: Figures) -> dict[str, Any]:
    """What the templates show, as text: one place decides how a figure is written."""
    campaign, reference = figures.campaign, dissertation()
    compared, split = comparisons(figures), parts(figures, reference)
    # The cells of a ladder are made to differ from the dissertation's, one by one.
    side, judged = [] if campaign.ladders else beside(figures, reference), judge(figures)
    ladders, texts, found_settings = waterfalls(figures), from_texts(figures), settings(figures)
    tables = [
        band_table(judged),
        why_table(ladders),
        comparison_table(compared, campaign.baseline, weights_differ(figures)),
        from_texts_table(texts, campaign.baseline),
        settings_table(found_settings),
        parts_table(split),
        beside_table(side, reference, work_text(campaign)),
        usage_table(figures.cells),
        phases_table(figures.cells),
        *users_tables(figures),
        *organisation_tables(figures),
        decision_table(figures, compared, split),
    ]
    extra = varying_axes(figures.cells)
    filled = [cell for cell in figures.cells if cell.records]
    return {
        "campaign": campaign,
        "baseline": campaign.baseline,
        "started": utc_text(campaign.started),
        "ended": _last_end(figures),
        "extra_axes": extra,
        "rows": [row(cell, extra) for cell in figures.cells],
        "chart": Markup(times_chart(filled, extra, campaign.baseline)),
        "same_steps": same_steps(figures),
        "single": bool(filled) and all(len(cell.records) == 1 for cell in filled),
        "weights": weights_sentence(figures),
        "compared": compared,
        "parts": split,
        "beside": side,
        "waterfalls": ladders,
        "from_texts": texts,
        "judged": judged,
        "conclusions": [
            *together_sentences(figures),
            *conclusions(figures, compared, ladders, found_settings),
            *band_conclusion(judged),
        ],
        "tables": [table for table in tables if table.rows],
        "weights_differ": weights_differ(figures),
        "differing": [work for work in figures.compared if not work.equal],
        "accuracy_note": accuracy_note(filled, campaign),
        "not_run": _by_reason(figures.not_run),
        "attempts": figures.attempts,
        "attempt_time": utc_text,
        "notes": [
            (record.run_id, note)
            for record in [*figures.counting, *figures.attempts]
            for note in record.notes
        ],
        "placement": [placement(record) for record in figures.counting],
        "facts": common_facts(figures),
        "nodes": campaign.environment.nodes,
        "node_gpus": {name: gpus_text(node.gpus) for name, node in campaign.environment.nodes.items()},
        "gpu_rows": [
            gpu_row(record, rank) for record in figures.counting for rank in record.ranks if rank.gpu
        ],
        "pseudo_gpus": any(gpu.pseudo for node in campaign.environment.nodes.values() for gpu in node.gpus),
    }


def _plots_inside(plots: dict[str, bytes]) -> list[dict[str, str]]:
    """The plots as a page can hold them, and what they show."""
    return [
        {
            "name": name,
            "shows": SHOWN[name.removesuffix(".svg")],
            "data": base64.b64encode(data).decode("ascii"),
        }
        for name, data in plots.items()
        if name.endswith(".svg")
    ]


def _last_end(figures: Figures) -> str:
    ends = [record.ended for record in [*figures.counting, *figures.attempts] if record.ended is not None]
    return utc_text(max(ends)) if ends else NOTHING
