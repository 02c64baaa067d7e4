"""What stacks' roles say that they can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cluster.abilities import takes_some_slots, why_no_conditions, why_not_some_slots
from tests.unit.experiments.made_up_records import spec
from training.spec import Conditions


@pytest.mark.parametrize(
    ("workers", "slots", "offered", "refused"),
    [(1, 1, 2, False), (2, 2, 2, False), (2, 1, 1, False), (2, 1, 2, True)],
)
def test_a_stack_that_fills_workers_takes_several_only_whole(
    workers: int, slots: int, offered: int, refused: bool, tmp_path: Path
) -> None:
    declared = tmp_path / "made-up" / "meta" / "conditions.yml"
    declared.parent.mkdir(parents=True)
    work = spec("ddp", workers).work.model_copy(update={"slots_per_worker": slots})
    for said, some_refused in (("it fills them", refused), ("true", False)):
        declared.write_text(f"slots_per_worker:\n  some: {said}\n")
        reasons = why_not_some_slots("made-up", work, offered, tmp_path)
        assert len(reasons) == some_refused and all(said in reason for reason in reasons)
    declared.unlink()
    assert len(why_not_some_slots("made-up", work, offered, tmp_path)) == refused


def test_the_stacks_here_say_so() -> None:
    assert {stack: takes_some_slots(stack) for stack in ("ddp", "spark", "determined")} == {
        "ddp": True,
        "spark": True,
        "determined": False,
    }
    reasons = {
        stack: why_no_conditions(stack, Conditions(startup_hook="install"))
        for stack in ("ddp", "spark", "determined")
    }
    assert [stack for stack, found in reasons.items() if not found] == ["determined"]
    for stack in ("ddp", "spark"):
        (reason,) = reasons[stack]
        assert reason.startswith(f"{stack} can't have startup_hook install: it") and "script" in reason


def test_threads_are_a_stacks_own_where_its_role_can_leave_them(tmp_path: Path) -> None:
    asked = Conditions(threads="stack")
    for stack in ("ddp", "spark", "spark35", "determined"):
        assert why_no_conditions(stack, asked) == []
    said = "made-up can't have threads stack: its role does not say that it can"
    assert why_no_conditions("made-up", asked, tmp_path) == [said]
    assert why_no_conditions("made-up", Conditions(threads=2), tmp_path) == []


def test_an_empty_program_is_started_where_a_role_can(tmp_path: Path) -> None:
    asked = Conditions(program="empty")
    for stack in ("ddp", "spark", "spark35", "determined"):
        assert why_no_conditions(stack, asked) == []
    said = "made-up can't have program empty: its role does not say that it can"
    assert why_no_conditions("made-up", asked, tmp_path) == [said]


def test_python_workers_are_reused_where_there_are_some() -> None:
    asked = Conditions(python_workers="reused")
    stacks = ("ddp", "spark", "spark35", "determined")
    assert {stack for stack in stacks if not why_no_conditions(stack, asked)} == {"spark", "spark35"}
    (reason,) = why_no_conditions("ddp", asked)
    assert reason.startswith("ddp can't have python_workers reused: it has no tasks")


def test_the_newest_libraries_are_outside_of_containers() -> None:
    stacks = ("ddp", "spark", "spark35", "determined")
    asked = Conditions(libraries="newest")
    assert {stack for stack in stacks if not why_no_conditions(stack, asked)} == {"spark"}
    assert why_no_conditions("ddp", asked) == [
        "ddp can't have libraries newest in its containers: they have the image's libraries; take runtime "
        "native, too"
    ]
    for stack in ("spark35", "determined"):
        (reason,) = why_no_conditions(stack, asked)
        assert reason.startswith(f"{stack} can't have libraries newest: its ")
    native = Conditions(libraries="newest", runtime="native")
    assert why_no_conditions("ddp", native) == why_no_conditions("ddp", Conditions()) == []
