"""Whoever waits for a data set sees rows being counted on the node."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from experiments.cluster.prepared_so_far import PreparedSoFar
from tests.unit.experiments.made_up_workplace import Workplace, wait_until

ROWS = "tokenising train: 51,200 of 100,000, 4,100/s"


def test_the_terminal_shows_the_rows_that_are_prepared(workplace: Workplace) -> None:
    workplace.behaviour(prepare_seconds=30, prepare_says=ROWS)
    terminal, output = os.openpty()
    process = workplace.start("plan", "small", output=output)
    os.close(output)
    said, end = "", time.monotonic() + 25
    while f"preparing the data set: {ROWS}" not in said and time.monotonic() < end:
        said += os.read(terminal, 4096).decode(errors="replace")
    process.terminate()
    process.wait(timeout=20)
    os.close(terminal)
    assert f"preparing the data set: {ROWS}" in said


def test_only_a_line_that_counts_is_shown_and_none_of_an_earlier_preparation(tmp_path: Path) -> None:
    log, follow = tmp_path / "prepare.log", tmp_path / "follow.json"
    log.write_text(f"{ROWS}\n", encoding="utf-8")
    rows = PreparedSoFar(follow)
    try:
        assert rows.text() == ""
        follow.write_text(json.dumps({"shell": ["bash", "-c"], "log": str(log)}), encoding="utf-8")
        assert rows.text() == ""
        lines = [*["reading rows: 5,000, 410/s"] * 2, "Traceback (most recent call last):"]
        for said, shown in zip(lines, (lines[0], lines[1], ""), strict=True):

            def comes(said: str = said, shown: str = shown) -> bool:
                with log.open("a", encoding="utf-8") as file:
                    file.write(f"{said}\n")
                return rows.text() == shown

            wait_until(comes)
    finally:
        rows.stop()
