"""What belongs in the loop is in no workload, and the loop has no words for one (imports: pyproject.toml)."""

from __future__ import annotations

import ast
from pathlib import Path

from training.registry import DEFAULT, built_in, folder_name

TRAINING = Path(__file__).parents[4] / "training"
OF_THE_LOOP = {
    "all_reduce",
    "backward",
    "barrier",
    "clip_grad_norm_",
    "DistributedDataParallel",
    "init_process_group",
    "no_sync",
    "steps_per_epoch",
    "world_size",
    "zero_grad",
}
#: How scripts are told of their places, and tokens of texts are made by several ranks.
NAMED_TO_OTHERS = {"script/settings.py", "script/workload.py", "text_classification/in_run.py"}
#: What knows a workload by name: the default, the help of the command, and tokens made before ranks start.
KNOWING = {"registry.py", "__main__.py", "launchers/spark.py"}


def names(path: Path) -> set[str]:
    """All names, attributes and words in quotes of a module; docstrings are sentences, not words."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_what_belongs_in_the_loop_is_in_no_workload() -> None:
    folder = TRAINING / "workloads"
    modules = {str(path.relative_to(folder)): path for path in folder.rglob("*.py")}
    assert set(modules) > NAMED_TO_OTHERS
    found = {name: OF_THE_LOOP & names(path) for name, path in modules.items() if name not in NAMED_TO_OTHERS}
    assert {name: words for name, words in found.items() if words} == {}
    loop = set[str]().union(*(names(path) for path in TRAINING.glob("*.py")))
    assert {"backward", "DistributedDataParallel", "zero_grad"} <= loop | names(TRAINING / "loop.py")


def test_the_loop_has_no_words_for_a_workload() -> None:
    words = set(built_in()) | set(map(folder_name, built_in()))
    outside = [path for path in TRAINING.rglob("*.py") if TRAINING / "workloads" not in path.parents]
    knowing = {
        str(path.relative_to(TRAINING))
        for path in outside
        if words & {part for name in names(path) for part in name.replace("/", ".").split(".")}
    }
    assert knowing <= KNOWING
    assert DEFAULT in names(TRAINING / "registry.py")
