"""Which workers the plan gives a run, turn by turn, and where it can put rank 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.cluster.description import Cluster
from experiments.cluster.placement import given_nodes, why_no_rank_0
from tests.unit.experiments.made_up_records import ENVIRONMENT, spec
from training.spec import RunSpec


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """The role of a stack whose ranks go where the plan puts them, and that of one whose master chooses."""
    for stack, given in (("made", "true"), ("other", "its master chooses among all.")):
        (tmp_path / stack / "meta").mkdir(parents=True)
        declared = f"placement:\n  given: {given}\n"
        (tmp_path / stack / "meta" / "conditions.yml").write_text(declared, encoding="utf-8")
    return tmp_path


def cluster(*workers: str) -> Cluster:
    """A cluster with these workers; its master is called master, whether it is one of them or not."""
    usual = ENVIRONMENT.nodes["worker1"].model_dump()
    nodes: dict[str, Any] = dict.fromkeys(workers, usual)
    nodes["master"] = usual | {"groups": ["cluster", "master"]}
    about = ENVIRONMENT.model_dump() | {"nodes": nodes, "workers": list(workers), "settings": {}}
    about |= {"stacks": ["made"], "stacks_missing": {}, "shared_storage_path": "/srv", "shell": ["sh"]}
    return Cluster.model_validate(about)


def run(workers: int, rank_0: str = "any", stack: str = "made") -> RunSpec:
    usual = spec(stack, workers)
    conditions = usual.conditions.model_validate(usual.conditions.model_dump() | {"rank_0": rank_0})
    return usual.model_copy(update={"conditions": conditions})


THREE = ("a", "b", "c")
WORKS = ("a", "b", "master")  # the master is a worker, too


@pytest.mark.parametrize(
    ("specification", "workers", "by_turn"),
    [
        (run(1), THREE, [["a"], ["b"], ["c"], ["a"]]),
        (run(2), THREE, [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b"]]),
        (run(3), THREE, [["a", "b", "c"]] * 4),  # all take part anyway
        (run(1), WORKS, [["a"], ["b"], ["master"], ["a"]]),
        (run(2, "worker"), WORKS, [["a", "b"], ["b", "a"]] * 2),
        (run(2, "master"), WORKS, [["master", "a"], ["master", "b"]] * 2),
        (run(1, "master"), WORKS, [["master"]] * 4),
        (run(3, "master"), WORKS, [["master", "a", "b"]] * 4),
        (run(1, "worker"), ("a", "master"), [["a"]] * 4),
        (run(2, "worker"), THREE, [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b"]]),
    ],
)
def test_workers_take_turns_and_rank_0_is_on_the_first(
    specification: RunSpec, workers: tuple[str, ...], by_turn: list[list[str]], roles: Path
) -> None:
    assert [given_nodes(specification, cluster(*workers), turn, roles) for turn in range(4)] == by_turn


def test_a_stack_that_chooses_itself_is_given_nothing(roles: Path) -> None:
    assert given_nodes(run(1, stack="other"), cluster(*THREE), 1, roles) == []
    assert given_nodes(run(1, stack="unheard"), cluster(*THREE), 1, roles) == []


@pytest.mark.parametrize(
    ("specification", "workers", "reasons"),
    [
        (run(3), WORKS, []),
        (run(3, "master"), WORKS, []),
        (run(2, "worker"), WORKS, []),
        (run(3, "worker"), THREE, []),
        (run(2, stack="other"), THREE, []),
        (
            run(2, "master"),
            THREE,
            [
                "with rank_0 master the inventory's master must be one of its workers, too, and it is not; "
                "take an inventory like inventory/master-works"
            ],
        ),
        (
            run(3, "worker"),
            WORKS,
            [
                "with rank_0 worker the master takes no part, and of the 3 workers that it takes the "
                "inventory has 2 besides the master"
            ],
        ),
        (
            run(2, "worker", stack="other"),
            THREE,
            ["other can't have rank_0 worker: its master chooses among all"],
        ),
    ],
)
def test_where_rank_0_cannot_be_put_is_said(
    specification: RunSpec, workers: tuple[str, ...], reasons: list[str], roles: Path
) -> None:
    assert why_no_rank_0(specification, cluster(*workers), roles) == reasons
