"""What all runs of a campaign have in common, in the report's words."""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.analysis.figures import Figures
from experiments.campaign.campaign import CampaignFile
from experiments.cluster.environment import Image
from experiments.matrix.model import Order
from experiments.report.data_words import data_words
from experiments.report.formats import NOTHING, number
from experiments.report.sections.data_sets import TITLE as DATA_SETS
from experiments.util.words import counted, listed


def common_facts(figures: Figures) -> list[tuple[str, str]]:
    """What is the same for all runs: a name and a text each."""
    campaign, environment = figures.campaign, figures.campaign.environment
    data = data_words(campaign)
    length = f"length {data.length}, " if data.length else ""
    several = len(campaign.data_of_runs) > 1
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
    variables = campaign.measured[0].specification.conditions.rank_environment
    between = f" between {' and '.join(link.between)}" if link.between else ""
    return [
        (
            "Data",
            f"{data.name}: {data.train} to train, {data.validation} to validate, {length}"
            + (
                f"{counted(len(campaign.data_of_runs), 'data set')}: see {DATA_SETS}"
                if several
                else f"digest {campaign.identity.dataset[:12]}"
            ),
        ),
        ("Model", _models(campaign)),
        ("Training", _training(campaign, varying(campaign))),
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
        *(
            [("Rank environment", ", ".join(f"{name}={value}" for name, value in variables.items()))]
            if variables and "rank_environment" not in varying(campaign)
            else []
        ),
        ("Device", f"{environment.device}, {counted(environment.slots_per_worker, 'slot')} per worker"),
    ]


def work_text(campaign: CampaignFile) -> str:
    """The work of a campaign in half a sentence."""
    work, data = campaign.measured[0].specification.work, data_words(campaign)
    return (
        f"{_models(campaign)}, on {data.name}, {data.train} samples to train and {data.validation} to "
        f"validate, {_batch(campaign, 'per worker')}, {work.precision}, on the {campaign.environment.device}"
    )


def _models(campaign: CampaignFile) -> str:
    """The model of the first run; of data that come with models of their own, that of each."""
    model = campaign.measured[0].specification.work.model
    return listed(list(dict.fromkeys(model.text(data) for data in campaign.data_of_runs.values())), "or")


def _batch(campaign: CampaignFile, each: str) -> str:
    """The batch of all runs: `32 per worker`, or what all workers of a run share."""
    works = [run.specification.work for run in campaign.measured if run.cannot_run is None]
    single, whole = ({getattr(work, name) for work in works} for name in ("batch_per_worker", "global_batch"))
    if len(single) > 1 and len(whole) == 1:
        return f"{whole.pop()} shared by all workers"
    return f"{campaign.measured[0].specification.work.batch_per_worker} {each}"


def _order(campaign: CampaignFile) -> str:
    order = Order.model_validate(
        campaign.identity.matrix.get("order", {"arrangement": "written", "warm_ups": False})
    )
    blocks = counted(len({run.block for run in campaign.plan}), "block")
    warm_ups = sum(run.warm_up for run in campaign.plan)
    arranged = (
        f"random within {blocks} (seed {order.seed})" if order.arrangement == "random" else "as written"
    )
    before = (
        "one warm-up run before each stack's first in a block, not counted" if warm_ups else "no warm-up runs"
    )
    return f"{arranged}, {before}"


def varying(campaign: CampaignFile) -> set[str]:
    """Axes with more than one value: they are shown with each run, not as facts about all."""
    axes = [run.axes for run in campaign.measured]
    return {name for name in axes[0] if len({json.dumps(each[name], sort_keys=True) for each in axes}) > 1}


def _training(campaign: CampaignFile, shown_elsewhere: set[str]) -> str:
    specification = campaign.measured[0].specification
    work, threads = specification.work, specification.conditions.threads
    parts = {
        "epochs": counted(work.epochs, "epoch"),
        "batch_per_worker": f"batch {_batch(campaign, 'per rank')}",
        "learning_rate": f"learning rate {work.learning_rate:g}",
        "warmup_steps": f"{work.warmup_steps} warm-up steps",
        "weight_decay": f"weight decay {work.weight_decay:g}",
        "precision": work.precision,
        "threads": f"{counted(threads, 'thread')} per rank",
    }
    return ", ".join(text for name, text in parts.items() if name not in shown_elsewhere)


def _image(image: Image) -> str:
    if image.reference is None or image.id is None:
        return NOTHING
    return f"{image.reference}, id {image.id.removeprefix('sha256:')[:12]}"


def _measured(values: Sequence[float]) -> str:
    """`measured 935 to 941 Mbit/s`."""
    if not values:
        return "not measured"
    ends = dict.fromkeys(number(value) for value in (min(values), max(values)))
    return f"measured {' to '.join(ends)} Mbit/s"


def _revisions(figures: Figures) -> str:
    states = [figures.campaign.environment.git, *(record.environment.git for record in figures.counting)]
    texts = [git.text for git in states]
    for git in states:
        texts += [f"{what} {source.text}" for what, source in git.outside.items()]
    return ", ".join(dict.fromkeys(texts))
