"""The communication hook: bit for bit what DDP does by itself."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from tests.unit.training.training_helpers import Ranks
from training.distributed.collective import gather, join, leave, replicate, sum_over_ranks
from training.metrics.phases import Phases
from training.torchrun import TorchrunSession
from training.weights import weights_digest


class BareSession(TorchrunSession):
    """This rank's session, without a run."""

    def __init__(self) -> None:
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cpu")


def steps(replica: torch.nn.Module, rank: int) -> None:
    """A few steps of SGD on numbers of this rank's own."""
    optimiser = torch.optim.SGD(replica.parameters(), lr=0.1)
    numbers = torch.Generator().manual_seed(rank)
    for _ in range(4):
        replica(torch.randn(5, 300, generator=numbers)).square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    # Over 1 MB, where DDP's first bucket ends, so that there are several.
    return torch.nn.Sequential(torch.nn.Linear(300, 1000), torch.nn.Tanh(), torch.nn.Linear(1000, 100))


def compare(out: Path) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    plain, ours, phases = network(), network(), Phases()
    replica: torch.nn.Module = DistributedDataParallel(plain)
    steps(replica, session.rank)
    phases.begin("backward")
    replica = replicate(ours, session, partial(phases.begin, "exposed_sync"))
    steps(replica, session.rank)
    phases.settle()
    assert phases.seconds()["exposed_sync"] > 0
    assert weights_digest(plain.state_dict()) == weights_digest(ours.state_dict())
    assert weights_digest(plain.state_dict()) != weights_digest(network().state_dict())
    digests = gather(session, weights_digest(ours.state_dict()))
    assert len(set(digests)) == 1
    total = sum_over_ranks(session, torch.tensor([session.rank + 1.0]))
    assert total.item() == sum(range(1, session.world_size + 1))
    del replica
    leave(session)
    (out / f"{session.rank}").touch()


THEIRS = {"bf16": bf16_compress_hook, "fp16": fp16_compress_hook}


def compare_rounded(out: Path, sync: str) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    theirs, ours, exact = network(), network(), network()
    replica = DistributedDataParallel(theirs)
    # Wrapped: DDP recognises PyTorch's own hook by its name, and refuses it without GPUs.
    replica.register_comm_hook(None, lambda group, bucket: THEIRS[sync](group, bucket))
    steps(replica, session.rank)
    phases = Phases()
    phases.begin("backward")
    steps(replicate(ours, session, partial(phases.begin, "exposed_sync"), sync), session.rank)
    phases.settle()
    assert phases.seconds()["exposed_sync"] > 0
    phases.begin("backward")
    steps(replicate(exact, session, partial(phases.begin, "exposed_sync")), session.rank)
    assert weights_digest(theirs.state_dict()) == weights_digest(ours.state_dict())
    assert weights_digest(exact.state_dict()) != weights_digest(ours.state_dict())
    for one, other in zip(exact.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.01, atol=0.001)
    assert len(set(gather(session, weights_digest(ours.state_dict())))) == 1
    del replica
    leave(session)
    (out / f"{session.rank}").touch()


@pytest.mark.parametrize("sync", THEIRS)
def test_rounded_gradients_are_those_of_pytorchs_own_hook(ranks: Ranks, tmp_path: Path, sync: str) -> None:
    assert ranks(2, compare_rounded, (tmp_path, sync)) == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_hook_gives_the_weights_of_plain_ddp(ranks: Ranks, tmp_path: Path, world_size: int) -> None:
    assert ranks(world_size, compare, (tmp_path,)) == [0] * world_size
    assert len(list(tmp_path.iterdir())) == world_size


def test_one_rank_needs_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    session, model = BareSession(), network()
    join(session)
    assert replicate(model, session, lambda: None) is model
    assert gather(session, "x") == ["x"]
    leave(session)
