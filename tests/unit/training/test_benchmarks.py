"""Each part of the benchmark, on tiny models: what is compared is the same work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments.util.paths import REPOSITORY
from tests.benchmarks import one_worker, recording, two_workers
from tests.benchmarks.__main__ import main
from tests.benchmarks.engine import Alone, by_the_engine, opened
from tests.benchmarks.links import RATE, limited_link, why_no_limit
from tests.benchmarks.one_worker import (
    BF16,
    COMPILED,
    FIRST,
    PEERS,
    TRAINER,
    TRAINER_KEEPING,
    UNPADDED,
    Variant,
    accuracies,
)
from tests.benchmarks.plan import Plan, in_turns
from tests.benchmarks.results import Part, Result, Sample
from tests.benchmarks.side_by_side import side_by_side
from tests.benchmarks.tables import page
from tests.unit.training.training_helpers import TINY, Datasets, data_spec
from training.data.prepare import Prepared
from training.errors import DataError

NOT_THERE = Variant("an idea", {"padding": "halved"})


@pytest.fixture
def prepared(datasets: Datasets) -> Prepared:
    """Sentences of other lengths, in one data set."""
    return datasets(data_spec(train=60, validation=11))


def plan(*, rounds: int = 1, cores: int = 1, **changes: Any) -> Plan:
    """Five steps of a few samples, without dropout, so that all who compute the same end with the same."""
    mine = sorted(os.sched_getaffinity(0))
    small: dict[str, Any] = {"steps": 5, "batch": 6, "model": TINY | {"dropout": 0.0}} | changes
    return Plan(rounds=rounds, cores=[mine[number % len(mine)] for number in range(cores)], **small)


def losses(part: Part) -> dict[str, list[float | None]]:
    """The loss in each round, by name."""
    names = dict.fromkeys(each.name for each in part.samples)
    return {name: [each.loss for each in part.samples if each.name == name] for name in names}


def test_trainer_and_the_engine_do_the_same_work(prepared: Prepared) -> None:
    variants = (
        Variant("plain", {}, aims={16: 2.0}),
        Variant("both", UNPADDED | FIRST, "Trainer, grouped by length"),
        NOT_THERE,
    )
    part = one_worker.measure([prepared.path], plan(rounds=2, epochs=2, accuracy=True), variants)

    found = losses(part)
    assert list(found) == [TRAINER, TRAINER_KEEPING, "Trainer, grouped by length", "plain", "both"]
    assert found[TRAINER_KEEPING] == found[TRAINER]
    (first, second) = found[TRAINER]
    assert first != second and first is not None  # each round has its own seed, for the accuracies
    # Two epochs of the same batches, learning rates and clipping; grouping takes other batches.
    assert found["plain"] == pytest.approx(found[TRAINER], rel=1e-5)
    assert found["both"] == pytest.approx(found[TRAINER], rel=1e-5)
    assert found["Trainer, grouped by length"] != pytest.approx(found[TRAINER], rel=1e-5)
    assert {each.accuracy for each in part.samples if each.name == TRAINER} == {
        each.accuracy for each in part.samples if each.name == "plain"
    }
    assert [(each.name, each.against, each.aim) for each in part.comparisons] == [
        (TRAINER_KEEPING, TRAINER, None),
        ("plain", TRAINER, 2.0),
        ("plain", TRAINER_KEEPING, None),
        ("both", TRAINER, None),
        ("both", TRAINER_KEEPING, None),
        ("both", "Trainer, grouped by length", None),
    ]
    note, *accuracies = part.notes
    assert note.startswith("maximum length 16: an idea is left out: Not a valid Work: padding")
    same = (
        "maximum length 16: the accuracy of plain less that of Trainer is +0.0 percentage points (2 seeds); "
        "equal within 1: can't tell."
    )
    assert same in accuracies and len(accuracies) == 3


def test_trainer_in_bf16_is_another_arithmetic(prepared: Prepared) -> None:
    part = one_worker.measure([prepared.path], plan(), [Variant("plain", {}, "Trainer, bf16")])
    found = losses(part)
    assert found["Trainer, bf16"] != found[TRAINER]
    assert found["Trainer, bf16"] == pytest.approx(found[TRAINER], rel=0.05)


def test_what_compiling_takes_is_no_part_of_a_step(prepared: Prepared) -> None:
    variants = [Variant("plain", {}), Variant("compiled", {}, conditions=COMPILED)]
    part = one_worker.measure([prepared.path], plan(), variants)
    found = losses(part)
    assert found["compiled"] == pytest.approx(found["plain"], rel=1e-5)
    session = Alone()
    workload = opened(plan().work_on(prepared.path), prepared.path, COMPILED)
    training = by_the_engine(workload, session)
    # It is in the seconds that the steps took, from which it is subtracted.
    assert 0 < session.compiling_s < sum(training.step_seconds)


def test_every_variant_names_a_trainer_that_there_is() -> None:
    variants = (*one_worker.VARIANTS, *one_worker.ALONE)
    assert {each.peer for each in variants} <= set(PEERS)
    assert len({each.name for each in variants}) == len(variants)
    assert all(("bf16" in each.name) == (BF16.items() <= each.settings.items()) for each in variants)


def test_accuracies_are_equal_if_the_whole_interval_is_within_a_point() -> None:
    def with_accuracies(name: str, values: Sequence[float]) -> list[Sample]:
        return [
            Sample(group="all", name=name, round=number, ms=1.0, accuracy=each)
            for number, each in enumerate(values, start=1)
        ]

    theirs = with_accuracies(TRAINER, [0.70, 0.72, 0.74])
    ends = {}
    for name, values in (
        ("close", [0.701, 0.720, 0.739]),
        ("apart", [0.650, 0.671, 0.689]),
        ("scattered", [0.60, 0.72, 0.84]),
    ):
        (said,) = accuracies(theirs + with_accuracies(name, values))
        ends[name] = said.rpartition(": ")[2]
    assert ends == {"close": "yes.", "apart": "no.", "scattered": "can't tell."}
    assert accuracies([each.model_copy(update={"accuracy": None}) for each in theirs]) == []


def test_two_workers_are_set_beside_one_and_beside_two_that_exchange_nothing(prepared: Prepared) -> None:
    # So many steps that what a busy machine takes between two readings of the clock is little of them.
    part = two_workers.measure(prepared.path, plan(cores=2, epochs=20))

    links = [two_workers.NO_LIMIT] + ([] if why_no_limit() else [RATE])
    ways = [(link, name) for link in links for name in (two_workers.PLAIN, *two_workers.SYNCS)]
    alone = [(two_workers.BY_THEMSELVES, name) for name in (two_workers.ONE, two_workers.CEILING)]
    waiting = (two_workers.BY_THEMSELVES, two_workers.WAITING)
    assert [(each.group, each.name) for each in part.samples] == [*alone, waiting, *ways]
    digests = {(each.group, each.name): each.weights for each in part.samples}
    # Neither the link nor the way of exchanging changes the weights, unless its name says so.
    assert len({digests[way] for way in ways if way[1] in two_workers.EXACT}) == 1
    assert digests[alone[0]] == digests[alone[1]]
    assert digests[ways[0]] != digests[alone[0]]
    for way in ways:
        if way[1] not in two_workers.EXACT:
            assert digests[way] != digests[two_workers.NO_LIMIT, "dense"]
    by_name = {each.name: each for each in part.samples if each.group == two_workers.BY_THEMSELVES}
    assert by_name[two_workers.WAITING].ms >= by_name[two_workers.CEILING].ms
    for each in part.samples:
        if each.name in (two_workers.PLAIN, two_workers.WAITING):
            assert each.phases is None and each.processor is None
            continue
        assert each.processor is not None and each.processor["training"] > 0
        assert sum(each.processor.values()) <= 1.5 * each.ms
        assert each.phases is not None and sum(each.phases.values()) == pytest.approx(each.ms, rel=0.5)
        assert (each.phases.get("exposed_sync", 0.0) > 0) == (each.group != two_workers.BY_THEMSELVES)
    shares = [each for each in part.comparisons if each.measure == two_workers.SHARE]
    assert [(each.group, each.name) for each in shares] == [waiting, *ways]
    assert {each.group: each.aim for each in shares if each.name == "auto"} == {
        link: two_workers.AIMS[link] for link in links
    }
    limits = [why_no_limit()] if why_no_limit() else []
    assert part.notes == [*limits, *two_workers.equal_weights(part.samples)[0]]
    assert part.broken == []


def test_a_core_too_few_is_a_note(prepared: Prepared) -> None:
    part = two_workers.measure(prepared.path, plan(cores=1))
    assert (part.samples, part.comparisons) == ([], [])
    assert part.notes == ["two-workers is left out: it needs 2 cores, and this process may use one."]


def test_weights_that_differ_are_told() -> None:
    samples = [
        Sample(group="no link limit", name=name, round=1, ms=1.0, weights=weights)
        for name, weights in (("dense", "a"), ("rows", "b"), ("fp16", "c"))
    ]
    differ = ["no link limit: the weights of dense and rows DIFFER."]
    assert two_workers.equal_weights(samples) == ([], differ)
    samples[1] = samples[1].model_copy(update={"weights": "a"})
    equal = ["no link limit: the weights of dense and rows are equal to the last bit."]
    assert two_workers.equal_weights(samples) == (equal, [])


def test_weights_that_differ_fail_the_command(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--data", str(prepared.path), "--only", "two-workers", "--out", str(tmp_path)]
    part = Part(name="two-workers", settings={}, samples=[], comparisons=[], notes=["no"], broken=["no"])
    monkeypatch.setattr(two_workers, "measure", lambda *_: part)
    assert main(given) == 1
    assert len(list(tmp_path.glob("*.md"))) == 1


def test_a_limited_link_has_its_rate_and_leaves_nothing() -> None:
    if why := why_no_limit():
        pytest.skip(why)
    with limited_link() as (first, second):
        for place in (first, second):
            assert place.namespace is not None
            command = ["tc", "-n", place.namespace.name, "qdisc", "show", "dev", place.interface]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            assert "qdisc tbf" in said and "rate 1Gbit" in said
    assert [place.namespace.exists() for place in (first, second) if place.namespace] == [False, False]


def test_without_rights_or_tools_a_sentence_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_no_limit() == (
        "The link of 1gbit is left out: only root can make one; repeat the benchmark as root."
    )
    monkeypatch.setenv("PATH", "/nowhere")
    assert why_no_limit() == ("The link of 1gbit is left out: there is no ip and no tc (package iproute2).")


def test_recording_keeps_figures_in_one_training_and_none_in_the_other(prepared: Prepared) -> None:
    part = recording.measure(prepared.path, plan(rounds=2))
    assert [(each.round, each.name) for each in part.samples] == [
        (1, recording.KEPT),
        (1, recording.DROPPED),
        (2, recording.DROPPED),
        (2, recording.KEPT),
    ]
    (found,) = part.comparisons
    assert (found.name, found.against, len(found.by_round)) == (recording.DROPPED, recording.KEPT, 2)


def test_the_command_writes_json_and_its_tables(
    prepared: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--data", str(prepared.path), "--rounds", "1", "--batch", "6", "--out", str(tmp_path)]
    assert main([*given, "--steps", "5", "--only", "recording"]) == 0

    written = next(tmp_path.glob("*.json"))
    result = Result.model_validate_json(written.read_text(encoding="utf-8"))
    assert [part.name for part in result.parts] == ["recording"]
    assert {"processor", "cores", "torch", "transformers", "commit"} <= result.machine.keys()
    assert written.with_suffix(".md").read_text(encoding="utf-8") == page(result)
    assert capsys.readouterr().out.splitlines()[-1] == f"Wrote {written} and {written.with_suffix('.md')}."

    assert main([*given, "--steps", "11", "--only", "recording"]) == 1
    assert capsys.readouterr().err.startswith("11 steps take 66 samples")


def test_too_few_samples_are_one_sentence(prepared: Prepared) -> None:
    with pytest.raises(DataError, match=r"^11 steps take 66 samples .* has 60; use fewer steps \(--steps\)"):
        plan(steps=11).work_on(prepared.path)
    with pytest.raises(DataError, match=r"^There is no prepared data set in /nowhere .*dataset\.json"):
        plan().work_on(Path("/nowhere"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "recording,nonsense"], "there is no part nonsense; there are one-worker, two-workers"),
        (["--steps", "4"], "--steps: must be at least 5, not 4"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


def test_a_process_that_fails_ends_the_others() -> None:
    core = min(os.sched_getaffinity(0))
    assert side_by_side([lambda: os.sched_getaffinity(0)] * 2, [core, core]) == [{core}, {core}]
    calls: list[Callable[[], object]] = [lambda: 1 / 0, partial(time.sleep, 600)]
    with pytest.raises(RuntimeError, match=f"on core {core} failed with exit code 1"):
        side_by_side(calls, [core, core])


def test_a_command_that_is_ended_leaves_no_process(prepared: Prepared, tmp_path: Path) -> None:
    options = [
        "--only",
        "recording",
        "--rounds",
        "1000",
        "--batch",
        "6",
        "--steps",
        "5",
        "--out",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "tests.benchmarks", "--data", str(prepared.path), *options]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        next(line for line in started.stdout if line.startswith("round 1"))
        processes = psutil.Process(started.pid).children()
        started.terminate()
        assert started.wait(60) == 128 + signal.SIGTERM
    assert not any(each.is_running() for each in processes)


def test_every_other_round_goes_backwards() -> None:
    assert list(in_turns("ab", 2)) == [(1, "a"), (1, "b"), (2, "b"), (2, "a")]
