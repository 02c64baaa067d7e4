"""Programs with a loop of their own: what the report claims with and without a digest of their weights."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.between import lines_of_code
from experiments.campaign.exporting import find_run
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.frames import load
from experiments.report.sections.conclusions import conclusions, weights_sentence
from experiments.report.sections.conditions import common_facts
from experiments.report.sections.programs import programs_table
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec

LAUNCHERS = {
    "ddp.py": '"""Words."""\n\n# A comment.\nimport os\n\nprint(\n    os.getcwd(),\n)\n',
    "spark.py": "import sys\n",
    "determined.py": "import json\n",
}


def script_run(stack: str, seed: int) -> RunSpec:
    fields = spec(stack, 2, seed).model_dump()
    fields["work"] |= {
        "workload": "script",
        "data": {"script": "train.py", "train": 500},
        "model": {"arguments": ["--epochs", "{epochs}"]},
    }
    return RunSpec.model_validate(fields)


def analysed(folder: Path, *, proven: bool) -> Analysis:
    plan: list[PlannedRun] = []
    records: list[Record] = []
    for stack, seconds in (("ddp", 30.0), ("spark", 60.0)):
        for seed in (1, 2, 3, 4, 5):
            made = script_run(stack, seed)
            axes = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed}
            plan.append(PlannedRun(run_id=made.run_id, axes=axes, specification=made))
            changed: dict[str, Any] = of_specification(made) | {"validation_correct": None}
            if not proven:
                changed |= {"epochs": [], "validation_count": None, "weights_digest": None}
            new = record(stack, 2, seconds + seed / 10, seconds + 20, seed, **changed)
            unknown: dict[str, Any] = {"steps": None, "interop_threads": None}
            unknown |= {} if proven else {"weights_digest": None}
            ranks = [rank.model_dump() | unknown for rank in new.ranks]
            records.append(Record.model_validate(new.model_dump() | {"ranks": ranks}))
    made_up = campaign(folder, plan, records)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in LAUNCHERS.items():
            archive.writestr(f"training/launchers/{name}", text)
    made_up.archive.write_bytes(buffer.getvalue())
    write_report(made_up)
    assert len(load(made_up.folder).runs) == 10
    return analyse(made_up)


def test_without_a_digest_nothing_that_needs_equal_work_is_claimed(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, proven=False)
    said = weights_sentence(analysis.figures)
    assert said == "Equal work is not proven: the programs of 10 runs reported no digest of their weights."
    assert conclusions(analysis)[:1] == ["The stacks' times are not compared."]
    assert analysis.favoured["speed"].outcome == "unproven work"
    text = next(tmp_path.rglob("report.md")).read_text(encoding="utf-8")
    assert "Equal work is not proven, so nothing follows from these ratios." in text
    assert "can't tell: equal work is not proven" in text
    assert "times as long" not in text and "Beside the dissertation" not in text
    assert "train_s: seconds from the program's start to its end" in text


def test_of_a_scripts_own_settings_nothing_is_claimed(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, proven=True)
    text = next(tmp_path.rglob("report.md")).read_text(encoding="utf-8")
    facts = dict(common_facts(analysis.figures))
    assert facts["Script"] == f"train.py, with its files: digest {'d' * 12}"
    assert facts["Command"] == "train.py --epochs {epochs}"
    assert facts["Training"] == "500 samples an epoch, as declared, epochs 2, 1 thread per rank"
    assert (
        "We ran train.py --epochs {epochs}, a script with a loop of its own (train.py, with its files: digest "
        "dddddddddddd; 500 samples an epoch, as declared, epochs 2, 1 thread per rank). Its optimiser, its "
        "precision and how it validates are its own, and not known here."
    ) in text
    text = text.replace(analysis.dissertation.description, "")
    for claim in ("learning rate", "warm-up steps", "weight decay", "fp32", "to validate", "batch 32"):
        assert claim not in text


def test_with_digests_the_stacks_are_compared(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, proven=True)
    assert weights_sentence(analysis.figures).startswith("Equal work gave equal weights, to the last bit")
    assert analysis.favoured["speed"].stacks == ("ddp",)
    assert any("times as long" in sentence for sentence in conclusions(analysis))


def test_what_stands_between_a_stack_and_the_script_is_counted_in_the_campaigns_code(tmp_path: Path) -> None:
    assert lines_of_code(LAUNCHERS["ddp.py"].encode()) == 5
    table = programs_table(analysed(tmp_path, proven=True))
    found = [[getattr(cell, "value", cell) for cell in row] for row in table.rows]
    assert found == [["ddp", 1, 5, 1], ["spark", 1, 1, 1]]


def test_of_a_script_there_is_no_model_to_export(tmp_path: Path) -> None:
    analysed(tmp_path, proven=True)
    with pytest.raises(UserError, match=r"ran train\.py, which has a loop of its own: what it wrote is in"):
        find_run(tmp_path, script_run("ddp", 1).run_id, "made", None)


def test_what_only_the_loop_heeds_is_refused() -> None:
    made = script_run("ddp", 1).model_dump()
    for name, value in (("save", "last"), ("loader_workers", 1), ("deterministic", False)):
        with pytest.raises(ValueError, match=rf"conditions\.{name}: train\.py has a loop of its own"):
            RunSpec.model_validate(made | {"conditions": {name: value}})
    with pytest.raises(ValueError, match=r"can't write checkpoints of it"):
        RunSpec.model_validate(made | {"work": made["work"] | {"checkpoint_every_epochs": 1}})
