"""Ranks without any launcher: the environment tells each one its place."""

from training.rank import launch_rank

if __name__ == "__main__":
    launch_rank("One rank of a run, started by itself.")
