"""A fault that chance chose slows one of two equal launches down, and the analysis names it."""

from __future__ import annotations

import random
import secrets
from pathlib import Path

import pytest

from tests.blind.faults import draw
from tests.blind.launch import UnavailableError
from tests.blind.trial import described, trial

pytestmark = pytest.mark.wide


def test_a_hidden_cause_is_named(tmp_path: Path) -> None:
    seed = secrets.randbelow(1_000_000)
    print(f"To repeat this: python -m tests.blind --seed {seed}")
    plan = draw(seed)
    try:
        verdict = trial(plan, tmp_path, random.Random(f"{seed} {plan.kind} {plan.name}"), print)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert verdict.right, described(verdict)
