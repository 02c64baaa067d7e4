"""Run the parts of a verb, all or some: `python -m tests.run unit|test|test-wide [PART ...]`, `?` lists them.

A run of all parts makes the shared testbed and takes it down at the end. A run of named parts, for an inner
loop, keeps it for the next call.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.testbeds import (
    ALONE,
    CROWD_FOLDER,
    PLACE,
    ROOT,
    SHARED_FOLDER,
    VIRTUAL_FOLDER,
    Testbed,
    crowd_testbed,
    kept_place,
    shared_testbed,
    virtual_testbed,
)
from tests.parts import VERBS, Nodes, Part
from tests.standins import given


@dataclasses.dataclass(frozen=True)
class Bed:
    """A testbed that several parts use."""

    make: Callable[[Path], Testbed]
    folder: str  # of the repository's copy that it is made from


SHARED = Bed(shared_testbed, SHARED_FOLDER)
BEDS: Mapping[Nodes, Bed] = {
    Nodes.FRESH: SHARED,
    Nodes.SHARED: SHARED,
    Nodes.CROWD: Bed(crowd_testbed, CROWD_FOLDER),
    Nodes.VIRTUAL: Bed(virtual_testbed, VIRTUAL_FOLDER),
}


def main() -> int:
    """Entry point."""
    verb, *rest = sys.argv[1:]
    wanted = " ".join(rest).replace(",", " ").split()
    if wanted == ["?"]:
        print(listed(VERBS[verb]))
        return 0
    parts = {part.name: part for part in VERBS[verb]}
    if unknown := [name for name in wanted if name not in parts]:
        print(f"make {verb} has no part {unknown[0]}: ONLY is one of {', '.join(parts)}", file=sys.stderr)
        return 2
    if verb != "unit":
        if found := given.fault():
            print(found, file=sys.stderr)
            return 2
        print(given.said(), flush=True)
    # Tests call make, which would take what this make was given for their own.
    for name in given.OF_MAKE:
        os.environ.pop(name, None)
    # A run that takes its nodes down at the end gets a place of its own.
    alone = bool(wanted) or verb == "unit"
    chosen = [parts[name] for name in wanted] or list(parts.values())
    if alone:
        return run(chosen, kept_place(), alone=True)
    with tempfile.TemporaryDirectory(prefix="trainbed-test-") as place:
        return run(chosen, Path(place) / "e2e", alone=False)


def listed(parts: tuple[Part, ...]) -> str:
    """The parts, one per line."""
    return "\n".join(f"  {part.name:<19} {part.proves} ({part.nodes.value})" for part in parts)


def run(parts: list[Part], place: Path, *, alone: bool) -> int:
    """Run parts one after another and print how long each took; if `alone`, keep the nodes."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", PLACE: str(place)}
    if alone:
        environment[ALONE] = "1"
    ended: list[str] = []
    kept: list[Bed] = []
    failed = False
    try:
        for part in parts:
            bed = BEDS.get(part.nodes)
            if not alone:
                # Disks have no room for several testbeds.
                for other in [each for each in kept if each is not bed]:
                    take_down(other, place)
                    kept.remove(other)
            # An earlier call may have left a testbed, finished or not.
            if bed and (part.nodes is Nodes.FRESH or (bed not in kept and not alone)):
                take_down(bed, place)
            if bed and bed not in kept:
                kept.append(bed)
            began = time.monotonic()
            status = run_one(part, environment)
            failed = failed or status != 0
            outcome = "failed" if status else "passed"
            ended.append(f"{part.name:<19} {outcome} after {(time.monotonic() - began) / 60:.1f} minutes")
            print(f"\n{ended[-1]}", flush=True)
            # Before more minutes are spent.
            if status and part.nodes is Nodes.NONE:
                break
    finally:
        if not alone:
            for bed in kept:
                take_down(bed, place)
    print("\n".join(["", *ended]), flush=True)
    for bed in kept if alone else ():
        testbed = bed.make(ROOT)
        # One part takes it down itself.
        if testbed.state.exists():
            kind = " TESTBED_KIND=vm" if testbed.virtual else ""
            command = f"make testbed-down TESTBED={testbed.name}{kind}"
            print(f"\nThe testbed is kept for the next call; {command} removes it.")
    return int(failed)


def run_one(part: Part, environment: Mapping[str, str]) -> int:
    """Run one part's commands up to the first that fails; return the last exit code."""
    for command in part.commands:
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if status:
            return status
    return 0


def take_down(bed: Bed, place: Path) -> None:
    """Take a testbed down, even one that an earlier call left, and remove what it is made from."""
    bed.make(ROOT).down()
    if (place / bed.folder).exists():
        shutil.rmtree(place / bed.folder)


if __name__ == "__main__":
    sys.exit(main())
