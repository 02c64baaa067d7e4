"""A fault that chance chose slows one of two equal launches down, and the analysis names it."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.blind.faults import FLOORS, draw
from tests.blind.launch import FACTORS, UnavailableError
from tests.blind.trial import BLOCKS, blind_test, described, made_up_job

pytestmark = pytest.mark.wide


def test_a_hidden_cause_is_named(tmp_path: Path) -> None:
    seed = secrets.randbelow(1_000_000)
    print(f"To repeat this: python -m tests.blind --seed {seed}")
    try:
        verdict = blind_test(draw(seed), FACTORS, made_up_job(tmp_path), BLOCKS, seed, FLOORS, print)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert verdict.right, described(verdict)
