"""A paragraph for a paper's methods, from the records alone: what was run, on what, and what was equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from experiments.analysis.figures import Figures
from experiments.analysis.versions import versions
from experiments.campaign.campaign import CampaignFile
from experiments.cluster.environment import LOCKED, NEWEST
from experiments.cluster.room import differences
from experiments.report.data_words import data_words
from experiments.report.names import value_text
from experiments.report.sections.conclusions import sequential_sentence, weights_sentence
from experiments.report.sections.conditions import common_facts, newest_text, varying
from experiments.report.sections.times import adopted_remark, disturbed_remark, standin_remark
from experiments.report.sections.versions import version_texts
from experiments.report.training_words import trained_text
from experiments.util.words import counted, listed

TITLE: Final = "Methods, to quote"
SHOWN: Final = ("python", "torch", "transformers")  # of the ranks' versions, besides those of the cluster


def methods(figures: Figures) -> str:
    """The paragraph; empty without a run that counts."""
    return " ".join(_sentences(figures)) if figures.counting else ""


def _sentences(figures: Figures) -> Iterator[str]:
    campaign, environment = figures.campaign, figures.campaign.environment
    facts = dict(common_facts(figures))
    stacks = list(dict.fromkeys(record.specification.stack for record in figures.counting))
    yield from _trained(campaign, facts)
    seeds = sorted({record.specification.work.seed for record in figures.counting})
    named = listed([str(seed) for seed in seeds])
    which = f"the seed {named}" if len(seeds) == 1 else f"the seeds {named}"
    yield (
        f"The stacks were {listed(stacks)}; {counted(len(figures.counting), 'run')} with {which} count, in "
        f"this order: {facts['Order']}."
    )
    yield from sequential_sentence(figures)
    if axes := sorted(varying(campaign) - {"stack", "seed"}):
        values = {
            axis: list(dict.fromkeys(value_text(run.axes[axis]) for run in campaign.measured))
            for axis in axes
        }
        yield f"What varied: {'; '.join(f'{axis} {listed(found)}' for axis, found in values.items())}."
    workers = {name: environment.nodes[name] for name in environment.workers}
    first = next(iter(workers.values()))
    unequal = f"; they differ in {listed(found)}" if (found := differences(workers)) else ""
    yield (
        f"The {counted(len(workers), 'worker')} ran {first.distribution}, kernel {first.kernel}, on "
        f"{first.cpu} with {counted(first.cores, 'core')}{unequal}; link: {facts['Link']}; device: "
        f"{facts['Device']}; pinning: {environment.pinning}."
    )
    if gpus := sorted({rank.gpu.name for record in figures.counting for rank in record.ranks if rank.gpu}):
        yield f"GPUs: {listed(gpus)}."
    texts = environment.versions | version_texts(versions(figures, LOCKED), SHOWN)
    known = [f"{name} {texts[name]}" for name in dict.fromkeys([*SHOWN, *texts]) if name in texts]
    own = "".join(
        f"; those {newest_text(figures, digest)}, ran in another one"
        if name == NEWEST
        else f"; those of {name} ran in an environment of its own, digest {digest[:12]}"
        for name, digest in campaign.identity.environments.items()
    )
    yield (
        f"All runs had the same training code and environment ({facts['Training code']}; lock "
        f"{environment.lock}; {', '.join(known)}){own}."
    )
    yield weights_sentence(figures)
    yield from adopted_remark(figures)
    yield from disturbed_remark(figures)
    yield from standin_remark(figures)
    if bare := [record for record in figures.bare if record.timed]:
        yield f"Another {counted(len(bare), 'run')} of an empty program measured the stacks' bare starts."
    if noted := [record for record in figures.counting if record.notes]:
        yield f"The report has notes on {counted(len(noted), 'run')} of them."
    yield f"Software: trainbed, campaign {campaign.matrix}/{campaign.name}."


def _trained(campaign: CampaignFile, facts: Mapping[str, str]) -> Iterator[str]:
    if campaign.has_own_loop:
        yield f"We ran {trained_text(campaign)} ({facts['Script']}; {facts['Training']})."
        yield "Its optimiser, its precision and how it validates are its own, and not known here."
        return
    verb = "We ran" if campaign.simulated else "We trained"
    yield f"{verb} {trained_text(campaign)} ({facts['Training']})."
    test = data_words(campaign).test
    yield (
        f"A test split of {test} samples was held out, and looked at once, after the last epoch."
        if test
        else "No test split was held out."
    )
