"""Names and values in reports."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.analysis.figures import Parts
from experiments.report.formats import NOTHING
from experiments.report.names import setting_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (False, "false"),
        ("in_loop", "in_loop"),
        ({"b": 1, "a": [2]}, '{"a": [2], "b": 1}'),
        ({"arguments": ["--epochs", "{epochs}", "--lines", "0"]}, "--epochs {epochs} --lines 0"),
        ({"arguments": ["--lines"], "more": 1}, '{"arguments": ["--lines"], "more": 1}'),
        (Parts({"layers": 2, "hidden": 64, "heads": 1}, ["heads", "hidden"]), "heads 1 and hidden 64"),
        (Parts({"layers": 2}, ["last_layer"]), NOTHING),
    ],
)
def test_values_are_written_as_people_would(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_settings_without_a_part_that_varies_are_left_out() -> None:
    plain, lean = ({"layers": 2}, {"layers": 2, "last_layer": "first_token"})
    parts = [Parts(value, ["last_layer"]) for value in (plain, lean)]
    texts = [setting_text({"model": each, "padding": "none"}) for each in parts]
    assert texts == ["padding none", "model last_layer first_token, padding none"]
    assert parts == [plain, lean]
