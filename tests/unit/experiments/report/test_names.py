"""Names and values in reports."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.report.names import value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (False, "false"),
        ("in_loop", "in_loop"),
        ({"b": 1, "a": [2]}, '{"a": [2], "b": 1}'),
        ({"arguments": ["--epochs", "{epochs}", "--lines", "0"]}, "--epochs {epochs} --lines 0"),
        ({"arguments": ["--lines"], "more": 1}, '{"arguments": ["--lines"], "more": 1}'),
    ],
)
def test_values_are_written_as_people_would(value: Any, text: str) -> None:
    assert value_text(value) == text
