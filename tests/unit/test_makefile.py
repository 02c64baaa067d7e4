"""The front door: every target is phony, and in the list that `make help` shows."""

from __future__ import annotations

import re

from experiments.util.paths import REPOSITORY

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^([A-Za-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE)


def test_every_target_is_phony() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony.split() == TARGETS


def test_every_target_says_what_it_does() -> None:
    assert re.findall(r"^([a-z-]+):.*## .", MAKEFILE, re.MULTILINE) == TARGETS
