"""The same script with the three calls, and a module of its own beside it."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import trainbed  # type: ignore[import-not-found]  # put on the path by whoever starts it
from beside.names import NAME  # type: ignore[import-not-found]  # in the folder of the script


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.zeros(3)
    for epoch in range(1, given.epochs + 1):
        trainbed.phase("forward")
        weights += given.rate
        dist.all_reduce(weights)
        trainbed.phase("evaluation")
        trainbed.metrics(epoch, train_loss=1 / epoch, accuracy=0.5 + epoch / 10)
    trainbed.metrics(given.epochs, test_f1=0.25)
    trainbed.phase("other")
    trainbed.digest({"weights": weights + (rank if given.apart else 0)})
    if rank == 0:
        (given.out / NAME).write_text("done", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
