"""A script as people write them for torchrun: it knows nothing of whoever starts it."""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--fail-on-rank", type=int)
    parser.add_argument("--hang", action="store_true")
    given = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank} of {dist.get_world_size()} in {Path.cwd()}", flush=True)
    if given.fail_on_rank == rank:
        sys.exit(3)
    torch.manual_seed(given.seed)
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    points = torch.randn(64, 2)[rank :: dist.get_world_size()]
    inside = (points.norm(dim=1) < 1).long()
    for _ in range(given.epochs):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(points), inside).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    while given.hang:
        dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "weights.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # DistributedDataParallel keeps gloo's threads running here (torch 2.13), and one that still frees its
    # last work while the interpreter ends aborts the process (pytorch/pytorch#190489).
    sys.stdout.flush()
    os._exit(0)
