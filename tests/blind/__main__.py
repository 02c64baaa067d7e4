"""Run the blind test by hand: `python -m tests.blind --seed 3`, or with a fault that you choose."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.blind.faults import FLOORS, draw
from tests.blind.launch import FACTORS
from tests.blind.trial import BLOCKS, blind_test, described, made_up_job


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


def main() -> int:
    """Returns 0 if the right cause was named, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="draws the fault and the order of the runs")
    parser.add_argument("--fault", choices=[*FACTORS, "hidden"], help="instead of the drawn one")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of 16 runs each, with all factors")
    parser.add_argument(
        "--factors", nargs="+", choices=FACTORS, default=FACTORS, help="the only ones to equalise"
    )
    parser.add_argument("--floors", type=float, default=FLOORS, help="noise floors that the fault costs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainbed-blind-") as folder:
        job = made_up_job(Path(folder))
        factors = list(dict.fromkeys(given.factors))
        name = given.fault or draw(given.seed)
        verdict = blind_test(name, factors, job, given.blocks, given.seed, given.floors, say)
    print(described(verdict))
    return 0 if verdict.right else 1


if __name__ == "__main__":
    raise SystemExit(main())
