"""Action plugin: note in launch.json how a run ended, from what its nodes noted and was fetched (`dest`).

If each node noted how its part of the run ended (launch-0.json, launch-1.json …), these notes are merged into
launch.json, unless one is missing. Returns its content as `launch`; empty if there is none.

`broken` names stacks that could not be used when the run began, with reasons: broken.json has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


def merge_notes(outputs: Path) -> None:
    """Merge the notes of the run's nodes into launch.json, unless one is missing."""
    path = outputs / "launch.json"
    noted = sorted(outputs.glob("launch-*.json"), key=lambda note: int(note.stem.partition("-")[2]))
    notes = [json.loads(note.read_text(encoding="utf-8")) for note in noted]
    if path.exists() or not notes or len(notes) != len(notes[0]["nodes"]):
        return
    # The first to fail: the others were ended because of it.
    failed = min((note for note in notes if note["exit_code"]), key=lambda note: note["ended"], default=None)
    merged = {
        **notes[0],
        "started": min(note["started"] for note in notes),
        "ended": max(note["ended"] for note in notes),
        "exit_code": failed["exit_code"] if failed else 0,
        "hosts": [host for note in notes for host in note.get("hosts", [])],
    }
    path.write_text(json.dumps(merged, indent=4) + "\n", encoding="utf-8")
    for note in noted:
        note.unlink()


def note_broken(outputs: Path, broken: dict[str, str]) -> None:
    """Note which stacks could not be used; nothing is written if there are none."""
    if broken:
        (outputs / "broken.json").write_text(json.dumps(broken, indent=4) + "\n", encoding="utf-8")


def launch_of(outputs: Path) -> dict[str, Any]:
    """Content of launch.json, with the end that the launcher reported, if it did."""
    path = outputs / "launch.json"
    if not path.exists():
        return {}
    launch: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    ended = launchers_end(outputs / "launcher.json")
    if ended is not None:
        launch["ended"] = ended
        path.write_text(json.dumps(launch, indent=4) + "\n", encoding="utf-8")
    return launch


def launchers_end(path: Path) -> float | None:
    """When the run ended according to its launcher, which may ask a scheduler; None if it does not say."""
    try:
        ended = json.loads(path.read_text(encoding="utf-8")).get("ended")
    except (FileNotFoundError, ValueError, AttributeError):
        return None  # missing or damaged, which is reported when the run is read
    return float(ended) if isinstance(ended, (int, float)) else None


class ActionModule(ActionBase):  # type: ignore[misc] # Ansible has no types
    """Works on the controller alone."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge the notes, unless this is check mode, in which there are none."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        outputs = Path(self._task.args["dest"])
        try:
            if not self._task.check_mode:
                merge_notes(outputs)
                note_broken(outputs, self._task.args.get("broken") or {})
            launch = {} if self._task.check_mode else launch_of(outputs)
        except (OSError, ValueError, KeyError) as error:
            raise AnsibleActionFail(f"How the run ended can't be read in {outputs}: {error}") from error
        return result | {"changed": bool(launch), "launch": launch}
