"""Run the blind test by hand: `python -m tests.blind --seed 3`; with a fault that you choose, or with all."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

from tests.blind.faults import FLOORS, draw, sized
from tests.blind.kept import keep, kept
from tests.blind.launch import FACTORS
from tests.blind.trial import BLOCKS, PAIRS, described, floors_of, made_up_job, trial

FAULTS = [*FACTORS, "hidden"]


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


def main() -> int:
    """Returns 0 if every right cause was named, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.blind", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="draws the fault and the order of the runs")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--fault", choices=FAULTS, help="instead of the drawn one")
    chosen.add_argument("--every", action="store_true", help="every fault, one after another")
    parser.add_argument(
        "--keep", type=Path, help="table (CSV) that gets the results; its trials are not repeated"
    )
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of 16 runs each, with all factors")
    parser.add_argument(
        "--factors", nargs="+", choices=FACTORS, default=FACTORS, help="the only ones to equalise"
    )
    parser.add_argument("--floors", type=float, default=FLOORS, help="noise floors that the fault costs")
    given = parser.parse_args()
    names = FAULTS if given.every else [given.fault or draw(given.seed)]
    done = {(row.seed, row.fault) for row in kept(given.keep)} if given.keep else set()
    factors = list(dict.fromkeys(given.factors))
    right = True
    with tempfile.TemporaryDirectory(prefix="trainbed-blind-") as folder:
        job = made_up_job(Path(folder))
        floors = floors_of(job, PAIRS, say)
        for name in names:
            if (given.seed, name) in done:
                continue
            order = random.Random(f"{given.seed} {name}")
            verdict = trial(sized(name, floors, given.floors), floors, factors, job, given.blocks, order, say)
            say(described(verdict))
            if given.keep:
                keep(given.keep, given.seed, verdict)
            right = right and verdict.right
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
