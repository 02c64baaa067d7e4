"""Run the parts of a verb, all or some: `python -m tests.run unit|test|test-wide [PART ...]`, `?` lists them.

A run of all parts makes the shared testbed and takes it down at the end. A run of named parts, for an inner
loop, keeps it for the next call.
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
    # A run that takes its nodes down at the end gets a place of its own.
    alone = bool(wanted) or verb == "unit"
    chosen = [parts[name] for name in wanted] or list(parts.values())
    if alone:
        return run(chosen, kept_place(), alone=True)
    with tempfile.TemporaryDirectory(prefix="trainbed-test-") as place:
        return run(chosen, Path(place) / "e2e", alone=False)


def listed(parts: tuple[Part, ...]) -> str:
    """The parts, one per line."""
    return "\n".join(f"  {part.name:<13} {part.proves} ({part.nodes.value})" for part in parts)


def run(parts: list[Part], place: Path, *, alone: bool) -> int:
    """Run parts one after another and print how long each took; if `alone`, keep the nodes."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", PLACE: str(place)}
    if alone:
        environment[ALONE] = "1"
    ended: list[str] = []
    failed = shared = False
    try:
        for part in parts:
            # An earlier call may have left a testbed, finished or not.
            if part.nodes is Nodes.FRESH or (part.nodes is Nodes.SHARED and not shared and not alone):
                take_down(place)
            shared = shared or part.nodes in (Nodes.FRESH, Nodes.SHARED)
            began = time.monotonic()
            status = run_one(part, environment)
            failed = failed or status != 0
            outcome = "failed" if status else "passed"
            ended.append(f"{part.name:<13} {outcome} after {(time.monotonic() - began) / 60:.1f} minutes")
            print(f"\n{ended[-1]}", flush=True)
            # Fail before the parts with nodes, which take far longer.
            if status and part.nodes is Nodes.NONE:
                break
    finally:
        if shared and not alone:
            take_down(place)
    print("\n".join(["", *ended]), flush=True)
    if shared and alone:
        name = shared_testbed(ROOT).name
        print(f"\nThe testbed is kept for the next call; make testbed-down TESTBED={name} removes it.")
    return int(failed)


def run_one(part: Part, environment: Mapping[str, str]) -> int:
    """Run one part's commands up to the first that fails; return the last exit code."""
    for command in part.commands:
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if status:
            return status
    return 0


def take_down(place: Path) -> None:
    """Take down the shared testbed, even one left by an earlier call, and the copy it was made from."""
    shared_testbed(ROOT).down()
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
