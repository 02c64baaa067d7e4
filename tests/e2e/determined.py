"""Determined on a testbed: its command line, its experiments and its slots."""

from __future__ import annotations

import csv

from tests.e2e.matrices import small
from tests.e2e.testbeds import Testbed

PASSWORD = "/etc/trainbed/determined/user-password"
TOKEN = "/etc/trainbed/determined/user-token"
DET = f"DET_USER=trainbed DET_PASS=$(cat {PASSWORD}) det"
PSQL = "runuser --user postgres -- psql --quiet --tuples-only --no-align --dbname"
TASKS = "docker ps --quiet --filter label=ai.determined.container.type=task-container"
ENDED = ("COMPLETED", "ERROR", "CANCELED")


def matrix_of(testbed: Testbed, name: str, epochs: int) -> str:
    """Write a matrix of runs on Determined only; returns `make`'s argument for it."""
    return f"MATRIX={small(testbed, name, stacks='determined', epochs=epochs)}"


def table(testbed: Testbed, command: str) -> list[dict[str, str]]:
    """What a command of `det` lists, row by row."""
    return list(csv.DictReader(testbed.node("master", f"{DET} {command} --csv").output.splitlines()))


def experiments(testbed: Testbed) -> dict[int, str]:
    """The state of every experiment by its number, oldest first."""
    found = table(testbed, "experiment list --all")
    return {int(each["ID"]): each["State"].removeprefix("STATE_") for each in sorted(found, key=number)}


def number(row: dict[str, str]) -> int:
    """The number of the experiment in a row of `det experiment list`."""
    return int(row["ID"])


def states(testbed: Testbed) -> list[str]:
    """States of all experiments, oldest first."""
    return list(experiments(testbed).values())


def slots(testbed: Testbed) -> int:
    """How many slots are offered; 0 if the master does not answer."""
    listed = testbed.node("master", f"{DET} slot list --json", check=False)
    return listed.output.count('"agent_id"') if listed.code == 0 else 0
