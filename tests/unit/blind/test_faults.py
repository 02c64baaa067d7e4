"""The faults of the blind test: how they are drawn, sized, hidden by equalising, and judged."""

from __future__ import annotations

import io
import socket
import time
from dataclasses import asdict

import pytest

from tests.blind.attribution import UNEXPLAINED, attribute
from tests.blind.faults import draw, sized
from tests.blind.launch import FACTORS, Launch
from tests.blind.proxy import proxy_to
from tests.blind.rank import SlowOutput
from tests.blind.trial import Verdict, described
from tests.unit.blind.test_attribution import made_up

FLOORS = {"step_ms": 2.0, "fixed_s": 0.1, "launch_s": 1.0}


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
    assert sized("hook", FLOORS).size_ms == 6.0 and sized("hook", FLOORS, times=5.0).size_ms == 10.0
    assert sized("proxy", FLOORS).size_ms is None
    with pytest.raises(ValueError, match="There is no fault named sabotage: take one of allocator, cgroup"):
        sized("sabotage", FLOORS)


def test_a_verdict_is_right_only_if_the_injected_fault_was_named_with_its_size() -> None:
    runs, size = made_up(4, "hook", "step_ms", floors=3.0)
    found = attribute(runs, FACTORS)
    fault = sized("hook", {**FLOORS, "step_ms": size / 3})
    right = Verdict(fault, found)
    assert right.right and not right.false and described(right).endswith("verdict: right")
    too_large = Verdict(sized("hook", {**FLOORS, "step_ms": size}), found)
    assert not too_large.right and not too_large.false
    assert described(too_large).endswith("verdict: the interval does not hold the size")
    another = Verdict(sized("proxy", FLOORS), found)
    assert (
        not another.right
        and another.false
        and described(another).endswith("verdict: another cause was named")
    )
    nothing = Verdict(fault, attribute(made_up(1)[0], FACTORS))
    assert nothing.found.named is None and not nothing.right and not nothing.false
    assert described(nothing).endswith("verdict: nothing was named")


def test_slow_output_takes_its_time_for_each_line() -> None:
    stream = io.StringIO()
    slow = SlowOutput(stream, 0.02)
    began = time.perf_counter()
    print("one\ntwo", file=slow)
    assert time.perf_counter() - began >= 0.04
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
