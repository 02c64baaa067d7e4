"""Which stack each criterion favours, by a campaign's figures and the facts of its stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from experiments.analysis.comparisons import StackComparison, TimeSplit
from experiments.analysis.figures import Figures
from experiments.analysis.from_texts import FromTexts
from experiments.analysis.installing import Installing
from experiments.analysis.statistics import Difference
from experiments.analysis.verdicts import Outcome, outcome, sign
from experiments.campaign.stacks import Stack
from experiments.cluster.stack_facts import Feature

FeatureName = Literal[
    "scheduling", "users", "tracking", "checkpoints", "faults", "search", "monitoring"
]  # fmt: skip
Criterion = Literal["speed", "waiting", "step", "weights", "installing", "using", "pipeline", FeatureName]
LEVELS: Final = ("none", "by hand", "built in")
MORE_TASKS: Final = 2  # times as many are more work; fewer are only how this project cut the work into tasks


@dataclass(frozen=True)
class Favoured:
    """What one criterion says."""

    outcome: Literal[
        "stacks",
        "no difference",
        "open",
        "unequal work",
        "unproven work",
        "not measured",
        "not recorded",
        "not judged",
    ]
    stacks: tuple[str, ...] = ()  # that it favours
    claimed: tuple[str, ...] = ()  # those of them favoured by a claim that no test of the stack shows
    over: str | None = None  # the only stack that they are known to be better than; None: all others
    worse: tuple[str, ...] = ()  # if it is open: those that it certainly does not favour


NOT_MEASURED: Final = Favoured("not measured")
NOT_RECORDED: Final = Favoured("not recorded")
NO_DIFFERENCE: Final = Favoured("no difference")
OPEN: Final = Favoured("open")
NOT_JUDGED: Final = Favoured("not judged")  # what people need is counted, and which of it is easier is theirs


def favoured(
    figures: Figures,
    comparisons: Sequence[StackComparison],
    splits: Sequence[TimeSplit],
    from_texts: Sequence[FromTexts],
    installing: Installing,
) -> dict[Criterion, Favoured]:
    """What every criterion says; times count only if equal work ended with equal weights."""
    stacks = list(dict.fromkeys(run.specification.stack for run in figures.campaign.measured))
    texts = [(each.cell.stack, outcome(each.ratio)) for each in from_texts if each.ratio is not None]
    steps = [(each.stack, _outcome(each.more_a_step)) for each in splits if each.more_a_step is not None]
    around = [
        (each.cell.stack, _outcome(each.more_outside))
        for each in comparisons
        if each.more_outside is not None
    ]
    times: dict[Criterion, Favoured] = {
        "speed": _fastest(figures, [(each.cell.stack, each.outcome) for each in comparisons]),
        "pipeline": _fastest(figures, texts),
        "step": _fastest(figures, steps),
    }
    if figures.weights_differ or figures.unproven:
        said = Favoured("unequal work" if figures.weights_differ else "unproven work")
        times = {name: each if each == NOT_MEASURED else said for name, each in times.items()}
    return {
        **times,
        "waiting": _fastest(figures, around),
        "weights": _weights(figures),
        "installing": _installing(stacks, installing),
        "using": NOT_JUDGED if any(each.launch is not None for each in figures.counting) else NOT_MEASURED,
        **{name: _feature(name, stacks, figures) for name in get_args(FeatureName)},
    }


def _fastest(figures: Figures, outcomes: Sequence[tuple[str, Outcome]]) -> Favoured:
    """By comparisons with the baseline, as far as their intervals, all at once, and the noise allow."""
    if not outcomes:
        return NOT_MEASURED
    baseline, seen = figures.campaign.baseline, dict[str, set[str]]()
    for stack, found in outcomes:
        seen.setdefault(stack, set()).add(found)
    faster = tuple(stack for stack, found in seen.items() if found == {"shorter"})
    slower = tuple(stack for stack, found in seen.items() if found == {"longer"})
    if faster:
        return Favoured("stacks", faster, over=baseline)
    return Favoured("stacks", (baseline,)) if len(slower) == len(seen) else Favoured("open", worse=slower)


def _outcome(more: Difference) -> Outcome:
    """What a difference to the baseline shows."""
    shown = sign(more)
    if shown is None:
        return "none"
    return "open" if shown == 0 else "longer" if shown > 0 else "shorter"


def _weights(figures: Figures) -> Favoured:
    """Whether the same training code ended with the same weights."""
    if not figures.works:
        return NOT_MEASURED
    return Favoured("unequal work") if figures.weights_differ else NO_DIFFERENCE


def _installing(stacks: Sequence[str], installing: Installing) -> Favoured:
    """By the number of provisioning tasks, including those of the roles that a stack stands on.

    It favours stacks over those that took at least MORE_TASKS times as many as the one with the fewest. If
    provisioning only checked one of them, what installing it takes is not recorded.
    """
    efforts = {name: installing.stacks[name] for name in stacks if name in installing.stacks}
    tasks = {
        name: effort.whole.tasks
        for name, effort in efforts.items()
        if effort.whole is not None and not effort.only_checked
    }
    if len(tasks) < len(stacks) or len(stacks) < 2:
        return NOT_RECORDED
    least = tuple(name for name, number in tasks.items() if number < MORE_TASKS * min(tasks.values()))
    return NO_DIFFERENCE if len(least) == len(stacks) else Favoured("stacks", least)


def _feature(name: FeatureName, stacks: Sequence[str], figures: Figures) -> Favoured:
    """The stacks that offer most of a feature, and which of them only claim to."""
    features: dict[str, Feature] = {
        stack: getattr(each.facts.offers, name)
        for stack, each in _facts(stacks, figures).items()
        if each.facts is not None
    }
    if len(features) < len(stacks) or len(stacks) < 2:
        return NOT_RECORDED
    highest = max(LEVELS.index(each.level) for each in features.values())
    best = tuple(stack for stack, each in features.items() if LEVELS.index(each.level) == highest)
    if len(best) == len(features):
        return NO_DIFFERENCE
    claimed = tuple(stack for stack in best if not features[stack].shown or features[stack].against)
    return Favoured("stacks", best, claimed)


def _facts(stacks: Sequence[str], figures: Figures) -> dict[str, Stack]:
    known = figures.setup.stacks.stacks if figures.setup.stacks else {}
    return {name: known[name] for name in stacks if name in known}
