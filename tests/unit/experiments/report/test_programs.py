"""Programs with a loop of their own: what the report claims with and without a digest of their weights."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import Analysis, analyse
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.campaign.exporting import find_run
from experiments.campaign.plan import PlannedRun
from experiments.campaign.script_files import given_files, script_files
from experiments.cluster.description import Dataset
from experiments.matrix.loading import load_matrix
from experiments.records.record import Record
from experiments.report.frames import load
from experiments.report.sections.conclusions import conclusions, weights_sentence
from experiments.report.sections.conditions import common_facts
from experiments.report.sections.programs import programs_table
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from experiments.util.files import sha256
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import NAME, campaign, record, spec
from training.spec import RunSpec

LAUNCHERS = {
    "ddp.py": '"""Words."""\n\n# A comment.\nimport os\n\nprint(\n    os.getcwd(),\n)\n',
    "spark.py": "import sys\n",
    "determined.py": "import json\n",
}


SCRIPT = b"""import trainbed
from trainbed import digest as proof

def train():
    trainbed.phase("forward")

train()
proof({})
"""


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
        "We ran train.py --epochs {epochs}, a script with a loop of its own (train.py, with its files: "
        "digest dddddddddddd; 500 samples an epoch, as declared, epochs 2, 1 thread per rank). Its "
        "optimiser, its precision and how it validates are its own, and not known here."
    ) in text
    text = text.replace(analysis.dissertation.work, "")
    for claim in ("learning rate", "warm-up steps", "weight decay", "fp32", "to validate", "batch 32"):
        assert claim not in text


def test_with_digests_the_stacks_are_compared(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, proven=True)
    assert weights_sentence(analysis.figures).startswith("Equal work gave equal weights, to the last bit")
    assert analysis.favoured["speed"].stacks == ("ddp",)
    assert any("times as long" in sentence for sentence in conclusions(analysis))


def counted(analysis: Analysis) -> list[list[Any]]:
    table = programs_table(analysis)
    return [[getattr(cell, "value", cell) for cell in row] for row in table.rows]


def test_what_a_stack_asks_is_counted_in_what_the_campaign_has_kept(tmp_path: Path) -> None:
    without = analysed(tmp_path / "a", proven=True)
    assert counted(without) == [["ddp", None, 1, 4, 1], ["spark", None, 1, 1, 1]]
    assert programs_table(without).after[0].startswith("Lines changed are not counted")

    made = open_campaign(next((tmp_path / "a").glob("made/*")))
    there = {"digest": "d" * 64, "files": {"files/train.py": sha256(SCRIPT), "files/data.csv": "0" * 64}}
    known = Campaign(made.folder, made.file.model_copy(update={"dataset": there}))
    with zipfile.ZipFile(made.folder / "script.zip", "w") as archive:
        archive.writestr(f"{'d' * 64}/train.py", SCRIPT)
    assert counted(analyse(known)) == [["ddp", 0, 1, 4, 1], ["spark", 0, 1, 1, 1]]
    assert programs_table(analyse(known)).after == [
        "4 lines of what was given import trainbed's optional calls or make one: the comparison asks for "
        "them, not a stack."
    ]
    # What ran is not what was given: then how much was changed is not known.
    there["files"] = {"files/train.py": "0" * 64}
    assert [row[1] for row in counted(analyse(known))] == [None, None]


def test_another_script_for_another_stack_is_compared_with_that_of_the_first(tmp_path: Path) -> None:
    plan, records = [], []
    for stack, name, digest in (("ddp", "train.py", "d" * 64), ("spark", "sparks/train.py", "c" * 64)):
        fields = script_run(stack, 1).model_dump()
        fields["work"] |= {"data_digest": digest, "data": {"script": name, "train": 500}}
        made = RunSpec.model_validate(fields)
        axes = {"stack": stack, "workers": 2, "epochs": 2, "seed": 1, "data.script": name}
        plan.append(PlannedRun(run_id=made.run_id, axes=axes, specification=made))
        records.append(record(stack, 2, 30.0, 45.0, **of_specification(made) | {"validation_correct": None}))
    made_up = campaign(tmp_path, plan, records)
    changed = SCRIPT.replace(b"train()\n", b"train(1)\nmore()\n")
    sets = [
        {"digest": "d" * 64, "files": {"files/train.py": sha256(SCRIPT)}},
        {"digest": "c" * 64, "files": {"files/sparks/train.py": sha256(changed)}},
    ]
    known = Campaign(made_up.folder, made_up.file.model_copy(update={"datasets": sets}))
    with zipfile.ZipFile(made_up.archive, "w") as archive:
        archive.writestr("training/launchers/ddp.py", LAUNCHERS["ddp.py"])
    with zipfile.ZipFile(made_up.folder / "script.zip", "w") as archive:
        archive.writestr(f"{'d' * 64}/train.py", SCRIPT)
        archive.writestr(f"{'c' * 64}/sparks/train.py", changed)
    assert [row[:3] for row in counted(analyse(known))] == [["ddp", 0, 1], ["spark", 2, 0]]


def test_a_campaign_keeps_the_scripts_python_files(tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    for name in ("train", "helpers/more.py", "helpers/words.txt", "another.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "mine.yml").write_text(
        "name: mine\nscript: train\ndata: {include: [helpers], train: 500}\n"
        "axes: {stack: [ddp], workers: [1], epochs: [1], seed: [1]}\n"
    )
    matrix = load_matrix(str(tmp_path / "mine.yml"))
    names = ("train", "helpers/more.py", "helpers/words.txt")
    prepared = Dataset.model_validate(
        {"digest": "d" * 64, "spec": {}, "files": {f"files/{name}": "0" * 64 for name in names}}
    )
    kept = script_files(matrix, [prepared])
    for name, content in kept.items():
        (tmp_path / name).write_bytes(content)
    expected = {"train": b"train", "helpers/more.py": b"helpers/more.py"}
    assert given_files(tmp_path) == {"d" * 64: expected}
    assert given_files(tmp_path / "helpers") == {}


def test_of_a_script_there_is_no_model_to_export(tmp_path: Path) -> None:
    analysed(tmp_path, proven=True)
    with pytest.raises(UserError, match=r"ran train\.py, which has a loop of its own: what it wrote is in"):
        find_run(tmp_path, script_run("ddp", 1).run_id, "made", NAME, Path)


def test_what_only_the_loop_heeds_is_refused() -> None:
    made = script_run("ddp", 1).model_dump()
    of_conditions = (("save", "last"), ("loader_workers", 1), ("deterministic", False))
    for name, value in (*of_conditions, ("evaluation_batch", 64)):
        with pytest.raises(ValueError, match=rf"train\.py has a loop of its own, which does not heed {name}"):
            RunSpec.model_validate(made | {"conditions": {name: value}})
    of_work = (("checkpoint_every_epochs", 1), ("gradient_sync", "bf16"), ("schedule", "cosine"))
    of_steps = (("padding", "none"), ("grouping", "length"), ("dropout_draws", "16_bit"))
    for name, value in (*of_work, *of_steps, ("precision", "bf16")):
        with pytest.raises(ValueError, match=rf"train\.py has a loop of its own, which does not heed {name}"):
            RunSpec.model_validate(made | {"work": made["work"] | {name: value}})
