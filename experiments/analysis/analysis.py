"""Everything that reports, plots, exports and checks say about a campaign, computed once."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.analysis.added import Added, added
from experiments.analysis.between import Asked, asked
from experiments.analysis.census import LaunchDifferences, between_stacks
from experiments.analysis.comparisons import StackComparison, TimeSplit, comparisons, time_splits
from experiments.analysis.decisions import Criterion, Favoured, favoured
from experiments.analysis.dissertation import Dissertation, dissertation
from experiments.analysis.dissertation_figures import PublishedFigure, published_figures
from experiments.analysis.drift import Drift, drift
from experiments.analysis.factors import Recipes, recipes
from experiments.analysis.figures import Figures, figures_of
from experiments.analysis.fingerprint import Fingerprint, fingerprints
from experiments.analysis.fixed_costs import FixedCosts, fixed_costs
from experiments.analysis.from_texts import FromTexts, from_texts
from experiments.analysis.growth import Growth, growth
from experiments.analysis.installing import Installing, installing
from experiments.analysis.ladders import Waterfall, waterfalls
from experiments.analysis.noise import Noise, noise
from experiments.analysis.own_clock import OwnClock, own_clock, trains_nothing
from experiments.analysis.placements import Placement, placements
from experiments.analysis.questions import Questions, questions
from experiments.analysis.references import ReferenceCheck, check_references
from experiments.analysis.resource_use import CellUse, resource_use
from experiments.analysis.settings import SettingComparison, setting_comparisons
from experiments.analysis.step_times import RankSteps, rank_steps
from experiments.analysis.to_quality import ToQuality, to_quality
from experiments.analysis.users import Occasion, occasions
from experiments.analysis.versions import Versions, versions
from experiments.campaign.campaign import Campaign


@dataclass(frozen=True)
class Analysis:
    """What a campaign's records say, as numbers."""

    figures: Figures
    dissertation: Dissertation
    noise: Noise
    drift: Drift
    comparisons: list[StackComparison]
    own_clock: list[OwnClock]  # of a script that is judged by milliseconds
    added: list[Added]
    fixed_costs: list[FixedCosts]
    settings: list[SettingComparison]
    time_splits: list[TimeSplit]
    waterfalls: list[Waterfall]
    from_texts: list[FromTexts]
    published: list[PublishedFigure]  # the dissertation's, beside those here
    references: ReferenceCheck
    resource_use: list[CellUse]
    steps: list[RankSteps]
    to_quality: ToQuality | None  # None: the matrix has no target
    recipes: list[Recipes]
    fingerprints: list[Fingerprint]
    growth: list[Growth]
    launches: LaunchDifferences  # between the stacks
    placements: list[Placement]
    versions: Versions
    occasions: list[Occasion]
    unmatched_occasions: int  # those whose cell has no run made alone
    installing: Installing
    asked: Asked  # of a program with its own loop
    favoured: dict[Criterion, Favoured]
    questions: Questions | None  # the dissertation's; None if the campaign can't be set beside it


def analyse(campaign: Campaign) -> Analysis:
    """The analysis of `campaign` as its records stand now.

    Raises:
        UserError: a record, or the file of the references, is damaged.
    """
    figures, published = figures_of(campaign), dissertation()
    again = noise(figures)
    compared, splits, texts = (
        comparisons(figures, published, again.floor, again.outside_s),
        time_splits(figures, published, again.floor),
        from_texts(figures),
    )
    found_occasions, unmatched = occasions(figures)
    efforts = installing(figures)
    beside = [] if figures.unproven or trains_nothing(figures) else published_figures(figures, published)
    return Analysis(
        figures=figures,
        dissertation=published,
        noise=again,
        drift=drift(campaign, figures),
        comparisons=compared,
        own_clock=own_clock(figures),
        added=added(figures, again),
        fixed_costs=fixed_costs(figures),
        settings=setting_comparisons(figures, again.floor, again.outside_s),
        time_splits=splits,
        waterfalls=waterfalls(figures, again.floor),
        from_texts=texts,
        published=beside,
        references=check_references(figures),
        resource_use=resource_use(figures.cells),
        steps=rank_steps(figures.cells),
        to_quality=to_quality(figures, again.floor),
        recipes=recipes(figures, again.floor),
        fingerprints=fingerprints(figures, again.floor),
        growth=growth(figures),
        launches=between_stacks(figures),
        placements=placements(figures),
        versions=versions(figures),
        occasions=found_occasions,
        unmatched_occasions=unmatched,
        installing=efforts,
        asked=asked(campaign, figures),
        favoured=favoured(figures, compared, splits, texts, efforts),
        questions=questions(figures, published, beside, compared, again, found_occasions),
    )
