"""Every stack conforms, even a toy from outside the checkout; broken toys fail the right checks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.e2e.testbeds import TOY, Testbed
from tests.stacks import declared

pytestmark = pytest.mark.wide

PEERS = {f"test_the_same_weights_as_its_peer[{number}]" for number in ("one", "two", "all")}
SEED = """\
import training.util.seeds

derive = training.util.seeds.derive_seed
training.util.seeds.derive_seed = lambda seed, *purpose: derive(seed + 1, *purpose)

if __name__"""
#: How long a stack's conformance may take: on slow cores it takes up to half an hour.
CONFORMANCE_S = 3600
#: For each fault: the toy's file, the text to replace, its replacement, the checks to run, and those of them
#: that must fail.
BROKEN = {
    "another seed": ("training/launchers/toy.py", "if __name__", SEED, "as_its_peer or interrupt", PEERS),
    "an exit code that is swallowed": (
        "roles/toy/vars/main.yml",
        'exit "$code"',
        "exit 0",
        "that_fails or interrupt",
        {"test_a_run_that_fails_is_a_record_with_its_reason"},
    ),
}


def outcomes(bed: Testbed, stack: str, *arguments: str) -> dict[str, str]:
    """How each check of a stack ended: passed, failed, error or skipped."""
    command = ("make", "--no-print-directory", "conformance", f"STACK={stack}", *arguments)
    bed.run(*command, check=False, timeout=CONFORMANCE_S)
    found = {}
    for case in ElementTree.parse(bed.root / "results" / "conformance" / f"{stack}.xml").iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.attrib["name"]] = {"failure": "failed"}.get(kinds[0], kinds[0]) if kinds else "passed"
    return found


def test_the_toy_is_small() -> None:
    lines = [line for path in TOY.rglob("*") if path.is_file() for line in path.read_text().splitlines()]

    assert len(lines) < 100


def test_the_crowd_is_as_declared(crowd: Testbed) -> None:
    crowd.make("verify")


# Determined is the stand-in, unless its packages are given.
@pytest.mark.parametrize("stack", declared())
def test_a_stack_conforms(crowd: Testbed, stack: str) -> None:
    found = outcomes(crowd, stack)

    assert len(found) > 10
    assert {name: outcome for name, outcome in found.items() if outcome != "passed"} == {}


def test_the_toy_conforms(crowd: Testbed) -> None:
    found = outcomes(crowd, "toy")

    assert len(found) > 10
    assert {name: outcome for name, outcome in found.items() if outcome != "passed"} == {}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_toy_fails_the_right_check(crowd: Testbed, outside: Path, fault: str) -> None:
    file, text, broken, selection, checks = BROKEN[fault]
    path = outside / file
    whole = path.read_text(encoding="utf-8")
    assert whole.count(text) == 1
    path.write_text(whole.replace(text, broken), encoding="utf-8")
    try:
        found = outcomes(crowd, "toy", f"ARGS=-k '{selection}'")
    finally:
        path.write_text(whole, encoding="utf-8")

    assert {name for name, outcome in found.items() if outcome != "passed"} == checks
    assert "passed" in found.values()
