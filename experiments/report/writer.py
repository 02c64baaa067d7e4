"""The report of a campaign: the same records give the same bytes, in Markdown and as one HTML page."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import jinja2

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.figures import Figures
from experiments.analysis.own_clock import trains_nothing
from experiments.campaign.campaign import PLOTS, Campaign
from experiments.records.record import utc_text
from experiments.report.export import as_csv, as_parquet
from experiments.report.export_rows import export_rows
from experiments.report.formats import NOTHING
from experiments.report.latex import as_latex
from experiments.report.names import work_name
from experiments.report.plots import narrow_plots_of, plots_of
from experiments.report.reframe import as_reframe
from experiments.report.sections.added import added_table
from experiments.report.sections.attempts import attempts_table, not_run_table
from experiments.report.sections.conclusions import conclusions
from experiments.report.sections.conditions import common_facts
from experiments.report.sections.data_sets import data_sets_table
from experiments.report.sections.decisions import decisions_table
from experiments.report.sections.dissertation import dissertation_table
from experiments.report.sections.factors import factors_once_table, factors_table
from experiments.report.sections.fingerprint import fingerprint_table
from experiments.report.sections.fixed_costs import fixed_costs_table
from experiments.report.sections.from_texts import from_texts_table
from experiments.report.sections.growth import growth_table
from experiments.report.sections.hardware import gpus_table, nodes_table, placement_table
from experiments.report.sections.ladders import ladders_table
from experiments.report.sections.launch import launch_table
from experiments.report.sections.methods import TITLE as METHODS
from experiments.report.sections.methods import methods
from experiments.report.sections.minute import TITLE as MINUTE
from experiments.report.sections.minute import in_one_minute
from experiments.report.sections.organisation import organisation_tables
from experiments.report.sections.own_clock import own_clock_table
from experiments.report.sections.phases import phases_table
from experiments.report.sections.programs import programs_table
from experiments.report.sections.quality import quality_table
from experiments.report.sections.questions import questions_table
from experiments.report.sections.records import records_table
from experiments.report.sections.references import references_table
from experiments.report.sections.resource_use import resource_use_table
from experiments.report.sections.settings import settings_table
from experiments.report.sections.stack_comparisons import comparisons_table, doubt_of
from experiments.report.sections.step_times import step_times_table
from experiments.report.sections.time_splits import time_splits_table
from experiments.report.sections.times import times_table
from experiments.report.sections.to_quality import to_quality_tables
from experiments.report.sections.users import users_tables
from experiments.report.sections.versions import versions_table
from experiments.report.tables import Table
from experiments.report.training_words import work_text
from experiments.util.files import write_whole

TEMPLATES: Final = Path(__file__).parent / "templates"
SHOWN: Final = {
    "times": "Training time by stack and number of workers; each bar is the mean of n runs, each dot one of "
    "them.",
    "phases": "Where the time of every stack goes, phase by phase; each bar shows the means of n runs, each "
    "dot the total of one of them.",
    "why": "How much training time each step of a ladder removes.",
    "curves": "Training loss and validation metric after each epoch; each line is the mean of n runs.",
    "answer": "What each suspect adds to a step of real training, and each part of a run once, beside the "
    "dissertation; in square brackets, how many samples a rank trains on and evaluates for a step.",
    "answer-simulated": "Simulated, nothing was trained: what each suspect adds to a step that only waits, "
    "beside nothing of the dissertation's.",
    "answer-script": "Of scripts with a loop of their own: what each suspect adds to a step, beside nothing "
    "of the dissertation's.",
    "growth": "How long a step takes as one thing grows and all else stays; each dot is the median of a "
    "run's steps, dashed lines are the model fitted to all cells, and crosses what it says of more workers.",
    "drift": "Each run's training time over the mean of its cell, by when it began; lines stand where the "
    "next run began after nodes had booted, or after the campaign was resumed.",
}


def write_report(campaign: Campaign) -> tuple[Path, ...]:
    """Analyses a campaign and writes its report into its folder; see `write_analysis`.

    Raises:
        UserError: a record is damaged.
    """
    return write_analysis(analyse(campaign), campaign.folder)


def write_analysis(analysis: Analysis, folder: Path) -> tuple[Path, ...]:
    """Writes report.md and report.html, tables as LaTeX, figures as CSV and Parquet, the runs as in ReFrame's
    run report, and plots; their paths."""
    plots, rows = plots_of(analysis), export_rows(analysis)
    content = _content(analysis) | {"plots": plots_inside(plots, narrow_plots_of(analysis))}
    written: dict[str, str | bytes] = {
        "report.md": render_page("report.md.j2", content, html=False),
        "report.html": render_page("report.html.j2", content, html=True),
        "tables.tex": as_latex(
            f"{content['campaign'].matrix}, campaign {content['campaign'].name}",
            content["methods"],
            [content["times"], *content["claims"], *content["details"]],
        ),
        "figures.csv": as_csv(rows),
        "figures.parquet": as_parquet(rows),
        "reframe.json": as_reframe(analysis),
        **{f"{PLOTS}/{name}": data for name, data in plots.items()},
    }
    (folder / PLOTS).mkdir(exist_ok=True)
    for name, text in written.items():
        write_whole(folder / name, text)
    return tuple(folder / name for name in written)


def report_tables(analysis: Analysis) -> list[Table]:
    """Its tables, but for that of times and the last ones; those without a row are left out."""
    return [*_claims(analysis), *_details(analysis)]


def _claims(analysis: Analysis) -> list[Table]:
    """The tables with verdicts."""
    figures, baseline = analysis.figures, analysis.figures.campaign.baseline
    tables = [
        references_table(analysis.references),
        ladders_table(analysis.waterfalls),
        factors_table(analysis.recipes, doubt_of(figures)),
        fingerprint_table(analysis.fingerprints, baseline, doubt_of(figures)),
        comparisons_table(analysis.comparisons, baseline, analysis.noise, doubt_of(figures)),
        own_clock_table(analysis.own_clock, baseline, doubt_of(figures)),
        from_texts_table(analysis.from_texts, baseline),
        settings_table(analysis.settings),
    ]
    return [table for table in tables if table.rows]


def _details(analysis: Analysis) -> list[Table]:
    """What lies behind them, which the page folds."""
    figures, baseline = analysis.figures, analysis.figures.campaign.baseline
    tables = [
        questions_table(analysis),
        time_splits_table(analysis.time_splits, baseline),
        dissertation_table(analysis.published, analysis.dissertation, work_text(figures.campaign)),
        resource_use_table(analysis.resource_use),
        phases_table(figures.cells),
        fixed_costs_table(analysis.fixed_costs),
        factors_once_table(analysis.recipes, doubt_of(figures)),
        step_times_table(analysis.steps),
        growth_table(analysis.growth),
        added_table(analysis.added, baseline, doubt_of(figures)),
        launch_table(analysis.launches, analysis.placements),
        quality_table(figures),
        *to_quality_tables(analysis.to_quality, baseline, doubt_of(figures)),
        data_sets_table(figures),
        *users_tables(analysis.occasions),
        programs_table(analysis),
        *organisation_tables(analysis),
        *([] if trains_nothing(figures) else [decisions_table(analysis)]),
        records_table(figures),
    ]
    return [table for table in tables if table.rows or table.parts]


def _content(analysis: Analysis) -> dict[str, Any]:
    """What the templates draw."""
    figures, campaign = analysis.figures, analysis.figures.campaign
    times, claims, details = times_table(figures), _claims(analysis), _details(analysis)
    environment, minute = campaign.environment, in_one_minute(analysis)
    return {
        "campaign": campaign,
        "started": utc_text(campaign.started),
        "ended": _last_end(figures),
        "weights_differ": figures.weights_differ,
        "differing": [(work_name(work), work.digests) for work in figures.works if not work.equal],
        "minute_title": MINUTE,
        "minute": minute,
        "conclusions": [
            said for said in conclusions(analysis) if not any(said in each.text for each in minute)
        ],
        "times": times,
        "claims": claims,
        "details": details,
        "methods": methods(figures),
        "methods_title": METHODS,
        "sections": {table.title for table in (times, *claims, *details)},
        "not_run": not_run_table(figures.not_run),
        "attempts": attempts_table(figures.attempts),
        "notes": [
            (record.run_id, note) for record in [*figures.results, *figures.attempts] for note in record.notes
        ],
        "facts": common_facts(figures),
        "nodes": nodes_table(environment),
        "pseudo_gpus": any(gpu.pseudo for node in environment.nodes.values() for gpu in node.gpus),
        "ranks": [
            table
            for table in (
                versions_table(analysis.versions),
                gpus_table(figures.counting),
                placement_table(figures.counting),
            )
            if table.rows
        ],
    }


def render_page(template: str, content: dict[str, Any], *, html: bool) -> str:
    """A page from one of the templates."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # A reason may contain anything: it must not end a cell of a Markdown table.
    environment.filters["cell"] = lambda value: (
        " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
    )
    environment.filters["anchor"] = lambda title: "-".join(
        "".join(each for each in title.lower() if each.isalnum() or each in " -").split()
    )
    return environment.get_template(template).render(**content)


def plots_inside(plots: dict[str, bytes], narrow: dict[str, bytes]) -> list[dict[str, str]]:
    """The plots, encoded for a page, with their captions; `narrow` has the same ones for a phone."""
    return [
        {
            "name": name,
            "shows": SHOWN[name.removesuffix(".svg")],
            "data": base64.b64encode(data).decode("ascii"),
            "narrow": base64.b64encode(narrow[name]).decode("ascii"),
        }
        for name, data in plots.items()
        if name.endswith(".svg")
    ]


def _last_end(figures: Figures) -> str:
    ends = [record.ended for record in [*figures.results, *figures.attempts] if record.ended is not None]
    return utc_text(max(ends)) if ends else NOTHING
