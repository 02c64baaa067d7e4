"""How a script is called on a rank."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from training.data.prepared import Dataset
from training.program import Program
from training.spec import Work
from training.workloads.script.prepare import FILES
from training.workloads.script.settings import PLACEHOLDER, Data, Model

FOLDER: Final = "script"  # in the run's own


def program(work: Work, dataset: Dataset, run: Path) -> Program:
    """The script with its arguments, in a folder of the run, where it finds its files and may write.

    Raises:
        DataError: a file has changed since it was prepared.
    """
    assert isinstance(work.data, Data) and isinstance(work.model, Model)
    dataset.check()
    files, folder = (dataset.path / FILES).absolute(), (run / FOLDER).absolute()
    folder.mkdir(exist_ok=True)
    for path in files.iterdir():
        link = folder / path.name
        try:
            link.symlink_to(path)
        except FileExistsError:  # another rank's, or an earlier attempt's
            if link.readlink() != path:
                raise
    places = {"files": str(files), "out": str(folder)}

    def filled(text: str) -> str:
        return PLACEHOLDER.sub(lambda match: str(places.get(match[1]) or getattr(work, match[1])), text)

    arguments = [filled(text) for text in work.model.arguments]
    return Program(work.data.script, (sys.executable, work.data.script, *arguments), folder)
