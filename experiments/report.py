"""The report of a campaign: the same records give the same bytes, in Markdown and as one HTML page."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from experiments.bands import band_conclusion, band_rows, band_table, judge
from experiments.campaign import PLOTS, Campaign, CampaignFile
from experiments.chart import Bar, bar_chart
from experiments.comparisons import beside, comparisons, parts
from experiments.conclusions import conclusions, same_steps
from experiments.decisions import decision_table
from experiments.exported import as_csv, as_parquet, rows_of
from experiments.figures import Accuracy, Cell, Figures, figures_of
from experiments.files import write_whole
from experiments.matrix import Order
from experiments.organisation import organisation_tables
from experiments.plots import plots_of
from experiments.records import Gpu, ImageState, Rank, Record, utc_text
from experiments.reference import dissertation
from experiments.settings import settings, settings_table
from experiments.statistics import Estimate
from experiments.summary import model_text
from experiments.tables import beside_table, comparison_table, parts_table, phases_table
from experiments.usage import usage_table
from experiments.users import occasions, users_rows
from experiments.users_tables import together_sentences, users_tables
from experiments.waterfall import why_rows, why_table
from experiments.why import waterfalls
from training.spec import PretrainedModel

TEMPLATES: Final = Path(__file__).parent / "templates"
NOTHING: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"
SHOWN: Final = {
    "times": "Training time by stack and number of workers, here and in the dissertation; each bar is the "
    "mean of n runs.",
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


def view(figures: Figures) -> dict[str, Any]:
    """What the templates show, as text: one place decides how a figure is written."""
    campaign, reference = figures.campaign, dissertation()
    compared, split = comparisons(figures), parts(figures, reference)
    # The cells of a ladder are made to differ from the dissertation's, one by one.
    side, judged = [] if campaign.ladders else beside(figures, reference), judge(figures)
    ladders = waterfalls(figures)
    tables = [
        band_table(judged),
        why_table(ladders),
        comparison_table(compared, campaign.baseline),
        settings_table(settings(figures)),
        parts_table(split),
        beside_table(side, reference, _work_text(campaign)),
        usage_table(figures.cells),
        phases_table(figures.cells),
        *users_tables(figures),
        *organisation_tables(figures),
        decision_table(figures, compared, split),
    ]
    extra = _varying_axes(figures.cells)
    filled = [cell for cell in figures.cells if cell.records]
    return {
        "campaign": campaign,
        "baseline": campaign.baseline,
        "started": utc_text(campaign.started),
        "ended": _last_end(figures),
        "extra_axes": extra,
        "rows": [_row(cell, extra) for cell in figures.cells],
        "chart": Markup(_chart(filled, extra, campaign.baseline)),
        "same_steps": same_steps(figures),
        "single": bool(filled) and all(len(cell.records) == 1 for cell in filled),
        "weights": weights_sentence(figures),
        "compared": compared,
        "parts": split,
        "beside": side,
        "waterfalls": ladders,
        "judged": judged,
        "conclusions": [
            *together_sentences(figures),
            *conclusions(figures, compared),
            *band_conclusion(judged),
        ],
        "tables": [table for table in tables if table.rows],
        "weights_differ": any(not work.equal for work in figures.compared),
        "differing": [work for work in figures.compared if not work.equal],
        "accuracy_note": _accuracy_note(filled, campaign),
        "not_run": figures.not_run,
        "attempts": figures.attempts,
        "attempt_time": utc_text,
        "notes": [
            (record.run_id, note)
            for record in [*figures.counting, *figures.attempts]
            for note in record.notes
        ],
        "placement": [_placement(record) for record in figures.counting],
        "facts": _facts(figures),
        "nodes": campaign.environment.nodes,
        "node_gpus": {name: _gpus(node.gpus) for name, node in campaign.environment.nodes.items()},
        "gpu_rows": [
            _gpu_row(record, rank) for record in figures.counting for rank in record.ranks if rank.gpu
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


def _work_text(campaign: CampaignFile) -> str:
    work = campaign.measured[0].specification.work
    return (
        f"{model_text(work)}, on {work.data.source}, {work.data.train:,} reviews to train and "
        f"{work.data.validation:,} to validate, {_batch(campaign, 'per worker')}, {work.precision}, "
        f"on the {campaign.environment.device}"
    )


def _batch(campaign: CampaignFile, each: str) -> str:
    """The batch of all runs: `32 per worker`, or what all workers of a run share."""
    works = [run.specification.work for run in campaign.measured if run.cannot_run is None]
    single, whole = ({getattr(work, name) for work in works} for name in ("batch_per_worker", "global_batch"))
    if len(single) > 1 and len(whole) == 1:
        return f"{whole.pop()} shared by all workers"
    return f"{campaign.measured[0].specification.work.batch_per_worker} {each}"


def weights_sentence(figures: Figures) -> str:
    """Whether equal work gave equal weights on all stacks."""
    compared = len(figures.compared)
    differing = sum(not work.equal for work in figures.compared)
    if not compared:
        return "No work has been finished on more than one stack, so there are no weights to compare."
    if differing:
        return (
            f"Equal work did NOT give equal weights: {differing} of {compared} works ended differently. "
            "The stacks did not do the same work, and their times can't be compared."
        )
    text = (
        "Equal work gave equal weights, to the last bit, on all stacks that did it "
        f"({_count(compared, 'work')} compared)."
    )
    if figures.alone:
        were = "was" if figures.alone == 1 else "were"
        text += f" {_count(figures.alone, 'other work')} {were} finished on one stack only."
    return text


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _varying_axes(cells: Sequence[Cell]) -> list[str]:
    """Axes that tell cells apart, besides stack and workers, which are always shown."""
    names = [name for name in (cells[0].axes if cells else {}) if name not in ("stack", "workers")]
    return [
        name for name in names if len({json.dumps(cell.axes[name], sort_keys=True) for cell in cells}) > 1
    ]


def _row(cell: Cell, extra: Sequence[str]) -> dict[str, Any]:
    digests = {record.weights_digest for record in cell.records}
    return {
        "stack": cell.stack,
        "workers": cell.workers,
        "extra": [_value(cell.axes[name]) for name in extra],
        "runs": f"{len(cell.records)} of {cell.planned}{_throttled(cell.records)}",
        "filled": bool(cell.records),
        "train": _spread(cell.train_s),
        "interval": _interval(cell.train_s),
        "total": _spread(cell.total_s),
        "accuracy": _accuracy(cell.accuracy),
        "overhead_train": _of(cell.overhead_pairs, cell, _percent(cell.overhead_train)),
        "overhead_total": _of(cell.overhead_pairs, cell, _percent(cell.overhead_total)),
        "speed_up": _of(
            cell.speed_up_pairs, cell, NOTHING if cell.speed_up is None else f"{cell.speed_up:.2f}"
        ),
        "efficiency": NOTHING if cell.efficiency is None else f"{cell.efficiency:.0%}".replace("%", " %"),
        "weights": _weights(sorted(digest for digest in digests if digest)),
    }


def _of(pairs: int, cell: Cell, text: str) -> str:
    """A figure, with how many runs it comes from where they are fewer than those of its row."""
    return text if text == NOTHING or pairs == len(cell.records) else f"{text} (n={pairs})"


def _throttled(records: Sequence[Record]) -> str:
    """A mark on a row whose GPUs slowed themselves down: its times are not those of a GPU at full speed."""
    number = sum(any(rank.gpu and rank.gpu.throttled for rank in record.ranks) for record in records)
    return f", {number} throttled" if number else ""


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _weights(digests: Sequence[str]) -> str:
    if not digests:
        return NOTHING
    return digests[0][:8] if len(digests) == 1 else f"{len(digests)} seeds"


def _spread(value: Estimate | None) -> str:
    if value is None:
        return NOTHING
    return f"{value.mean:.1f}" if value.sd is None else f"{value.mean:.1f} ± {value.sd:.1f}"


def _interval(value: Estimate | None) -> str:
    if value is None or value.low is None or value.high is None:
        return NOTHING
    return f"{value.low:.1f} to {value.high:.1f}"


def _accuracy(value: Accuracy | None) -> str:
    if value is None:
        return NOTHING
    text = f"{value.accuracy:.3f} ± {value.half_width:.3f}"
    return (
        f"{text} ({value.correct} of {value.count})"
        if value.correct is not None
        else f"{text} (mean of {value.n})"
    )


def _accuracy_note(cells: Sequence[Cell], campaign: CampaignFile) -> str:
    known = [cell.accuracy for cell in cells if cell.accuracy is not None]
    if not known:
        return ""
    count, width = known[0].count, max(accuracy.half_width for accuracy in known)
    text = f"one over {count:,} reviews is good to ±{width:.2f} (95 %), and no better."
    work = campaign.measured[0].specification.work
    if work.data.source == "imdb" and isinstance(work.model, PretrainedModel):
        return text
    why = [campaign.dataset.get("source", {}).get("note", f"The data are {work.data.source}.")]
    if not isinstance(work.model, PretrainedModel):
        why.append("The model starts from scratch.")
    return f"{text} It is not comparable with the dissertation's: {' '.join(why)}"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value * 100:+.1f} %".replace("-", MINUS)


def _label(cell: Cell, extra: Sequence[str]) -> str:
    parts = [cell.stack, _count(cell.workers, "worker")]
    return ", ".join([*parts, *(f"{name} {_value(cell.axes[name])}" for name in extra)])


def _chart(cells: Sequence[Cell], extra: Sequence[str], baseline: str) -> str:
    bars = [
        Bar(
            f"{_label(cell, extra)}, n={cell.train_s.n}",
            cell.train_s.mean,
            cell.total_s.mean,
            cell.stack == baseline,
        )
        for cell in cells
        if cell.train_s is not None and cell.total_s is not None
    ]
    return bar_chart(bars, "Training time within total time, in seconds")


def _last_end(figures: Figures) -> str:
    ends = [record.ended for record in [*figures.counting, *figures.attempts] if record.ended is not None]
    return utc_text(max(ends)) if ends else NOTHING


def _placement(record: Record) -> dict[str, str]:
    return {
        "run_id": record.run_id,
        "ranks": "; ".join(
            f"{rank.rank} on {rank.node or rank.host}, {'core' if len(rank.affinity) == 1 else 'cores'} "
            f"{_cores(rank.affinity)}, {_count(rank.threads, 'thread')}, uid {rank.uid}"
            + (f", GPU {rank.visible_gpus}" if rank.visible_gpus else "")
            for rank in record.ranks
        ),
    }


def _gpus(gpus: Sequence[Gpu]) -> str:
    """The GPUs of a node, equal ones together."""
    names = [
        gpu.name if gpu.pseudo else f"{gpu.name}, {gpu.memory_mb} MB, {gpu.capability}, driver {gpu.driver}"
        for gpu in gpus
    ]
    return "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or NOTHING


def _gpu_row(record: Record, rank: Rank) -> dict[str, str]:
    gpu = rank.gpu
    assert gpu is not None

    def number(value: float | None, form: str = ".0f") -> str:
        return NOTHING if value is None else format(value, form)

    return {
        "run_id": record.run_id,
        "rank": str(rank.rank),
        "name": gpu.name,
        "use": number(gpu.utilisation_percent_mean),
        "memory": number(gpu.memory_mb_max),
        "temperature": number(gpu.temperature_c_max),
        "clock": f"{number(gpu.sm_clock_mhz_mean)} ({number(gpu.sm_clock_mhz_min)})",
        "power": number(gpu.power_w_mean, ".1f"),
        "energy": number(gpu.energy_j),
        "throttled": ", ".join(f"{reason} {share * 100:.0f} %" for reason, share in gpu.throttled.items())
        or ("no" if gpu.samples else NOTHING),
    }


def _cores(cores: Sequence[int]) -> str:
    """Core numbers with ranges of neighbours drawn together."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}{NOTHING}{part[-1]}" for part in parts)


def _facts(figures: Figures) -> list[tuple[str, str]]:
    campaign, environment = figures.campaign, figures.campaign.environment
    work = campaign.measured[0].specification.work
    data = work.data
    link = environment.link
    measured = sorted(
        {
            record.environment.link.measured_mbit
            for record in figures.counting
            if record.environment.link.measured_mbit is not None
        }
    )
    versions = dict(environment.versions)
    if figures.counting:
        versions |= figures.counting[0].ranks[0].versions
    between = f" between {' and '.join(link.between)}" if link.between else ""
    return [
        (
            "Data",
            f"{data.source}: {data.train:,} to train, {data.validation:,} to validate, "
            f"length {data.max_length}, digest {campaign.identity.dataset[:12]}",
        ),
        ("Model", model_text(work)),
        ("Training", _training(campaign, _varying(campaign))),
        ("Order", _order(campaign)),
        ("Training code", f"digest {campaign.identity.code[:12]}, git {_revisions(figures)}"),
        ("Environment", f"digest {environment.environment_digest[:12]}, lock {environment.lock}"),
        ("Image", _image(environment.image)),
        (
            "Versions",
            ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or NOTHING,
        ),
        (
            "Link",
            f"{link.configured or 'not limited'}, {_measured(measured)}{between}",
        ),
        ("Pinning", environment.pinning),
        ("Device", f"{environment.device}, {_count(environment.slots_per_worker, 'slot')} by worker"),
    ]


def _order(campaign: CampaignFile) -> str:
    order = Order.model_validate(
        campaign.identity.matrix.get("order", {"arrangement": "written", "warm_ups": False})
    )
    blocks = _count(len({run.block for run in campaign.plan}), "block")
    warm_ups = sum(run.warm_up for run in campaign.plan)
    arranged = (
        f"random within {blocks} (seed {order.seed})" if order.arrangement == "random" else "as written"
    )
    before = (
        "one warm-up run before each stack's first in a block, not counted" if warm_ups else "no warm-up runs"
    )
    return f"{arranged}, {before}"


def _varying(campaign: CampaignFile) -> set[str]:
    """Axes with more than one value: they are shown with each run, and are no facts about all."""
    axes = [run.axes for run in campaign.measured]
    return {name for name in axes[0] if len({json.dumps(each[name], sort_keys=True) for each in axes}) > 1}


def _training(campaign: CampaignFile, varying: set[str]) -> str:
    specification = campaign.measured[0].specification
    work, threads = specification.work, specification.conditions.threads
    parts = {
        "epochs": f"{work.epochs} epochs",
        "batch_per_worker": f"batch {_batch(campaign, 'by rank')}",
        "learning_rate": f"learning rate {work.learning_rate:g}",
        "warmup_steps": f"{work.warmup_steps} warm-up steps",
        "weight_decay": f"weight decay {work.weight_decay:g}",
        "precision": work.precision,
        "threads": f"{_count(threads, 'thread')} by rank",
    }
    return ", ".join(text for name, text in parts.items() if name not in varying)


def _image(image: ImageState) -> str:
    if image.reference is None or image.id is None:
        return NOTHING
    return f"{image.reference}, id {image.id.removeprefix('sha256:')[:12]}"


def _measured(values: Sequence[float]) -> str:
    """`measured 935 to 941 Mbit/s`."""
    if not values:
        return "not measured"
    ends = dict.fromkeys(f"{value:.0f}" for value in (min(values), max(values)))
    return f"measured {' to '.join(ends)} Mbit/s"


def _revisions(figures: Figures) -> str:
    states = [figures.campaign.environment.git, *(record.environment.git for record in figures.counting)]
    texts = [
        "unknown"
        if git.revision is None
        else git.revision[:12] + (" with uncommitted changes" if git.dirty else "")
        for git in states
    ]
    return ", ".join(dict.fromkeys(texts))
