"""Run the parts of a verb, all or some: `python -m tests.run unit|test|test-wide [PART ...]`, `?` lists them.

All together they make the shared testbed themselves and take it down in the end. Some of them, for an inner loop,
keep it for the next call.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.testbeds import ALONE, PLACE, ROOT, kept_place, shared_testbed
from tests.parts import VERBS, Nodes, Part


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
    if wanted:
        return run([parts[name] for name in wanted], kept_place(), alone=True)
    if verb == "unit":
        return run(list(parts.values()), kept_place(), alone=True)
    place = Path(tempfile.mkdtemp(prefix="trainbed-test-"))
    try:
        take_down(place)
        return run(list(parts.values()), place, alone=False)
    finally:
        take_down(place)


def listed(parts: tuple[Part, ...]) -> str:
    """The parts, one a line."""
    return "\n".join(f"  {part.name:<13} {part.proves} ({part.nodes.value})" for part in parts)


def run(parts: list[Part], place: Path, *, alone: bool) -> int:
    """Run parts one after another and say how long each took."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", PLACE: str(place)}
    if alone:
        environment[ALONE] = "1"
    ended: list[str] = []
    failed = False
    for part in parts:
        if alone and part.nodes is Nodes.FRESH:
            take_down(place)
        began = time.monotonic()
        status = run_one(part, environment)
        failed = failed or status != 0
        outcome = "failed" if status else "passed"
        ended.append(f"{part.name:<13} {outcome} after {(time.monotonic() - began) / 60:.1f} minutes")
        print(f"\n{ended[-1]}", flush=True)
        # Before more minutes are spent.
        if status and part.nodes is Nodes.NONE:
            break
    print("\n".join(["", *ended]), flush=True)
    if alone and any(part.nodes in (Nodes.FRESH, Nodes.SHARED) for part in parts):
        name = shared_testbed(ROOT).name
        print(f"\nThe testbed is kept for the next call; make testbed-down TESTBED={name} removes it.")
    return int(failed)


def run_one(part: Part, environment: Mapping[str, str]) -> int:
    """Run one part's commands up to the first that fails, whose status is returned."""
    for command in part.commands:
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if status:
            return status
    return 0


def take_down(place: Path) -> None:
    """Take the shared testbed down, also one that an earlier call left, with the copy it was made from."""
    shared_testbed(ROOT).down()
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
