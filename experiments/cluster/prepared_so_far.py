"""How far the preparation of a data set on the master is, from its log there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from experiments.cluster.tail import Tail

FOLLOW: Final = "follow.json"  # the role `dataset` writes it where the playbook's other answers go
COUNTED: Final = re.compile(r"^\S.*: [\d,]+( of [\d,]+)?, [\d,]+/s$")  # as training.data.progress writes


class PreparedSoFar:
    """The last line that counts rows: `tokenising train: 51,200 of 100,000, 4,100/s`."""

    def __init__(self, follow: Path) -> None:
        """`follow`: the file that says how the master is reached and where the log is; it may come later."""
        self._follow = follow
        self._tail: Tail | None = None
        self._line = ""

    def text(self) -> str:
        """That line, or nothing."""
        if self._tail is None and self._follow.is_file():
            how = json.loads(self._follow.read_text(encoding="utf-8"))
            self._tail = Tail(how["shell"], how["log"], self._take, what_is_there=False)
            self._tail.start()
        return self._line

    def stop(self) -> None:
        """Ends the connection."""
        if self._tail is not None:
            self._tail.stop()

    def _take(self, line: str) -> None:
        self._line = line.strip() if COUNTED.match(line.strip()) else ""
