"""A fault that chance chose slows one of two equal launches down, and the analysis names it."""

from __future__ import annotations

import random
import secrets
from pathlib import Path

import pytest

from tests.blind.faults import draw, sized
from tests.blind.launch import FACTORS, UnavailableError
from tests.blind.trial import BLOCKS, PAIRS, described, floors_of, made_up_job, trial

pytestmark = pytest.mark.wide


def test_a_hidden_cause_is_named(tmp_path: Path) -> None:
    seed = secrets.randbelow(1_000_000)
    print(f"To repeat this: python -m tests.blind --seed {seed}")
    job = made_up_job(tmp_path)
    floors = floors_of(job, PAIRS, print)
    name = draw(seed)
    order = random.Random(f"{seed} {name}")
    try:
        verdict = trial(sized(name, floors), floors, FACTORS, job, BLOCKS, order, print)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert verdict.right, described(verdict)
