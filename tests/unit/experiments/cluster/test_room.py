"""Workers that are not alike: which of them have room for a run, and what is said of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.cluster.abilities import why_not_given_workers
from experiments.cluster.description import Cluster
from experiments.cluster.environment import Gpu, Node
from experiments.cluster.room import cores_used, differences, spare_cores, why_no_room, why_no_slow_worker
from tests.unit.experiments.made_up_records import ENVIRONMENT, spec
from training.spec import Conditions, RunSpec

ANYWHERE = "placement:\n  given: its master chooses\npseudo_gpus:\n  fewer: each task asks for one\n"
FIRST = "placement:\n  given: true\n"


def gpus(number: int, *, pseudo: bool = False) -> list[Gpu]:
    return [
        Gpu(
            index=str(at),
            uuid=f"GPU-{at}",
            name="declared" if pseudo else "Tesla T4",
            memory_mb=None,
            capability=None,
            mig=False,
            driver=None,
            pseudo=pseudo,
        )
        for at in range(number)
    ]


def cluster(*workers: dict[str, Any]) -> Cluster:
    """A cluster whose workers have these fields, and are otherwise equal."""
    usual = ENVIRONMENT.nodes["worker1"]
    nodes = {
        f"worker{at}": Node.model_validate(usual.model_dump() | each)
        for at, each in enumerate(workers, start=1)
    }
    about = ENVIRONMENT.model_dump() | {"nodes": nodes, "workers": list(nodes), "settings": {}}
    about |= {"stacks": ["made"], "stacks_missing": {}, "shared_storage_path": "/srv", "shell": ["sh"]}
    return Cluster.model_validate(about)


def run(workers: int, threads: int = 1, slots: int = 1, device: str = "cpu") -> RunSpec:
    usual = spec("made", workers)
    work = usual.work.model_copy(update={"slots_per_worker": slots})
    conditions = Conditions.model_validate({"threads": threads, "device": device})
    return usual.model_copy(update={"work": work, "conditions": conditions})


@pytest.mark.parametrize(
    ("declares", "specification", "workers", "reasons"),
    [
        # The inventory: the master with two cores is a worker, beside three with one.
        (ANYWHERE, run(4), [{"cores": 2}, *[{"cores": 1}] * 3], []),
        (
            ANYWHERE,
            run(4, threads=2),
            [{"cores": 2}, *[{"cores": 1}] * 3],
            ["it takes 2 cores of each worker, and worker2, worker3 and worker4 have 1 core"],
        ),
        # On the first worker there is room; but only one of the two goes there for sure.
        (FIRST, run(1, threads=2), [{"cores": 2}, {"cores": 1}], []),
        (
            ANYWHERE,
            run(1, threads=2),
            [{"cores": 2}, {"cores": 1}],
            [
                "it takes 2 cores of each worker, and worker2 has 1 core; made may put it on any worker: "
                "its master chooses"
            ],
        ),
        (
            FIRST,
            run(2, slots=2),
            [{"cores": 1}, {"cores": 1}, {"cores": 1}],
            ["it takes 2 cores of each worker, and worker1 and worker2 have 1 core"],
        ),
        (
            FIRST,
            run(3, threads=3),
            [{"cores": 1}, {"cores": 2}, {"cores": 4}],
            ["it takes 3 cores of each worker, and worker1 has 1 core and worker2 has 2 cores"],
        ),
        # A declared GPU for each slot, where a stack asks for them.
        (ANYWHERE, run(1, slots=2), [{"cores": 2, "gpus": gpus(2, pseudo=True)}], []),
        (FIRST, run(1, slots=2), [{"cores": 2, "gpus": gpus(1, pseudo=True)}], []),
        (ANYWHERE, run(1, slots=2), [{"cores": 2, "gpus": []}], []),
        (
            ANYWHERE,
            run(1, slots=2),
            [{"cores": 2, "gpus": gpus(1, pseudo=True)}],
            [
                "it takes 2 slots of each worker, and worker1 has 1 GPU (worker_pseudo_gpus): "
                "each task asks for one"
            ],
        ),
        # Real GPUs; each rank needs a core, however many threads it has.
        (FIRST, run(2, threads=8, slots=2, device="cuda"), [{"cores": 2, "gpus": gpus(2)}] * 2, []),
        (
            FIRST,
            run(2, slots=2, device="cuda"),
            [{"cores": 2, "gpus": gpus(2)}, {"cores": 1, "gpus": []}],
            [
                "it takes 2 cores of each worker, and worker2 has 1 core",
                "it takes 2 slots of each worker, and worker2 has no GPU",
            ],
        ),
    ],
)
def test_a_run_is_refused_where_a_worker_that_it_may_get_has_too_little(
    declares: str, specification: RunSpec, workers: list[dict[str, Any]], reasons: list[str], tmp_path: Path
) -> None:
    declared = tmp_path / "made" / "meta" / "conditions.yml"
    declared.parent.mkdir(parents=True)
    declared.write_text(declares, encoding="utf-8")

    assert why_no_room(specification, cluster(*workers), tmp_path) == reasons


def test_the_stacks_here_say_where_their_ranks_go() -> None:
    chosen = {stack: why_not_given_workers(stack) for stack in ("ddp", "spark", "determined")}
    assert chosen["ddp"] is None and chosen["spark"] and chosen["determined"]


def test_what_differs_is_said_and_what_is_alike_is_not() -> None:
    unlike = cluster({"cores": 2, "gpus": gpus(1)}, {"cores": 1, "memory_mb": 8000}).nodes
    assert differences(unlike) == [
        "cores (worker1 2, worker2 1)",
        "memory (worker1 23.5 GiB, worker2 7.8 GiB)",
        "GPUs (worker1 Tesla T4, worker2 none)",
    ]
    # A kernel keeps a little more or less of a machine's memory for itself.
    assert differences(cluster({"memory_mb": 24089}, {"memory_mb": 24060}).nodes) == []
    assert differences({}) == []


def test_cores_beyond_those_of_a_run_are_spare() -> None:
    nodes = cluster({"cores": 4}, {"cores": 2}).nodes
    assert spare_cores(nodes, cores_used(run(2, threads=1, slots=2))) == {"worker1": 2}
    assert spare_cores(nodes, cores_used(run(2, threads=4))) == {}


def test_a_slow_worker_takes_part_in_the_run() -> None:
    def slow(workers: int, device: str = "cpu") -> list[str]:
        usual = run(workers, device=device)
        conditions = Conditions.model_validate({"slow_worker": 0.5, "device": device})
        asked = usual.model_copy(update={"conditions": conditions})
        return why_no_slow_worker(asked, cluster({}, {}))

    assert slow(2) == [] and why_no_slow_worker(run(1), cluster({}, {})) == []
    assert slow(1) == ["slow_worker slows worker2, so the run must take all 2 workers, and it takes 1"]
    assert slow(2, device="cuda") == ["slow_worker limits processors, and this run is on GPUs"]
