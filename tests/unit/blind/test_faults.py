"""The faults of the blind test: how they are drawn, sized, hidden by equalising, and judged."""

from __future__ import annotations

import io
import socket
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from experiments.analysis.attribution import Measure
from experiments.analysis.statistics import simultaneous
from tests.blind import __main__ as command
from tests.blind.bytecode import lacking, source_of
from tests.blind.design import NO_FACTOR, attributed
from tests.blind.faults import ALL_IN, FEW, HIDDEN, Plain, Plan, draw, faults_of, sized
from tests.blind.kept import IMPOSSIBLE, as_table, counted, impossible, keep, kept, row_of
from tests.blind.launch import FACTORS, FACTORS_OF, Launch, UnavailableError
from tests.blind.proxy import proxy_to
from tests.blind.rank import SlowOutput, Waits
from tests.blind.trial import Sizes, Verdict, described
from tests.unit.blind.test_design import made_up

FLOORS: dict[Measure, float] = {"step_ms": 2.0, "fixed_s": 0.1, "launch_s": 1.0}
TAKES = Plain(train_s=2.0, launch_s=5.0, training_processor_s=1.5, launch_processor_s=8.0, sample_s=0.0005)
AT = datetime(2026, 11, 27, 12, 30, tzinfo=UTC)


def about(size: float) -> Sizes:
    """A size in ms a step, known to a hundredth or so."""
    return {"step_ms": simultaneous([[0.99 * size, size, 1.01 * size]])[0]}


def test_every_fault_of_every_job_is_drawn_by_some_seed_and_by_the_same_one_again() -> None:
    assert len(FACTORS) == 10
    drawn = Counter((plan.kind, plan.name) for plan in map(draw, range(600)))
    assert drawn.keys() == {(kind, name) for kind in FACTORS_OF for name in faults_of(kind)}
    assert drawn["simulated", HIDDEN] and drawn["null-step", HIDDEN]
    assert [draw(seed) for seed in range(20)] == [draw(seed) for seed in range(20)]


def test_a_plan_equalises_all_factors_in_few_blocks_or_a_few_in_enough() -> None:
    plans = [draw(seed) for seed in range(200)]
    for plan in plans:
        every = FACTORS_OF[plan.kind]
        assert (plan.factors, plan.blocks) == (every, ALL_IN) or (len(plan.factors), plan.blocks) == FEW
        assert plan.answer == (NO_FACTOR if plan.name == HIDDEN else plan.name)
    assert {plan.blocks for plan in plans} == {2, 5} and {plan.floors for plan in plans} == {3.0, 6.0}


def test_what_is_given_is_not_drawn() -> None:
    assert {draw(seed, "null-step").kind for seed in range(9)} == {"null-step"}
    assert {(draw(seed, None, "hook").kind, draw(seed, None, "hook").name) for seed in range(9)} == {
        ("simulated", "hook")
    }
    with pytest.raises(ValueError, match="A null-step job can't have the fault hook; take one of cgroup"):
        draw(1, "null-step", "hook")
    assert Plan("simulated", "hook", ("proxy",), 2).answer == NO_FACTOR


@pytest.mark.parametrize("name", [*FACTORS, HIDDEN])
def test_a_fault_vanishes_if_its_factor_is_equalised_and_only_then(name: str) -> None:
    fault = sized(name, FLOORS, TAKES)
    assert [each for each, dose in asdict(fault.launch).items() if dose] == [name]
    everything = frozenset(FACTORS)
    if name == HIDDEN:
        assert fault.launch.equalised(everything) == fault.launch
    else:
        assert fault.launch.equalised(frozenset({name})) == Launch()
        assert fault.launch.equalised(everything - {name}) == fault.launch


def test_doses_follow_the_noise_floors() -> None:
    assert sized("hook", FLOORS, TAKES).dose == 6.0 and sized("hook", FLOORS, TAKES, times=5.0).dose == 10.0
    assert sized("environment", FLOORS, TAKES).dose == 3.0
    # 8 s of processor time in 5 + 3 s outside train_s, which is reached before 1.5 s in 2 + 0.9 s of it.
    assert sized("cgroup", FLOORS, TAKES).dose == 1.0
    assert sized("cgroup", FLOORS, replace(TAKES, launch_processor_s=1.0)).dose == pytest.approx(1.5 / 2.9)
    # Each rank's 4 s of start-up beside a busy process: 1.25 ** 3 - 1 = 0.95 times as long is 3 s and more.
    assert sized("niceness", FLOORS, TAKES).dose == 3.0
    # 0.3 s of evaluation more, of the half that another rank would have taken: 600 samples of 0.5 ms.
    assert sized("evaluation", FLOORS, TAKES).dose == 1200.0
    with pytest.raises(ValueError, match="There is no fault named sabotage here: take one of allocator, cgr"):
        sized("sabotage", FLOORS, TAKES)
    with pytest.raises(ValueError, match="There is no fault named evaluation here"):
        sized("evaluation", FLOORS, replace(TAKES, sample_s=None))


def verdict_of(name: str, sizes: Sizes, made: tuple[str | None, float]) -> Verdict:
    """What is said of a trial that hid `name`, by runs whose hidden factor costs so many floors."""
    runs, floors, _ = made_up(4, made[0], floors=made[1])
    plan = Plan("simulated", name, FACTORS, 2)
    return Verdict(plan, sized(name, floors, TAKES), AT, sizes, attributed(runs, FACTORS, floors))


def test_a_verdict_is_right_only_if_the_injected_fault_was_named_with_its_size() -> None:
    size = made_up(4, "hook", floors=3.0)[2]
    known, wrong = about(size), about(3 * size)
    right = verdict_of("hook", known, ("hook", 3.0))
    assert right.right and not right.false and described(right).endswith("verdict: right")
    too_large = verdict_of("hook", wrong, ("hook", 3.0))
    assert not too_large.right and not too_large.false
    assert described(too_large).endswith("verdict: the interval does not hold the size")
    another = verdict_of("proxy", known, ("hook", 3.0))
    assert not another.right and another.false
    assert described(another).endswith("verdict: another cause was named")
    nothing = verdict_of("hook", known, (None, 0.0))
    assert nothing.found.named is None and not nothing.right and not nothing.false
    assert described(nothing).endswith("verdict: nothing was named")
    without = replace(right, plan=replace(right.plan, factors=("proxy",)))
    assert without.plan.answer == NO_FACTOR and without.false


def test_trials_are_kept_in_a_table_and_read_again(tmp_path: Path) -> None:
    table = tmp_path / "trials.csv"
    assert kept(table) == []
    size = made_up(4, "hook", floors=3.0)[2]
    for seed in (1, 2):
        keep(table, row_of(seed, verdict_of("hook", about(size), ("hook", 3.0))))
    keep(table, row_of(3, verdict_of("proxy", {}, (None, 0.0))))
    plan = Plan("simulated", "cgroup", FACTORS, 2)
    keep(table, impossible(4, plan, "A throttled cgroup can't be made here."))
    first, second, third, fourth = kept(table)
    assert (first.seed, first.fault, first.named, first.measure, first.right) == (
        *(1, "hook", "hook", "step_ms", "yes"),
    )
    assert (first.job, first.equalised, first.blocks, first.floors) == ("simulated", 10, 2, 3.0)
    assert first.floors_at == "2026-11-27T12:30+00:00"
    assert second == replace(first, seed=2)
    assert (third.named, third.cost, third.answer, third.right) == ("", "", "proxy", "no")
    assert (fourth.fault, fourth.right) == ("cgroup", IMPOSSIBLE) and "can't be made here" in fourth.reason
    *_, never, hook, nothing = as_table([third, fourth, first]).splitlines()
    assert never.startswith(f"| simulated | `cgroup` | 4 | 10 x 2 | 3 | {IMPOSSIBLE} |")
    cost = f"{first.size} | hook | {first.cost} | ms a step"
    assert hook.startswith(f"| simulated | `hook` | 1 | 10 x 2 | 3 | {cost} |")
    assert nothing == "| simulated | `proxy` | 3 | 10 x 2 | 3 |  | nothing |  |  |  | no |"
    table.write_text("seed,fault\n1,hook\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"trials\.csv is no table of trials"):
        kept(table)


def test_trials_are_counted_by_what_was_named() -> None:
    size = made_up(4, "hook", floors=3.0)[2]
    verdicts = [
        verdict_of("hook", about(size), ("hook", 3.0)),
        verdict_of("hook", about(3 * size), ("hook", 3.0)),
        verdict_of("proxy", about(size), ("hook", 3.0)),
        verdict_of("proxy", {}, (None, 0.0)),
    ]
    rows = [row_of(seed, verdict) for seed, verdict in enumerate(verdicts)]
    rows.append(impossible(4, Plan("simulated", "cgroup", FACTORS, 2), "No cgroup can be made here."))
    assert counted(rows) == (
        "In 2 of 4 trials the right cause was named, in 1 of them with a cost that is not told from the real "
        "one; in 1 another one was, in 1 nothing."
    )


def test_every_fault_is_tried_and_what_is_not_possible_here_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = []

    def trial(plan: Plan, *_: object) -> Verdict:
        tried.append(plan)
        if plan.name == "cgroup":
            raise UnavailableError("A throttled cgroup can't be made here.")
        size = made_up(4, plan.name, floors=3.0)[2]
        return replace(verdict_of(plan.name, about(size), (plan.name, 3.0)), plan=plan)

    monkeypatch.setattr(command, "trial", trial)
    table = tmp_path / "trials.csv"
    given = ["--seed", "5", "--every", "--job", "simulated", "--blocks", "2", "--factors", *FACTORS]
    monkeypatch.setattr(sys, "argv", ["blind", *given, "--keep", str(table)])
    assert command.main() == 0
    assert [plan.name for plan in tried] == [*FACTORS, HIDDEN]
    rows = {row.fault: row for row in kept(table)}
    assert rows.keys() == {*FACTORS, HIDDEN}
    assert rows["cgroup"].right == IMPOSSIBLE and rows["hook"].right == "yes"
    said = capsys.readouterr().out
    assert f"cgroup: {IMPOSSIBLE}. A throttled cgroup can't be made here." in said
    assert said.endswith(f"{as_table(kept(table))}\n\n{counted(kept(table))}\n")
    assert command.main() == 0 and len(tried) == 11  # its trials are not repeated


def test_bytecode_lacks_modules_that_take_so_long_to_compile(tmp_path: Path) -> None:
    bytecode = tmp_path / "bytecode"
    sources = []
    for at in range(40):
        source = tmp_path / "modules" / f"module_{at}.py"
        source.parent.mkdir(exist_ok=True)
        source.write_text(
            "\n".join(f"a_{line} = [{line}, {line} + 1]" for line in range(400)), encoding="utf-8"
        )
        file = bytecode / source.parent.relative_to("/") / f"module_{at}.cpython-311.pyc"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        assert source_of(file, bytecode) == source
        sources.append(source)
    began = time.process_time()
    compile(sources[0].read_bytes(), "x", "exec")
    one = time.process_time() - began
    some = lacking(bytecode, 3 * one)
    left = len(list(some.rglob("*.pyc")))
    assert 0 < left < 40 and len(list(bytecode.rglob("*.pyc"))) == 40
    assert lacking(bytecode, 3 * one) == some
    assert not list(lacking(bytecode, 1000.0).rglob("*.pyc"))


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
