"""When a searcher of 0.38.1 stops trials: asynchronous successive halving, as its master decides.

A bracket has rungs, lengths at which its trials are compared. A trial's evaluation counts for every rung
that it has reached and not passed yet. Of the evaluations that a rung has seen so far, the best 1/divisor go
on, at least the best one; other trials are stopped. At the top rung every trial has done its work.

The API does not tell which rung stopped a trial. So the decisions are made again here, from what the trials
reported, in the order of their reports.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

HALVING: Final = ("adaptive_asha", "async_halving")  # the searchers that stop trials, and need max_time

# What a master takes for settings that are left out.
DIVISOR: Final = 4
MAX_RUNGS: Final = 5
AT_ONCE: Final = 16
MODE: Final = "standard"


@dataclass(frozen=True)
class Bracket:
    """Trials that are compared with one another."""

    rungs: tuple[int, ...]  # in the unit of the time metric, ascending; the last one is the whole length
    trials: int  # at most
    at_once: int  # how many start by themselves; each of the others starts when one is stopped, or fails
    divisor: float


@dataclass(frozen=True)
class Report:
    """An evaluation of a trial, or its failure."""

    trial: int
    moment: float  # unix time
    length: float  # by the time metric
    value: float  # of the searcher's metric, or infinity for a failure


@dataclass(frozen=True)
class Decision:
    """That a trial was stopped."""

    rung: int  # from 1
    rungs: int
    length: int  # at which the rung is
    reached: float  # what the trial had done, by then or by its next evaluation


def brackets_of(searcher: Mapping[str, Any]) -> list[Bracket]:
    """The brackets of a searcher; none if it stops no trials, or its settings are not complete."""
    name, longest, trials = searcher.get("name"), searcher.get("max_time"), searcher.get("max_trials")
    if name not in HALVING or not longest or not trials:
        return []
    divisor = float(searcher.get("divisor") or DIVISOR)
    at_once = searcher.get("max_concurrent_trials")
    at_once = AT_ONCE if at_once is None else int(at_once)
    if name == "async_halving":
        rungs = int(searcher.get("num_rungs") or 1)
        begun = at_once or max(1, int(divisor ** (rungs - 1)))
        return [Bracket(_rungs(rungs, divisor, longest), trials, min(begun, trials), divisor)]
    counts = sorted(searcher.get("bracket_rungs") or _counts(searcher, divisor), reverse=True)
    shares = _shares(counts, divisor, trials)
    return [
        Bracket(_rungs(count, divisor, longest), share, min(begun, share), divisor)
        for count, share, begun in zip(counts, shares, _begun(shares, divisor, at_once), strict=True)
    ]


def _rungs(count: int, divisor: float, longest: int) -> tuple[int, ...]:
    return tuple(max(int(longest / divisor**above), 1) for above in reversed(range(count)))


def _counts(searcher: Mapping[str, Any], divisor: float) -> list[int]:
    """How many rungs each bracket has: no more than the length and the number of trials have room for."""
    most = min(
        int(searcher.get("max_rungs") or MAX_RUNGS),
        int(math.log(searcher["max_time"]) / math.log(divisor)) + 1,
        int(math.log(searcher["max_trials"]) / math.log(divisor)) + 1,
    )
    mode = searcher.get("mode") or MODE
    least = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(least, most + 1))


def _shares(counts: Sequence[int], divisor: float, trials: int) -> list[int]:
    """How many trials each bracket gets, so that each takes about the same work; the first gets the rest."""
    weights = [divisor ** (count - 1) / count for count in counts]
    shares = [max(int(weight / sum(weights) * trials), 1) for weight in weights]
    shares[0] += max(trials - sum(shares), 0)
    return shares


def _begun(shares: Sequence[int], divisor: float, at_once: int) -> list[int]:
    """How many trials each bracket begins by itself."""
    if not at_once:
        return [max(shares[-1], int(divisor))] * len(shares)
    each, rest = divmod(max(at_once, len(shares)), len(shares))
    return [each + (place < rest) for place in range(len(shares))]


@dataclass
class _Running:
    """A bracket while its trials report."""

    bracket: Bracket
    seen: list[list[float]] = field(default_factory=list)  # by rung, ascending
    at: dict[int, int] = field(default_factory=dict)  # the rung that each trial works for, from 0

    def report(self, report: Report) -> int | None:
        """Take a report; returns the rung, from 0, at which the trial is stopped by it, if it is."""
        if report.value == math.inf:  # a failure: it counts as the worst
            self.seen[self.at[report.trial]].append(math.inf)
            return None
        for rung in range(self.at[report.trial], len(self.bracket.rungs)):
            self.at[report.trial] = rung
            if int(report.length) < self.bracket.rungs[rung]:
                return None
            seen = self.seen[rung]
            place = bisect_left(seen, report.value)
            seen.insert(place, report.value)
            if rung == len(self.bracket.rungs) - 1 or place >= max(int(len(seen) / self.bracket.divisor), 1):
                return rung
        return None


def decisions(
    brackets: Sequence[Bracket], trials: Iterable[int], reports: Iterable[Report]
) -> dict[int, Decision]:
    """Which trials were stopped at which rung, by the trial's number; at the top rung, all that came so far.

    Args:
        brackets: those of the searcher.
        trials: numbers of all trials, in the order in which they were made.
        reports: what they reported; a smaller value is better.
    """
    waiting = list(trials)
    running = [_Running(each, [[] for _ in each.rungs]) for each in brackets]
    of: dict[int, _Running] = {}

    def make(bracket: _Running) -> None:
        if waiting and len(bracket.at) < bracket.bracket.trials:
            of[waiting[0]] = bracket
            bracket.at[waiting.pop(0)] = 0

    for each in running:
        for _ in range(each.bracket.at_once):
            make(each)
    found: dict[int, Decision] = {}
    for report in sorted(reports, key=lambda report: report.moment):
        bracket = of.get(report.trial)
        if bracket is None:
            continue  # of a trial whose bracket is not known, as an earlier report is missing
        rung = bracket.report(report)
        if rung is not None:
            rungs = bracket.bracket.rungs
            found.setdefault(report.trial, Decision(rung + 1, len(rungs), rungs[rung], report.length))
        if rung is not None or report.value == math.inf:
            make(bracket)
    return found
