"""PyTorch DDP: torchrun starts this module once for each rank.

torchrun ... -m training.launchers.ddp --spec spec.json --data DIR --out DIR
"""

from training.rank import launch_rank

if __name__ == "__main__":
    launch_rank("One rank of a run, started by torchrun.")
