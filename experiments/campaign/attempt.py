"""One attempt at a run: its folder, its files, and whether its controller is still alive."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from experiments.records.record import RECORD, ConcurrentStart, Record, read_record
from experiments.util.errors import UserError
from experiments.util.files import json_text, write_whole
from experiments.util.processes import is_alive, self_identity

OUTPUTS: Final = "outputs"  # everything that was fetched from the cluster
VARIABLES: Final = "vars.json"
ANSIBLE_LOG: Final = "ansible.log"
STARTED: Final = "started.json"
ADOPTED: Final = "adopted.json"  # where it was made, if it was taken over from an earlier campaign
LIVE: Final = "live.jsonl"  # the run's events as they arrived here: `watch` reads them


def name_on_cluster(campaign: str, attempt: int) -> str:
    """The name of an attempt's folders on the nodes: another campaign may have had the same run."""
    return f"{campaign}-{attempt:02d}"


class Attempt:
    """One attempt's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def number(self) -> int:
        """1 for the first."""
        return int(self.folder.name)

    @property
    def recorded(self) -> bool:
        """Whether it has a record. Without one it is still running, or its controller died."""
        return (self.folder / RECORD).exists()

    @property
    def outputs(self) -> Path:
        """Where run.yml puts what it fetches."""
        return self.folder / OUTPUTS

    @property
    def variables(self) -> Path:
        """The variables that run.yml was called with."""
        return self.folder / VARIABLES

    @property
    def ansible_log(self) -> Path:
        """The output of run.yml."""
        return self.folder / ANSIBLE_LOG

    @property
    def live(self) -> Path:
        """The run's events as they arrived; the file is missing if none did."""
        return self.folder / LIVE

    def begin(self, moment: datetime, together: ConcurrentStart | None = None) -> None:
        """Notes when it started, its controller's process, and which runs started with it."""
        note: dict[str, Any] = {"started": moment.isoformat(), "controller": self_identity()}
        if together is not None:
            note["together"] = together.model_dump(mode="json")
        write_whole(self.folder / STARTED, json_text(note))

    @property
    def started(self) -> datetime:
        """When it started, or when its folder was made if its note is missing."""
        try:
            return datetime.fromisoformat(self._note()["started"])
        except (OSError, ValueError, KeyError, TypeError):
            return datetime.fromtimestamp(int(self.folder.stat().st_mtime), UTC)

    def origin(self, campaign: str) -> tuple[str, int]:
        """The campaign, and the number in it, that its record must name; `campaign` is the one it lies in.

        Raises:
            UserError: its note is damaged.
        """
        path = self.folder / ADOPTED
        try:
            note = json.loads(path.read_bytes())
            return str(note["campaign"]), int(note["attempt"])
        except FileNotFoundError:
            return campaign, self.number
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} can't be read ({error!r}); restore it from a backup.") from error

    @property
    def controller(self) -> dict[str, int | str] | None:
        """The process that made it, as `processes.self_identity` has it; None if its note is missing."""
        try:
            return dict(self._note()["controller"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def together(self) -> ConcurrentStart | None:
        """Which runs started with it; None if it was alone, or its note is missing."""
        try:
            return ConcurrentStart.model_validate(self._note()["together"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def abandoned(self) -> bool:
        """Whether its controller ended without recording it."""
        return not self.recorded and self.controller_gone

    @property
    def controller_gone(self) -> bool:
        """Whether its controller's process has ended."""
        try:
            return not is_alive(self._note()["controller"])
        except (OSError, ValueError, KeyError, TypeError):
            return True

    def _note(self) -> Any:
        return json.loads((self.folder / STARTED).read_bytes())

    def record(self) -> Record:
        """Its record (UserError if it is damaged)."""
        return read_record(self.folder / RECORD)
