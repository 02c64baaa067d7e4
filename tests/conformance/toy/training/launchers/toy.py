"""Ranks without any launcher: each is told its place by the environment."""

from training.rank import launch_rank

if __name__ == "__main__":
    launch_rank("One rank of a run, started by itself.")
