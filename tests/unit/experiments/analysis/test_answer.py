"""The dissertation's question over several campaigns: which suspects count, and what stays unexplained."""

from __future__ import annotations

import itertools
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.answer import Answer, answers, bounds, explained, unexplained
from experiments.analysis.suspects import Suspect
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec

Takes = Callable[[str, dict[str, Any]], float]
Axes = Mapping[str, Sequence[Any]]
TWO: Final[dict[str, Sequence[Any]]] = {"allocator": ["tuned", "stock"], "reporting": ["epoch", "step"]}
EVEN: Final = {"train": 4000, "validation": 4000, "seed": 1, "max_length": 128}  # as the dissertation's


def analysed(
    folder: Path,
    step_ms: Takes,
    axes: Axes = TWO,
    noise_ms: float = 0.1,
    *,
    stacks: Sequence[str] = ("ddp", "spark"),
    work: Mapping[str, Any] | None = None,
    conditions: Mapping[str, Any] | None = None,
    outside_s: Takes = lambda *_: 9.0,
    changes: Mapping[str, Any] | None = None,
    keep: Callable[[dict[str, Any]], bool] = lambda _: True,
    **of_campaign: Any,
) -> Analysis:
    """A campaign of five seeds whose steps take so long, and noise; `changes` apply to each record."""
    noise, runs = random.Random(1), list[tuple[PlannedRun, Record]]()
    for stack, *values in itertools.product(stacks, *axes.values()):
        given = dict(zip(axes, values, strict=True))
        for seed in range(1, 6) if keep(given) else ():
            fields = spec(stack, 2, seed).model_dump()
            fields["work"] |= {"data": EVEN} | dict(work or {})
            fields["conditions"] |= conditions or {}
            for name, value in given.items():
                fields["work" if name in fields["work"] else "conditions"][name] = value
            specification = RunSpec.model_validate(fields)
            ms = step_ms(stack, given) + 3 * seed + noise.gauss(0, noise_ms)  # a seed's own shift cancels
            train_s, outside = ms / 1000 * specification.work.steps, outside_s(stack, given)
            different = of_specification(specification) | dict(changes or {})
            made = record(stack, 2, train_s, train_s + outside + noise.gauss(0, 0.01), seed, **different)
            planned = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed} | given
            runs.append((PlannedRun(run_id=made.run_id, axes=planned, specification=specification), made))
    plan, records = [run for run, _ in runs], [found for _, found in runs]
    kept = campaign(folder, plan, records, **{"baseline": stacks[0]} | of_campaign)
    zipfile.ZipFile(kept.archive, "w").close()  # scripts' analysis looks into it
    return analyse(kept)


def of_stack(stack: str, *analyses: Analysis) -> Answer:
    """What they say of a stack."""
    (found,) = (each for each in answers(analyses) if each.stack == stack)
    return found


def of_spark(*analyses: Analysis) -> Answer:
    """What they say of Spark."""
    return of_stack("spark", *analyses)


def costs(spark_ms: float, step_ms: float = 0.0) -> Takes:
    """Steps of Spark take longer by themselves, and again with reporting in each step."""

    def takes(stack: str, given: dict[str, Any]) -> float:
        reporting = given.get("reporting", "epoch") == "step"
        return 500 + (spark_ms + step_ms * reporting if stack.startswith("spark") else 0)

    return takes


def names(found: Sequence[Suspect]) -> list[str]:
    return [each.factor for each in found]


def test_what_a_stack_adds_and_pays_more_is_taken_from_what_the_dissertation_saw(tmp_path: Path) -> None:
    found = of_spark(analysed(tmp_path, costs(30, 20)))
    assert found.baseline == "ddp" and set(found.published.step_ms) == {1, 2}
    counted = found.counted("training")
    assert names(counted) == ["", "allocator", "reporting"]
    total = explained(counted)
    assert total.mean == pytest.approx(50, abs=3) and total.low < 50 < total.high
    left = unexplained(found.published.step_ms, counted)
    assert left.mean == pytest.approx(118 - total.mean, abs=0.1)
    assert 0 < left.low < 68 < left.high


def test_of_two_campaigns_the_sharper_one_counts_and_of_two_values_the_costlier(tmp_path: Path) -> None:
    rough = analysed(tmp_path / "rough", costs(30, 20), noise_ms=9.0)
    sharp = analysed(tmp_path / "sharp", costs(30, 20))
    for order in ((rough, sharp), (sharp, rough)):
        found = of_spark(*order)
        counted = [each.measured for each in found.counted("training")]
        assert len(found.steps) == 6 and len(counted) == 3
        assert max(each.high - each.low for each in counted) < 3

    def lines(stack: str, given: dict[str, Any]) -> float:
        return 500 + {0: 0, 1: 5, 9: 40}[given["printed_lines"]] * (stack == "spark")

    several = of_spark(analysed(tmp_path / "several", lines, {"printed_lines": [0, 1, 9]}))
    assert [each.value for each in several.counted("training") if each.factor] == [9]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_threads_count_where_the_processor_only_feeds_the_training(tmp_path: Path, device: str) -> None:
    axes, doubt = {"threads": [1, 2]}, {"cpu": "processor", "cuda": None}[device]
    of_training = analysed(tmp_path / "a", costs(30), axes, conditions={"device": device})
    waits = analysed(tmp_path / "b", costs(30), axes, work={"simulated_step_ms": 43.5})
    found = of_spark(of_training, waits)
    assert {(each.kind, each.factor): each.doubt for each in found.steps if each.factor} == {
        ("training", "threads"): doubt,
        ("simulated", "threads"): None,
    }
    assert names(found.counted("training")) == ([""] if doubt else ["", "threads"])


def test_a_campaign_without_factors_tells_of_the_stack_itself(tmp_path: Path) -> None:
    found = of_spark(analysed(tmp_path, costs(30), {}))
    (itself,) = found.steps
    assert itself.factor == "" and itself.more.mean == pytest.approx(30, abs=2)
    assert found.parts and not {"evaluation", "steps"} & set(names(found.parts))


def test_only_steps_of_the_dissertations_kind_stand_beside_its(tmp_path: Path) -> None:
    def step_ms(stack: str, given: dict[str, Any]) -> float:
        return 500 + {8: 4, 32: 30, 60: 70}[given["batch_per_worker"]] * (stack == "spark")

    batches = analysed(tmp_path / "batches", step_ms, {"batch_per_worker": [8, 32, 60]})
    found = of_spark(batches)
    assert [each.doubt for each in found.steps] == ["batch", None, "batch"]
    (counted,) = found.counted("training")
    assert counted.more.mean == pytest.approx(30, abs=1)
    eight = analysed(tmp_path / "eight", costs(4, 2), work={"batch_per_worker": 8})
    assert of_spark(eight).counted("training") == []
    assert {each.doubt for each in of_spark(eight).steps} == {"batch"}
    none = analysed(tmp_path / "none", costs(30), {}, conditions={"evaluation": "none"})
    assert [each.doubt for each in of_spark(none).steps] == ["nothing evaluated"]


def test_less_evaluation_than_there_leaves_less_certain(tmp_path: Path) -> None:
    half = analysed(tmp_path / "half", costs(30), {}, work={"data": EVEN | {"validation": 2000}})
    even = analysed(tmp_path / "even", costs(30), {})
    (itself,) = of_spark(half).counted("training")
    assert itself.samples is not None
    assert (
        itself.samples.trained == pytest.approx(2 * itself.samples.evaluated) == pytest.approx(31.7, abs=0.1)
    )
    known = bounds([itself])
    assert known.high == pytest.approx(itself.measured.high * 32 / itself.samples.evaluated)
    assert known.low == pytest.approx(itself.measured.low)
    published = of_spark(half).published.step_ms
    assert unexplained(published, [itself]).low == pytest.approx(min(published.values()) - known.high)
    # Of the two the one that evaluates as much as the dissertation is the sharper evidence.
    (chosen,) = of_spark(half, even).counted("training")
    assert chosen.samples is not None and chosen.samples.evaluated > 31


def test_what_comes_once_an_epoch_is_shared_by_the_steps_of_one_there(tmp_path: Path) -> None:
    def starting(stack: str, given: dict[str, Any]) -> float:
        return 500 + 230 * (stack == "spark" and given["loader_start"] == "spawn")

    given: dict[str, Any] = {
        "conditions": {"loader_workers": 4},
        "work": {"data": EVEN | {"validation": 2000}},
    }
    found = of_spark(analysed(tmp_path, starting, {"loader_start": ["fork", "spawn"]}, **given))
    (spawned,) = (each for each in found.counted("training") if each.factor)
    assert spawned.more.mean == pytest.approx(230, abs=1) and spawned.steps == 63
    there = 230 * 63 / 391
    assert spawned.measured.mean == pytest.approx(there, abs=0.2)
    # However much a step evaluates there, and however many samples it trains on.
    assert spawned.bounds.low == pytest.approx(there, abs=2) == pytest.approx(spawned.bounds.high, abs=4)


def test_intervals_hold_for_all_suspects_of_a_stack_at_once(tmp_path: Path) -> None:
    one = analysed(tmp_path / "one", costs(30), {})
    (alone,) = of_spark(one).steps
    both = of_spark(one, analysed(tmp_path / "factors", costs(30, 20)))
    (among,) = (each for each in both.steps if each.more.mean == alone.more.mean)
    assert among.measured.high - among.measured.low > 1.5 * (alone.measured.high - alone.measured.low)


def printing(folder: Path) -> Analysis:
    """A script that is told how many lines to print, each of which costs Spark something."""

    def step_ms(stack: str, given: dict[str, Any]) -> float:
        return 50 + 2 * (stack == "spark") + 0.1 * int(given["model"]["arguments"][-1]) * (stack == "spark")

    told = [{"arguments": ["--epochs", "{epochs}", "--lines", lines]} for lines in ("0", "1", "100")]
    script = {"workload": "script", "data": {"script": "null_step.py", "train": 12800}}
    return analysed(
        folder,
        step_ms,
        {"model": told},
        work=script,
        changes={"validation_correct": None},
        matrix="null-step",
    )


def test_what_a_script_is_told_and_a_condition_are_one_factor(tmp_path: Path) -> None:
    found = of_spark(printing(tmp_path / "script"))
    assert [(each.factor, each.value, each.first) for each in found.of("script")] == [
        ("", None, None),
        ("printed_lines", 1, 0),
        ("printed_lines", 100, 0),
    ]

    def step_ms(stack: str, given: dict[str, Any]) -> float:
        return 520.0 if given["printed_lines"] and stack == "spark" else 500.0

    launch = analysed(tmp_path / "launch", step_ms, {"printed_lines": [0, 100]})
    both = of_spark(printing(tmp_path / "again"), launch)
    assert names(both.counted("training")) == ["", "printed_lines"]
    assert explained(both.counted("training")).mean == pytest.approx(20, abs=1)
    assert names(both.counted("script")) == ["", "printed_lines"]


def test_what_only_waits_is_in_no_sum_with_training(tmp_path: Path) -> None:
    waits = analysed(
        tmp_path / "waits", costs(7, 3), work={"simulated_step_ms": 43.5}, matrix="why-simulated"
    )
    trains = analysed(tmp_path / "trains", costs(30), {})
    found = of_spark(waits, trains)
    assert explained(found.counted("training")).mean == pytest.approx(30, abs=1)
    assert {each.kind for each in found.counted("training")} == {"training"}
    assert explained(found.counted("simulated")).mean == pytest.approx(10, abs=1)
    assert {each.campaign for each in found.parts} == {"made"}  # none of them simulated


def hook(_: str, given: dict[str, Any]) -> float:
    """A run of Determined takes twenty seconds longer once with its hook."""
    return 9.0 + 20 * (given.get("startup_hook") == "install")


def test_what_only_one_stack_has_is_a_suspect_where_the_dissertation_had_it(tmp_path: Path) -> None:
    axes = {"startup_hook": ["none", "install"]}
    found = of_stack(
        "determined",
        analysed(tmp_path / "hook", costs(0), axes, stacks=["determined"], outside_s=hook),
    )
    (once,) = found.counted_once
    assert (once.factor, once.value, once.first) == ("startup_hook", "install", "none")
    assert once.more.mean == pytest.approx(20, abs=0.1)
    (step,) = found.counted("training")
    assert step.factor == "startup_hook" and step.more.mean == pytest.approx(0, abs=1)
    # Reporting in each step is possible on DDP, too, so what it costs one stack alone says nothing.
    axes = {"reporting": ["epoch", "step"]}
    other = of_stack("determined", analysed(tmp_path / "other", costs(0), axes, stacks=["determined"]))
    assert [each.doubt for each in [*other.steps, *other.once]] == ["one stack"] * 2
    assert other.counted("training") == other.counted_once == []


def test_pairs_that_end_with_other_weights_say_nothing(tmp_path: Path) -> None:
    runs = analysed(tmp_path, costs(0), {"startup_hook": ["none", "install"]}, stacks=["determined"])
    for cell in runs.figures.cells[1:]:
        cell.records[:] = [each.model_copy(update={"weights_digest": "f" * 64}) for each in cell.records]
    found = of_stack("determined", runs)
    assert [each.doubt for each in [*found.steps, *found.once]] == ["unequal"] * 2


def test_what_a_small_fraction_mixes_is_shown_and_not_counted(tmp_path: Path) -> None:
    def half(given: dict[str, Any]) -> bool:
        high = [given["allocator"] == "stock", given["reporting"] == "step", given["printed_lines"] == 1]
        return high.count(True) % 2 == 0

    found = of_spark(analysed(tmp_path, costs(30, 20), TWO | {"printed_lines": [0, 1]}, keep=half))
    assert {each.factor: each.doubt for each in found.steps} == {
        "": None, "allocator": "mixed", "reporting": "mixed", "printed_lines": "mixed",
    }  # fmt: skip
    assert names(found.counted("training")) == [""]


def test_where_rank_0_was_is_shown_of_every_stack_and_not_counted(tmp_path: Path) -> None:
    def step_ms(_: str, given: dict[str, Any]) -> float:
        return 511.0 if given["rank_0"] == "master" else 500.0

    runs = analysed(tmp_path, step_ms, {"rank_0": ["worker", "master"]}, stacks=["ddp"])
    for stack in ("spark", "determined"):
        (step,) = of_stack(stack, runs).steps
        assert step.more.mean == pytest.approx(-11, abs=1)  # what DDP paid, the other stack did not
        assert (step.stack, step.doubt) == ("ddp", "unsettled")
        assert of_stack(stack, runs).counted("training") == []


def test_what_a_stack_alone_had_may_be_measured_on_the_baseline(tmp_path: Path) -> None:
    def step_ms(_: str, given: dict[str, Any]) -> float:
        return 493.0 if given["runtime"] == "native" else 500.0

    axes = {"runtime": ["stack", "native"]}
    runs = analysed(tmp_path / "a", step_ms, axes, stacks=["ddp"])
    (step,) = of_spark(runs).counted("training")
    assert (step.stack, step.factor, step.value) == ("ddp", "runtime", "native")
    assert step.more.mean == pytest.approx(-7, abs=1)  # of DDP without its container, as Spark has none
    assert of_stack("determined", runs).steps == []
    # Where the other stack was measured with the factor, too, the two are compared.
    both = of_spark(analysed(tmp_path / "b", step_ms, axes))
    assert [each.stack for each in both.steps if each.factor] == ["spark"]


def releases(stack: str, given: dict[str, Any]) -> float:
    """Spark takes 30 ms more, its older release 25 more than that, and reused workers 6."""
    reused = 6 * (given.get("python_workers") == "reused")
    return 500 + {"ddp": 0, "spark": 30 + reused, "spark35": 55 + reused}[stack]


def test_the_dissertations_release_counts_as_its_stack(tmp_path: Path) -> None:
    axes = {"python_workers": ["fresh", "reused"]}
    apart = analysed(tmp_path / "apart", releases, axes, stacks=["spark", "spark35"])
    why = analysed(tmp_path / "why", releases, {})
    found = of_spark(apart, why)
    assert names(found.counted("training")) == ["", "python_workers", "release"]
    assert [round(each.more.mean) for each in found.counted("training")] == [30, 6, 25]
    assert {each.value for each in found.counted_once if each.factor == "release"} == {"spark35"}
    # Against DDP itself it is the stack, and no release is added.
    direct = analysed(tmp_path / "direct", releases, {}, stacks=["ddp", "spark", "spark35"])
    found = of_spark(apart, why, direct)
    assert names(found.counted("training")) == ["", "python_workers"]
    assert explained(found.counted("training")).mean == pytest.approx(61, abs=1)
    assert {each.stack for each in found.parts} == {"spark35"}
    assert "release" not in names(found.counted_once)
    assert of_stack("determined", apart, why).steps == []


def test_a_factor_that_the_stack_itself_was_measured_with_is_not_added_again(tmp_path: Path) -> None:
    reporting = analysed(tmp_path / "reporting", costs(50), {}, conditions={"reporting": "step"})
    both = of_spark(reporting, analysed(tmp_path / "both", costs(30, 20), noise_ms=9.0))
    assert names(both.counted("training")) == ["", "allocator"]
    assert both.counted("training")[0].more.mean == pytest.approx(50, abs=1)
