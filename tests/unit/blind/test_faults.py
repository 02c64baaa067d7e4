"""The faults of the blind test: how they are drawn, sized, hidden by equalising, and judged."""

from __future__ import annotations

import io
import socket
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from experiments.analysis.statistics import simultaneous
from tests.blind.attribution import UNEXPLAINED, attribute
from tests.blind.faults import draw, sized
from tests.blind.kept import keep, kept
from tests.blind.launch import FACTORS, Launch
from tests.blind.proxy import proxy_to
from tests.blind.rank import SlowOutput, Waits
from tests.blind.trial import Sizes, Verdict, described
from tests.unit.blind.test_attribution import made_up

FLOORS = {"step_ms": 2.0, "fixed_s": 0.1, "launch_s": 1.0}


def about(size: float) -> Sizes:
    """A size in ms a step, known to a hundredth or so."""
    return {"step_ms": simultaneous([[0.99 * size, size, 1.01 * size]])[0]}


def test_every_one_of_the_ten_faults_is_drawn_by_some_seed_and_by_the_same_one_again() -> None:
    assert {draw(seed) for seed in range(200)} == set(FACTORS) and len(FACTORS) == 10
    assert [draw(seed) for seed in range(20)] == [draw(seed) for seed in range(20)]


@pytest.mark.parametrize("name", [*FACTORS, "hidden"])
def test_a_fault_vanishes_if_its_factor_is_equalised_and_only_then(name: str) -> None:
    fault = sized(name, FLOORS)
    assert [each for each, dose in asdict(fault.launch).items() if dose] == [name]
    everything = frozenset(FACTORS)
    if name == "hidden":
        assert fault.answer == UNEXPLAINED and fault.launch.equalised(everything) == fault.launch
    else:
        assert fault.answer == name and fault.launch.equalised(frozenset({name})) == Launch()
        assert fault.launch.equalised(everything - {name}) == fault.launch


def test_doses_follow_the_noise_floors() -> None:
    assert sized("hook", FLOORS).dose == 6.0 and sized("hook", FLOORS, times=5.0).dose == 10.0
    with pytest.raises(ValueError, match="There is no fault named sabotage: take one of allocator, cgroup"):
        sized("sabotage", FLOORS)


def test_a_verdict_is_right_only_if_the_injected_fault_was_named_with_its_size() -> None:
    runs, floors, size = made_up(4, "hook", "step_ms", floors=3.0)
    found = attribute(runs, FACTORS, floors)
    hook, known, wrong = sized("hook", floors), about(size), about(3 * size)
    right = Verdict(hook, known, found)
    assert right.right and not right.false and described(right).endswith("verdict: right")
    too_large = Verdict(hook, wrong, found)
    assert not too_large.right and not too_large.false
    assert described(too_large).endswith("verdict: the interval does not hold the size")
    another = Verdict(sized("proxy", FLOORS), known, found)
    assert not another.right and another.false
    assert described(another).endswith("verdict: another cause was named")
    runs, floors, _ = made_up(1)
    nothing = Verdict(hook, known, attribute(runs, FACTORS, floors))
    assert nothing.found.named is None and not nothing.right and not nothing.false
    assert described(nothing).endswith("verdict: nothing was named")


def test_trials_are_kept_in_a_table_and_read_again(tmp_path: Path) -> None:
    table = tmp_path / "trials.csv"
    assert kept(table) == []
    runs, floors, size = made_up(4, "hook", "step_ms", floors=3.0)
    found = attribute(runs, FACTORS, floors)
    for seed in (1, 2):
        keep(table, seed, Verdict(sized("hook", floors), about(size), found))
    nothing, floors, _ = made_up(1)
    keep(table, 3, Verdict(sized("proxy", floors), {}, attribute(nothing, FACTORS, floors)))
    first, second, third = kept(table)
    assert (first.seed, first.fault, first.named, first.measure, first.right) == (
        *(1, "hook", "hook", "step_ms", "yes"),
    )
    assert second == replace(first, seed=2)
    assert (third.named, third.cost, third.right) == ("", "", "no")
    table.write_text("seed,fault\n1,hook\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"trials\.csv is no table of trials"):
        kept(table)


def test_slow_output_takes_its_time_for_each_line() -> None:
    stream = io.StringIO()
    wait = Waits(0.02)
    began = time.perf_counter()
    print("one\ntwo", file=SlowOutput(stream, wait))
    took = time.perf_counter() - began
    assert len(wait.took) == 2 and 0.04 <= sum(wait.took) <= took
    assert stream.getvalue() == "one\ntwo\n"


def test_a_proxy_passes_everything_on_and_holds_each_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, proxy_to(server.getsockname()[1], 0.05) as port:
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as near:
            near.sendall(b"asked")
            far, _ = server.accept()
            with far:
                far.settimeout(10)
                assert far.recv(100) == b"asked"
                far.sendall(b"answered")
                assert near.recv(100) == b"answered"
        assert time.perf_counter() - began >= 0.1
