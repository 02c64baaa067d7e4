"""Fixtures for the tests of experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.experiments.made_up_workplace import Workplace


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    """A workplace of the test's own."""
    return Workplace(tmp_path)
