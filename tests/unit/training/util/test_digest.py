"""Digests: equal bytes, equal digest."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from training.util.digest import code_digest

ROOT = Path(__file__).parents[4]


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
