"""Which stack each criterion favours, by a campaign's figures and the facts of its stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from experiments.analysis.comparisons import StackComparison, TimeSplit
from experiments.analysis.figures import Figures
from experiments.analysis.from_texts import FromTexts
from experiments.analysis.installing import Installing
from experiments.analysis.statistics import Ratio
from experiments.analysis.verdicts import outcome
from experiments.campaign.stacks import Stack
from experiments.cluster.stack_facts import Feature

FeatureName = Literal[
    "scheduling", "users", "tracking", "checkpoints", "faults", "search", "monitoring"
]  # fmt: skip
Criterion = Literal["speed", "waiting", "step", "weights", "installing", "using", "pipeline", FeatureName]
LEVELS: Final = ("none", "by hand", "built in")
MORE_TASKS: Final = 2  # times as many are more work; fewer are only how this project cut the work into tasks
Ends = tuple[float, float]  # of an interval


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
    stacks = list(dict.fromkeys(run.specification.stack for run in figures.campaign.plan))
    texts = [(each.cell.stack, each.ratio) for each in from_texts if each.ratio is not None]
    times: dict[Criterion, Favoured] = {
        "speed": _fastest(figures, [(each.cell.stack, each.ratio) for each in comparisons]),
        "pipeline": _fastest(figures, texts),
        "step": _step(stacks, splits),
    }
    if figures.weights_differ or figures.unproven:
        said = Favoured("unequal work" if figures.weights_differ else "unproven work")
        times = {name: each if each == NOT_MEASURED else said for name, each in times.items()}
    return {
        **times,
        "waiting": _waiting(stacks, figures),
        "weights": _weights(figures),
        "installing": _installing(stacks, installing),
        "using": NOT_JUDGED if any(each.launch is not None for each in figures.counting) else NOT_MEASURED,
        **{name: _feature(name, stacks, figures) for name in get_args(FeatureName)},
    }


def _fastest(figures: Figures, ratios: Sequence[tuple[str, Ratio]]) -> Favoured:
    """By ratios to the baseline, as far as the corrected comparisons allow."""
    if not ratios:
        return NOT_MEASURED
    baseline, seen = figures.campaign.baseline, dict[str, set[str]]()
    for stack, ratio in ratios:
        seen.setdefault(stack, set()).add(outcome(ratio))
    faster = tuple(stack for stack, found in seen.items() if found == {"shorter"})
    slower = tuple(stack for stack, found in seen.items() if found == {"longer"})
    if faster:
        return Favoured("stacks", faster, over=baseline)
    return Favoured("stacks", (baseline,)) if len(slower) == len(seen) else Favoured("open", worse=slower)


def _waiting(stacks: Sequence[str], figures: Figures) -> Favoured:
    """By what a run takes besides training, cell by cell."""
    places: dict[str, dict[str, Ends | None]] = {}
    for cell in figures.cells:
        found = cell.around_training_s
        if found is not None:
            ends = None if found.low is None or found.high is None else (found.low, found.high)
            place = repr((cell.workers, cell.epochs, cell.settings))
            places.setdefault(place, {})[cell.stack] = ends
    return _lowest(stacks, places)


def _step(stacks: Sequence[str], splits: Sequence[TimeSplit]) -> Favoured:
    """By seconds per step, where there are runs of two lengths."""
    places: dict[str, dict[str, Ends | None]] = {}
    for each in splits:
        seconds, half = each.here.step_s, each.here.step_half
        ends = None if half is None else (seconds - half, seconds + half)
        places.setdefault(repr((each.workers, each.settings)), {})[each.stack] = ends
    return _lowest(stacks, places)


def _lowest(stacks: Sequence[str], places: Mapping[str, Mapping[str, Ends | None]]) -> Favoured:
    """The stack whose interval is below those of all others in every place where there are several."""
    several = [found for found in places.values() if len(found) > 1]
    if not several:
        return NOT_MEASURED
    lowest = (stack for stack in stacks if all(_is_below(stack, found) for found in several))
    return next((Favoured("stacks", (stack,)) for stack in lowest), OPEN)


def _is_below(stack: str, found: Mapping[str, Ends | None]) -> bool:
    own = found.get(stack)
    others = [each for name, each in found.items() if name != stack]
    return own is not None and all(each is not None and own[1] < each[0] for each in others)


def _weights(figures: Figures) -> Favoured:
    """Whether the same training code ended with the same weights."""
    if not figures.works:
        return NOT_MEASURED
    return Favoured("unequal work") if figures.weights_differ else NO_DIFFERENCE


def _installing(stacks: Sequence[str], installing: Installing) -> Favoured:
    """By the number of provisioning tasks, including those of the roles that a stack stands on.

    It favours stacks over those that took at least MORE_TASKS times as many as the one with the fewest.
    """
    efforts = {name: installing.stacks[name].whole for name in stacks if name in installing.stacks}
    tasks = {name: effort.tasks for name, effort in efforts.items() if effort is not None}
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
