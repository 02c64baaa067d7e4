"""Every worker computes as it should, and whether all compute alike: twenty steps with a known answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.nodes import cluster
from tests.stacks import ROOT

PROGRAM = (ROOT / "training" / "known_answer.py").read_text(encoding="utf-8")
KNOWN: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "nodes" / "known_answers.yml").read_text(encoding="utf-8")
)
#: What /proc/cpuinfo calls a processor's vendor, family and model; ARM has no such lines.
PROCESSOR = "awk -F ': ' '/^(vendor_id|cpu family|model)\\t/ {print $2} /^$/ {exit}' /proc/cpuinfo"


def ask(name: str, bits: str) -> dict[str, Any]:
    """A node's answer, with these kernels."""
    python = cluster.variables(name)["environment_path"] + "/bin/python"
    said = cluster.node(name).check_output("%s -c %s --bits %s", python, PROGRAM, bits)
    found: dict[str, Any] = json.loads(said)
    return found


@cluster.question("workers")
def machine(name: str) -> dict[str, Any]:
    """The answer with the kernels that suit the processor."""
    return ask(name, "machine")


@cluster.question("workers")
def portable(name: str) -> dict[str, Any]:
    """The answer with kernels that every processor has."""
    return ask(name, "portable")


def processor(name: str) -> str:
    """A node's processor, as the known answers name it; "" if /proc/cpuinfo does not, as on ARM."""
    kind = " ".join(cluster.node(name).check_output(PROCESSOR).split())
    return f"{kind} {machine(name)['instructions']}" if kind else ""


def has_avx2(name: str) -> bool:
    """Whether a node can have portable kernels."""
    return "avx2" in cluster.node(name).file("/proc/cpuinfo").content_string.split()


def first() -> str:
    """The worker that the others are compared with."""
    return next(iter(cluster.groups()["workers"]))


@pytest.mark.on("workers")
@cluster.asks(portable)
def test_portable_kernels_give_the_known_answer(name: str, told: Callable[[str], None]) -> None:
    if not has_avx2(name):
        pytest.skip(f"{name} has no AVX2, so it can't have bits: portable")
    answer = portable(name)
    known = KNOWN["portable"].get(answer["libraries"])
    if known is None and (name == first() or not has_avx2(first())):
        told(f"No answer is known for {answer['libraries']}: {name} ended with {answer['digest']}.")
        return
    known = known or portable(first())["digest"]
    assert answer["digest"] == known, f"{name} ({processor(name)}) ended with {answer['digest']}, not {known}"


@pytest.mark.on("workers")
@cluster.asks(machine)
def test_its_own_kernels_give_the_answer_that_is_known_of_its_processor(name: str) -> None:
    answer, kind = machine(name), processor(name)
    known = KNOWN["machine"].get(answer["libraries"], {}).get(kind)
    if known is None:
        pytest.skip(f"no answer is known of {kind or 'this processor'} and {answer['libraries']}")
    assert answer["digest"] == known, f"{name} ({kind}) ended with {answer['digest']}, not {known}"


@pytest.mark.on("workers")
@cluster.asks(machine)
def test_it_computes_as_the_first_worker_does(name: str, told: Callable[[str], None]) -> None:
    """Workers with other processors may differ: whoever compares their weights must know."""
    ours, theirs = machine(name)["digest"], machine(first())["digest"]
    kinds = [processor(each) or "unknown processor" for each in (name, first())]
    if kinds[0] == kinds[1] != "unknown processor":
        assert ours == theirs, f"{name} and {first()} are both {kinds[0]}, and ended with {ours} and {theirs}"
    elif ours != theirs:
        told(
            f"{name} ({kinds[0]}) computes with other last bits than {first()} ({kinds[1]}): runs on them "
            "end with equal weights only under bits: portable."
        )
