"""Digests: equal bytes, equal digest."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import torch

from training.util.digest import code_digest, weights_digest

ROOT = Path(__file__).parents[4]


def test_the_digest_sees_names_shapes_types_and_the_last_bit() -> None:
    state = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor(1.0)}
    digest = weights_digest(state)
    assert weights_digest(dict(reversed(state.items()))) == digest
    assert weights_digest({"b": state["b"].T.contiguous().T, "a": state["a"]}) == digest
    changed = state["b"].clone()
    changed[1, 2] = torch.nextafter(changed[1, 2], torch.tensor(9.0))
    others = [
        {"b": changed, "a": state["a"]},
        {"b": state["b"].reshape(3, 2), "a": state["a"]},
        {"b": state["b"], "c": state["a"]},
        {"b": state["b"].to(torch.bfloat16), "a": state["a"]},
    ]
    assert len({digest, *map(weights_digest, others)}) == 5


def test_the_code_has_the_same_digest_in_a_folder_and_in_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "training.zip"
    with zipfile.ZipFile(archive, "w") as package:
        for path in (ROOT / "training").rglob("*.py"):
            package.write(path, path.relative_to(ROOT))
    code = f"import sys; sys.path[0] = {str(archive)!r}; import training.util.digest as d; "
    code += "print(d.__file__, d.code_digest())"
    python = [sys.executable, "-c", code]
    done = subprocess.run(python, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    place, digest = done.stdout.split()
    assert place.startswith(str(archive))
    assert digest == code_digest()
