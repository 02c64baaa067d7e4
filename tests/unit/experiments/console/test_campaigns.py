"""The list of campaigns: how far each came, and why one would not go on."""

from __future__ import annotations

import json

from tests.unit.experiments.documented_json import documented, fields
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace


def test_campaigns_are_listed_with_what_has_changed_since(workplace: Workplace) -> None:
    status, output = workplace.run("campaigns")
    assert status == 2 and "There are no campaigns in " in output
    workplace.matrix(MATRIX.replace("stack: [plain, slow]", "stack: [plain, absent]"))
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    workplace.matrix(MATRIX)
    assert workplace.run("run", "small")[0] == 0
    first, second = (folder.name for folder in workplace.campaigns())
    status, output = workplace.run("campaigns")
    assert status == 0
    rows = {
        line.split()[0]: " ".join(line.split()[1:]) for line in output.splitlines() if line.startswith("  2")
    }
    assert rows[first].endswith("1 1 2 unfinished no: the matrix")
    assert rows[second].endswith("4 0 0 complete yes")
    (workplace.root / "training" / "extra.py").write_text("CHANGED = True\n")
    assert "complete no: the training code" in " ".join(workplace.run("campaigns", "small")[1].split())

    printed = workplace.run("campaigns", "--json")[1]
    found = {each["campaign"]: each for each in json.loads(printed[printed.index("{\n") :])["campaigns"]}
    assert [run.split("-")[0] for run in found[first]["runs_impossible"]] == ["absent", "absent"]
    assert found[second]["differs"] == ["the training code"] and len(found[second]["runs_done"]) == 4
    (workplace.campaigns()[0] / "campaign.json").write_text("{")
    printed = workplace.run("campaigns", "--json")[1]
    assert "damaged" in printed[: printed.index("{\n")]
    assert fields(json.loads(printed[printed.index("{\n") :])) == documented("campaigns")
    status, output = workplace.run("campaigns", "other")
    assert status == 2 and "There are no campaigns of other in " in output
