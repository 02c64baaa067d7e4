"""The front door: every target is phony, and in the list that `make help` shows."""

from __future__ import annotations

import re
import subprocess

import pytest

from experiments.util.paths import REPOSITORY

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([A-Za-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("verb", ["test", "test-wide"])
def test_real_packages_of_determined_are_handed_to_the_tests(verb: str) -> None:
    def shown(*arguments: str) -> str:
        command = ["make", "--dry-run", "--no-print-directory", verb, *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return done.stdout

    assert "TRAINBED_DETERMINED_PACKAGES" not in shown()
    assert "TRAINBED_DETERMINED_PACKAGES='/a folder' python -m tests.run" in shown(
        "determined_packages=/a folder"
    )


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((), ""),
        (
            ("DATA=/a folder", "ONLY=recording", "ARGS=--rounds 3"),
            '--data "/a folder" --only "recording" --rounds 3',
        ),
    ],
)
def test_the_benchmark_is_told_what_to_measure_on(given: tuple[str, ...], asked: str) -> None:
    command = ["make", "--dry-run", "bench", "DATA=", "ONLY=", "ARGS=", *given]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (told,) = re.findall("python -m tests.benchmarks(.*)", shown)
    assert told.split() == asked.split()


def test_every_target_is_phony() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony.split() == TARGETS


def test_every_target_says_what_it_does() -> None:
    assert re.findall(r"^([a-z-]+):.*## .", MAKEFILE, re.MULTILINE) == TARGETS


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ((), '{"uninstall_stack": "", "uninstall_data": ""}'),
        (("STACK=spark", "DATA=remove"), '{"uninstall_stack": "spark", "uninstall_data": "remove"}'),
    ],
)
def test_taking_a_stack_out_names_it_and_what_becomes_of_its_data(given: tuple[str, ...], asked: str) -> None:
    command = ["make", "--dry-run", "uninstall", "STACK=", "DATA=", *given, "ARGS=--check"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert f"ansible-playbook playbooks/uninstall.yml -e '{asked}' --check" in shown
