"""The marks that ranks left of their starts: whether something started a run's ranks more than once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from experiments.records.outputs import DamagedOutput
from experiments.records.record import Start
from experiments.util.words import listed
from training.spec import explain

FILES: Final = "starts-*.jsonl"


def read_starts(outputs: Path) -> list[Start]:
    """All starts of all ranks, by rank and in their order; without names of nodes.

    Raises:
        DamagedOutput: a mark can't be read.
    """
    starts: list[Start] = []
    for path in outputs.glob(FILES):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            starts += [Start.model_validate_json(line, extra="ignore") for line in lines]
        except (OSError, UnicodeError) as error:
            raise DamagedOutput(f"{path.name} can't be read: {error}.") from error
        except ValidationError as error:
            raise DamagedOutput(explain(error, f"{path.name}, as the run left it,")) from error
    return sorted(starts, key=lambda start: (start.rank, start.started))


def start_faults(starts: Sequence[Start], world_size: int) -> list[str]:
    """Ranks without a mark of their start, and marks of ranks that do not exist, a sentence each."""
    found = {start.rank for start in starts}
    faults = []
    if missing := sorted(set(range(world_size)) - found):
        faults.append(f"Ranks without a mark of their start: {', '.join(map(str, missing))}.")
    if unknown := sorted(found - set(range(world_size))):
        faults.append(f"Starts of ranks that do not exist: {', '.join(map(str, unknown))}.")
    return faults


def why_disturbed(starts: Sequence[Start], resumed_after: int | None = None) -> str | None:
    """What happened if a rank was started more than once, in one sentence; None if none was.

    Args:
        starts: of all ranks.
        resumed_after: the step of the checkpoint that training went on from; None = it began anew.
    """
    ranks: dict[int, list[Start]] = {}
    for start in starts:
        ranks.setdefault(start.rank, []).append(start)
    again = {rank: each for rank, each in ranks.items() if len(each) > 1}
    if not again:
        return None
    most = max(again.values(), key=lambda each: (len(each), each[-1].started - each[0].started))
    who = f"rank {most[0].rank}" if len(again) == 1 else f"{len(again)} ranks"
    example = f"rank {most[0].rank} " if len(again) > 1 else ""
    happened = listed([f"on {start.node or start.host} at {_moment(start)} by {start.by}" for start in most])
    rebooted = _rebooted(starts)
    between = f"; {listed(rebooted)} rebooted in between" if rebooted else ""
    went_on = "" if resumed_after is None else f" Training went on from step {resumed_after}."
    lost = max(each[-1].started - each[0].started for each in again.values())
    return (
        f"Something started {who} more than once ({example}{happened}{between}): the last start came "
        f"{lost:.1f} s after the first, and the run's times include that.{went_on}"
    )


def _moment(start: Start) -> str:
    return datetime.fromtimestamp(start.started, UTC).strftime("%H:%M:%S UTC")


def _rebooted(starts: Sequence[Start]) -> list[str]:
    """Nodes that rebooted between two starts."""
    boots: dict[str, set[str]] = {}
    for start in starts:
        boots.setdefault(start.node or start.host, set()).add(start.boot)
    return sorted(node for node, seen in boots.items() if len(seen) > 1)
