"""The script and its files, as they are."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any, Final

from training.data.prepare import Place, Preparation
from training.errors import DataError
from training.util.digest import file_digest
from training.workloads.script.settings import Data

FILES: Final = "files"  # folder of the data set


def prepare(data: Data, place: Place) -> Preparation:
    """The files that `data` names, copied with their paths.

    Raises:
        DataError: one is missing.
    """
    found: dict[str, Path] = {}
    for name in data.files:
        path = place.files / name
        if not path.exists():
            raise DataError(f"There is no {name} beside the matrix.")
        members = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        found |= {each.relative_to(place.files).as_posix(): each for each in members}
    if (place.files / data.script).is_dir():
        raise DataError(f"{data.script} is a folder: name the script in it.")
    if data.script not in found:
        raise DataError(f"There is no {data.script} beside the matrix.")

    def write(draft: Path) -> dict[str, Any]:
        for name, path in found.items():
            target = draft / FILES / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o644)
        for folder in (path for path in draft.rglob("*") if path.is_dir()):
            folder.chmod(0o755)
        return {"script": data.script}

    digests = "".join(f"{file_digest(path)} {name}\n" for name, path in found.items())
    return Preparation(
        source={
            "name": data.script,
            "sha256": hashlib.sha256(digests.encode()).hexdigest(),
            "note": "The user's own script, and the files that it was given.",
        },
        write=write,
    )
