"""The parts of `make unit`, `make test` and `make test-wide`, in the order in which they run.

To move tests from one to the other, edit this table.
"""

from __future__ import annotations

import dataclasses
import enum

Command = tuple[str, ...]


class Nodes(enum.Enum):
    """The nodes that a part needs."""

    NONE = "no nodes"
    FRESH = "the shared testbed, made from nothing"
    SHARED = "the shared testbed, as it was left; made where it is not there"
    OWN = "testbeds of its own"


@dataclasses.dataclass(frozen=True)
class Part:
    """One part: what it proves, and by which commands."""

    name: str
    proves: str
    commands: tuple[Command, ...]
    nodes: Nodes = Nodes.NONE


def pytest(*arguments: str) -> Command:
    """Tests one after another."""
    return ("python", "-m", "pytest", "-p", "no:cacheprovider", "--durations=15", *arguments)


def on_all_cores(*arguments: str) -> Command:
    """Tests that need no nodes, side by side."""
    return pytest("--numprocesses=auto", "--dist=worksteal", *arguments)


NOT_WIDE = ("-m", "not wide")
WIDE = ("-m", "wide")

#: tests/unit/conftest.py says what is slow.
FAST = ("-m", "not wide and not slow")

UNIT = (
    # The roles' tests come apart: Ansible's modules patch the interpreter in a way that torch does not bear.
    Part(
        "roles",
        "the roles' modules and scripts, but for what starts Ansible",
        (on_all_cores(*FAST, "tests/unit/roles"),),
    ),
    Part(
        "rest",
        "training, experiments and Determined's client, but for what starts ranks, browsers or matrices",
        (on_all_cores(*FAST, "tests/unit", "--ignore=tests/unit/roles"),),
    ),
)

TEST = (
    Part("lint", "style and types", (("tests/lint",),)),
    Part("roles", "the roles' modules and scripts", (on_all_cores(*NOT_WIDE, "tests/unit/roles"),)),
    Part(
        "experiments",
        "planning, records, figures, reports and screens, on made-up runs; this table",
        # First a browser, in which the report is looked at.
        (
            ("tests/browser",),
            on_all_cores(
                *NOT_WIDE,
                "tests/unit/experiments",
                "tests/unit/test_parts.py",
                "tests/unit/test_connections.py",
                "tests/unit/test_stack_names.py",
            ),
        ),
    ),
    Part(
        "training",
        "the training job, by ranks on this machine; Determined's client, against a stand-in",
        (on_all_cores(*NOT_WIDE, "tests/unit/training", "tests/unit/determined"),),
    ),
    # It installs the engine where there is none.
    Part(
        "loop",
        "the whole loop from nothing: nodes, provisioning, verifying, runs of every stack, the report",
        (pytest(*NOT_WIDE, "tests/e2e/test_loop.py"),),
        Nodes.FRESH,
    ),
    Part(
        "gpus",
        "what is decided about GPUs, on nodes that have none",
        (pytest(*NOT_WIDE, "tests/e2e/test_gpus.py"),),
        Nodes.SHARED,
    ),
    Part(
        "taking-down",
        "that a testbed leaves nothing but caches",
        (pytest(*NOT_WIDE, "tests/e2e/test_taking_down.py"),),
        Nodes.SHARED,
    ),
)

TEST_WIDE = (
    Part(
        "kills",
        "ranks killed at 50 places, and the weights all the same",
        (pytest(*WIDE, "tests/unit/training"),),
    ),
    Part(
        "inventories",
        "another inventory, and nodes of the next release",
        (pytest(*WIDE, "tests/e2e/test_wide.py"),),
        Nodes.OWN,
    ),
    Part(
        "engines",
        "nodes on cgroup v2, and an engine that is killed",
        (pytest(*WIDE, "tests/e2e/test_engines.py"),),
        Nodes.OWN,
    ),
    Part(
        "conformance",
        "every stack does what all must do",
        (pytest(*WIDE, "-k", "stack_conforms", "tests/e2e/test_conformance.py"),),
        Nodes.OWN,
    ),
    Part(
        "toys",
        "a toy stack from outside the checkout does so too; broken toys fail the right checks",
        (pytest(*WIDE, "-k", "toy", "tests/e2e/test_conformance.py"),),
        Nodes.OWN,
    ),
    # What shares one testbed comes last: it keeps it to the end, and disks have no room for several.
    Part(
        "users",
        "runs that begin at once: two users, and runs side by side",
        (pytest(*WIDE, "tests/e2e/test_two_users.py"),),
        Nodes.SHARED,
    ),
    Part(
        "conditions",
        "other ways of launching and feeding the same training",
        (pytest(*WIDE, "tests/e2e/test_conditions.py"),),
        Nodes.SHARED,
    ),
    Part(
        "faults",
        "a rank that is killed, and a link that is slow",
        (pytest(*WIDE, "tests/e2e/test_loop.py"),),
        Nodes.SHARED,
    ),
    Part(
        "determined",
        "Determined's faults, its database and the way back from a dump",
        (pytest(*WIDE, "tests/e2e/test_determined.py"),),
        Nodes.SHARED,
    ),
    Part(
        "resuming",
        "a matrix that is resumed after a reboot, and after full disks",
        (pytest(*WIDE, "tests/e2e/test_going_on.py"),),
        Nodes.SHARED,
    ),
)

VERBS = {"unit": UNIT, "test": TEST, "test-wide": TEST_WIDE}
