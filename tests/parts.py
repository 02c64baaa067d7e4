"""The parts of `make unit`, `make test` and `make test-wide`, in the order in which they run.

To move tests from one to another, edit this table.
"""

from __future__ import annotations

import dataclasses
import enum

from tests.stacks import declared

Command = tuple[str, ...]


class Nodes(enum.Enum):
    """The nodes that a part needs."""

    NONE = "no nodes"
    FRESH = "the shared testbed, made from nothing"
    SHARED = "the shared testbed, as it was left; made if missing"
    CROWD = "a testbed of four workers with two slots each; made if missing"
    VIRTUAL = "three virtual machines; made if missing"
    OWN = "testbeds of its own"


@dataclasses.dataclass(frozen=True)
class Part:
    """One part: what it proves, and with which commands."""

    name: str
    proves: str
    commands: tuple[Command, ...]
    nodes: Nodes = Nodes.NONE


def pytest(*arguments: str) -> Command:
    """The command that runs tests one after another."""
    return ("python", "-m", "pytest", "-p", "no:cacheprovider", "--durations=15", *arguments)


def on_all_cores(*arguments: str) -> Command:
    """The command that runs tests in parallel; they must need no nodes."""
    return pytest("--numprocesses=auto", "--dist=worksteal", *arguments)


NOT_WIDE = ("-m", "not wide")
WIDE = ("-m", "wide")

#: tests/unit/conftest.py says which tests are slow.
FAST = ("-m", "not wide and not slow")

UNIT = (
    # The roles' tests run separately: Ansible's modules patch the interpreter in a way that breaks torch.
    Part(
        "roles",
        "the roles' modules and scripts, except tests that start Ansible",
        (on_all_cores(*FAST, "tests/unit/roles"),),
    ),
    Part(
        "rest",
        "training, experiments and Determined's client, except tests that start ranks, browsers or matrices",
        (on_all_cores(*FAST, "tests/unit", "--ignore=tests/unit/roles"),),
    ),
)

TEST = (
    Part("lint", "style and types", (("tests/lint",),)),
    Part(
        "roles",
        "the roles' modules and scripts",
        (on_all_cores(*NOT_WIDE, "tests/unit/roles", "tests/unit/testbed_vm"),),
    ),
    Part(
        "experiments",
        "planning, records, figures, reports and screens, on made-up runs; this table of parts",
        # First a browser, for the tests of the report's page.
        (
            ("tests/browser",),
            on_all_cores(
                *NOT_WIDE,
                "tests/unit/experiments",
                "tests/unit/inventory",
                "tests/unit/test_parts.py",
                "tests/unit/test_connections.py",
                "tests/unit/test_links.py",
                "tests/unit/test_stack_names.py",
                "tests/unit/blind",
            ),
        ),
    ),
    Part(
        "training",
        "the training job, with ranks on this machine; Determined's client, against a stand-in",
        (on_all_cores(*NOT_WIDE, "tests/unit/training", "tests/unit/determined", "tests/unit/benchmarks"),),
    ),
    # This part installs Docker's engine if it is missing.
    Part(
        "loop",
        "the whole loop from nothing: nodes, provisioning, verifying, runs of every stack, the report",
        (pytest(*NOT_WIDE, "tests/e2e/test_loop.py"),),
        Nodes.FRESH,
    ),
    Part(
        "gpus",
        "decisions about GPUs, on nodes without any",
        (pytest(*NOT_WIDE, "tests/e2e/test_gpus.py"),),
        Nodes.SHARED,
    ),
    Part(
        "taking-down",
        "a testbed that is taken down leaves nothing but caches",
        (pytest(*NOT_WIDE, "tests/e2e/test_taking_down.py"),),
        Nodes.SHARED,
    ),
)

TEST_WIDE = (
    Part(
        "kills",
        "ranks killed at 50 points, and the same weights; compiled models of two ranks and of any length",
        (pytest(*WIDE, "tests/unit/training"),),
    ),
    Part(
        "hidden-causes",
        "a hidden fault, drawn by chance, is named as what slows one of two equal launches down",
        (pytest(*WIDE, "tests/blind"),),
    ),
    Part(
        "inventories",
        "another inventory, and nodes on the next Debian release",
        (pytest(*WIDE, "tests/e2e/test_wide.py"),),
        Nodes.OWN,
    ),
    Part(
        "cuda-build",
        "the CUDA build of the environment on nodes without GPUs (50 GB, other testbeds down)",
        (pytest(*WIDE, "tests/e2e/test_cuda_build.py"),),
        Nodes.OWN,
    ),
    Part(
        "unlike",
        "workers that differ: equal weights, refusals in the plan, and what each had in the records",
        (pytest(*WIDE, "tests/e2e/test_unlike.py"),),
        Nodes.OWN,
    ),
    Part(
        "engines",
        "nodes on cgroup v2, and a killed engine",
        (pytest(*WIDE, "tests/e2e/test_engines.py"),),
        Nodes.OWN,
    ),
    Part(
        "crowd",
        "four workers with two slots each, and a stack from outside the checkout, are set up and verified",
        (pytest(*WIDE, "-k", "crowd_is", "tests/e2e/test_conformance.py"),),
        Nodes.CROWD,
    ),
    *(
        Part(
            f"{stack}-conforms",
            f"{stack} does what every stack must do",
            (pytest(*WIDE, "-k", f"stack_conforms[{stack}]", "tests/e2e/test_conformance.py"),),
            Nodes.CROWD,
        )
        for stack in declared()
    ),
    Part(
        "toys",
        "a toy stack from outside the checkout conforms; broken toys fail the right checks",
        (pytest(*WIDE, "-k", "toy", "tests/e2e/test_conformance.py"),),
        Nodes.CROWD,
    ),
    Part(
        "workloads",
        "every workload on every stack, two slots on two workers as one on four; scripts of others",
        (pytest(*WIDE, "tests/e2e/test_workloads.py"),),
        Nodes.CROWD,
    ),
    *(
        Part(
            name,
            proves,
            (pytest(*WIDE, "-k", name.replace("-", "_"), "tests/e2e/test_virtual.py"),),
            Nodes.VIRTUAL,
        )
        for name, proves in (
            (
                "machines-nodes",
                "three virtual machines, as rough as real ones, get Docker and the environment",
            ),
            ("machines-provision", "they get the image, and DDP"),
            ("machines-stacks", "the other stacks are added to them"),
            ("machines-again", "provisioning them again changes nothing, and they are verified"),
            ("machines-run", "every stack trains on them, before and after a reboot of all"),
            (
                "machines-return",
                "they come back after a power cut, and testbeds go without a trace while others stay",
            ),
        )
    ),
    Part(
        "machines-emulated",
        "machines of the next Debian release, emulated: AppArmor, nftables, cpuset and check mode",
        (pytest(*WIDE, "-k", "machines_emulated", "tests/e2e/test_virtual.py"),),
        Nodes.OWN,
    ),
    # Parts on the shared testbed come last: it is kept to the end, and disks have no room for several.
    Part(
        "users",
        "simultaneous runs: two users, and runs side by side; a training that is submitted from a worker",
        (pytest(*WIDE, "tests/e2e/test_two_users.py", "tests/e2e/test_elsewhere.py"),),
        Nodes.SHARED,
    ),
    Part(
        "members",
        "an inventory that changes: nodes renamed, gone and back, a master that is a worker, one node alone",
        (pytest(*WIDE, "tests/e2e/test_members.py"),),
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
        "a killed rank, and a slow link",
        (pytest(*WIDE, "tests/e2e/test_loop.py"),),
        Nodes.SHARED,
    ),
    Part(
        "determined",
        "Determined's runs and searches, its database and restoring a dump",
        (pytest(*WIDE, "tests/e2e/test_determined.py"),),
        Nodes.SHARED,
    ),
    Part(
        "determined-faults",
        "what is done to Determined in a run; another password, certificate and build of its packages",
        (pytest(*WIDE, "tests/e2e/test_determined_faults.py"),),
        Nodes.SHARED,
    ),
    Part(
        "determined-setup",
        "Determined taken out with and without its data, and installed again; its passwords set anew",
        (pytest(*WIDE, "tests/e2e/test_determined_setup.py"),),
        Nodes.SHARED,
    ),
    Part(
        "resuming",
        "a matrix resumed after a reboot, and after full disks; a provisioning after its controller was lost",
        (pytest(*WIDE, "tests/e2e/test_going_on.py"),),
        Nodes.SHARED,
    ),
)

VERBS = {"unit": UNIT, "test": TEST, "test-wide": TEST_WIDE}
