"""Which trials a searcher stops, and at which rung, decided again from what they reported."""

from __future__ import annotations

import math
from typing import Any

import pytest
from trainbed_determined.rungs import Bracket, Decision, Report, brackets_of, decisions

ASHA: dict[str, Any] = {"name": "adaptive_asha", "max_time": 126, "time_metric": "batches", "max_trials": 8}


def shape(searcher: dict[str, Any]) -> list[tuple[tuple[int, ...], int, int]]:
    return [(each.rungs, each.trials, each.at_once) for each in brackets_of(searcher)]


@pytest.mark.parametrize(
    ("change", "brackets"),
    [
        ({}, [((31, 126), 6, 6), ((126,), 2, 2)]),
        ({"max_time": 250}, [((62, 250), 6, 6), ((250,), 2, 2)]),
        # As a master answers: every setting that was left out is there, most of them empty.
        (
            {
                "divisor": 4,
                "max_rungs": 5,
                "mode": "standard",
                "bracket_rungs": [],
                "max_concurrent_trials": 16,
            },
            [((31, 126), 6, 6), ((126,), 2, 2)],
        ),
        # These shares are those that upstream's own tests give.
        (
            {"max_time": 100, "max_trials": 10, "max_concurrent_trials": 2},
            [((25, 100), 7, 1), ((100,), 3, 1)],
        ),
        (
            {
                "max_time": 1000,
                "max_trials": 10,
                "divisor": 3.0,
                "mode": "conservative",
                "max_concurrent_trials": 5,
            },
            [((111, 333, 1000), 7, 2), ((333, 1000), 2, 2), ((1000,), 1, 1)],
        ),
        (
            {
                "max_trials": 20,
                "divisor": 3,
                "bracket_rungs": [1, 3, 2],
                "max_time": 9,
                "max_concurrent_trials": 0,
            },
            [((1, 3, 9), 12, 3), ((3, 9), 5, 3), ((9,), 3, 3)],
        ),
        ({"max_trials": 16, "mode": "aggressive"}, [((7, 31, 126), 16, 16)]),
        ({"name": "async_halving", "num_rungs": 4, "divisor": 2, "max_time": 10}, [((1, 2, 5, 10), 8, 8)]),
        (
            {"name": "async_halving", "num_rungs": 3, "divisor": 2, "max_concurrent_trials": 0},
            [((31, 63, 126), 8, 4)],
        ),
        ({"name": "random"}, []),
        ({"max_time": None}, []),
    ],
)
def test_brackets_and_rungs_are_those_of_the_master(
    change: dict[str, Any], brackets: list[tuple[tuple[int, ...], int, int]]
) -> None:
    assert shape(ASHA | change) == brackets


def test_of_those_seen_so_far_a_quarter_goes_on_and_at_least_the_best() -> None:
    bracket = Bracket((31, 126), trials=6, at_once=6, divisor=4)
    losses = [0.60, 0.65, 0.50, 0.55, 0.52, 0.40]
    first = [Report(number, number, 63, loss) for number, loss in enumerate(losses, start=1)]
    last = [Report(number, 10 + number, 126, 0.3) for number in (1, 3, 6)]
    found = decisions([bracket], range(1, 7), [*last, *first])  # in whatever order they are read
    stopped = {number: each.rung for number, each in found.items()}
    # 1 is the first, 3 and 6 are the best when they come; 5 is the second of five, and only one goes on.
    assert stopped == {1: 2, 2: 1, 3: 2, 4: 1, 5: 1, 6: 2}
    assert found[2] == Decision(rung=1, rungs=2, length=31, reached=63)
    assert found[6] == Decision(rung=2, rungs=2, length=126, reached=126)


def test_one_evaluation_counts_for_all_rungs_that_were_reached() -> None:
    bracket = Bracket((7, 31, 126), trials=3, at_once=3, divisor=4)
    found = decisions(
        [bracket], (1, 2, 3), [Report(1, 1, 63, 0.5), Report(2, 2, 63, 0.6), Report(3, 3, 20, 0.4)]
    )
    assert found == {2: Decision(rung=1, rungs=3, length=7, reached=63)}
    found = decisions(
        [bracket], (1, 3), [Report(1, 1, 63, 0.5), Report(3, 2, 20, 0.4), Report(3, 3, 63, 0.6)]
    )
    assert found == {3: Decision(rung=2, rungs=3, length=31, reached=63)}


def test_a_new_trial_belongs_to_the_bracket_of_the_one_that_made_room() -> None:
    early, whole = Bracket((31, 126), 3, 1, 4), Bracket((126,), 2, 1, 4)
    reports = [
        Report(1, 1, 63, 0.5),
        Report(2, 2, 126, 0.4),  # it did all its batches; so 3 takes its place, and is never stopped early
        Report(3, 3, 63, 0.9),
        Report(1, 4, 126, 0.3),  # so 4 is compared with the others, and is worse than 1 was
        Report(4, 5, 63, 0.6),
        Report(5, 6, 0, math.inf),  # it fails at once, and makes no room: there are three
    ]
    found = decisions([early, whole], (1, 2, 3, 4, 5), reports)
    assert {number: (each.rung, each.rungs) for number, each in found.items()} == {
        1: (2, 2),
        2: (1, 1),
        4: (1, 2),
    }


def test_a_failure_counts_as_the_worst_and_makes_room() -> None:
    bracket = Bracket((31, 126), trials=3, at_once=1, divisor=2)
    reports = [
        Report(1, 1, 0, math.inf),
        Report(2, 2, 63, 0.5),
        Report(2, 3, 126, 0.4),
        Report(3, 4, 63, 0.6),
    ]
    # Of three that were seen at the first rung, one goes on; 3 is the second.
    assert decisions([bracket], (1, 2, 3), reports)[3] == Decision(1, 2, 31, 63)
    # Of four, two go on: a second failure lets it through.
    more = Bracket((31, 126), trials=4, at_once=4, divisor=2)
    four = [Report(4, 0.5, 0, math.inf), *reports]
    assert 3 not in decisions([more], (1, 2, 3, 4), four)


def test_what_a_trial_reports_that_is_not_known_is_left_out() -> None:
    assert decisions([Bracket((5,), 1, 1, 4)], (1,), [Report(7, 1, 5, 0.1)]) == {}
