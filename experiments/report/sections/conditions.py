"""What all runs of a campaign have in common, in the report's words."""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.analysis.figures import Figures
from experiments.analysis.versions import Versions, versions
from experiments.campaign.campaign import CampaignFile
from experiments.cluster.environment import LOCKED, NEWEST, Image
from experiments.matrix.model import Order
from experiments.report.data_words import data_words
from experiments.report.formats import NOTHING, number
from experiments.report.sections.data_sets import TITLE as DATA_SETS
from experiments.report.sections.versions import TITLE as VERSIONS
from experiments.report.sections.versions import version_texts
from experiments.report.training_words import models_text, training_text
from experiments.util.words import counted


def common_facts(figures: Figures) -> list[tuple[str, str]]:
    """What is the same for all runs: a name and a text each."""
    campaign, environment = figures.campaign, figures.campaign.environment
    link = environment.link
    measured = sorted(
        {
            record.environment.link.measured_mbit
            for record in figures.counting
            if record.environment.link.measured_mbit is not None
        }
    )
    found = versions(figures, LOCKED)
    texts = environment.versions | version_texts(found, found.named)
    every = f"; of every library: {VERSIONS}" if found.libraries else ""
    variables = campaign.measured[0].specification.conditions.rank_environment
    between = f" between {' and '.join(link.between)}" if link.between else ""
    return [
        ("Script" if campaign.has_own_loop else "Data", _data(campaign)),
        ("Command" if campaign.has_own_loop else "Model", models_text(campaign)),
        ("Training", training_text(campaign, varying(campaign))),
        ("Order", _order(campaign)),
        ("Training code", f"digest {campaign.identity.code[:12]}, git {_revisions(figures)}"),
        ("Environment", _environment(figures)),
        ("Image", _image(environment.image)),
        (
            "Versions",
            (", ".join(f"{name} {version}" for name, version in sorted(texts.items())) or NOTHING) + every,
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


def _data(campaign: CampaignFile) -> str:
    data = data_words(campaign)
    which = (
        f"{counted(len(campaign.data_of_runs), 'data set')}: see {DATA_SETS}"
        if len(campaign.data_of_runs) > 1
        else f"digest {campaign.identity.dataset[:12]}"
    )
    if campaign.has_own_loop:
        return f"{data.name}, with its files: {which}"
    test = f"{data.test} to test, " if data.test else ""
    length = f"length {data.length}, " if data.length else ""
    return f"{data.name}: {data.train} to train, {data.validation} to validate, {test}{length}{which}"


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


def _environment(figures: Figures) -> str:
    """`digest 0123456789ab, lock cpu-py3.11; of plain its own, digest ba9876543210`."""
    environment, own = figures.campaign.environment, figures.campaign.identity.environments
    usual = f"digest {environment.environment_digest[:12]}, lock {environment.lock}"
    others = [
        newest_text(figures, digest) if name == NEWEST else f"of {name} its own, digest {digest[:12]}"
        for name, digest in own.items()
    ]
    return "; ".join([usual, *others])


def newest_text(figures: Figures, digest: str) -> str:
    """`with libraries: newest, digest 0123456789ab (numpy 2.5.0 for 2.4.6)`: those whose versions differ."""
    usual, newest = (_texts(versions(figures, each)) for each in (LOCKED, NEWEST))
    newer = [
        f"{name} {version}" + (f" for {usual[name]}" if name in usual else "")
        for name, version in newest.items()
        if usual.get(name) != version
    ]
    return f"with libraries: newest, digest {digest[:12]}" + (f" ({', '.join(newer)})" if newer else "")


def _texts(found: Versions) -> dict[str, str]:
    return version_texts(found, list(found.libraries))


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
