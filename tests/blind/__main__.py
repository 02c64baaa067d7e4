"""Run the blind test by hand: `python -m tests.blind --seed 3`; with a fault that you choose, or with all."""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.blind.faults import HIDDEN, Plan, draw, faults_of
from tests.blind.kept import IMPOSSIBLE, Row, as_table, counted, impossible, keep, kept, row_of
from tests.blind.launch import FACTORS, FACTORS_OF, Kind, UnavailableError
from tests.blind.trial import described, trial

KINDS: Final[tuple[Kind, ...]] = tuple(FACTORS_OF)


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


def main() -> int:
    """Returns 0 if every right cause was named, else 1; trials that can't be made here don't count."""
    parser = argparse.ArgumentParser(prog="python -m tests.blind", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="draws all that is not given")
    parser.add_argument("--job", choices=KINDS, help="instead of the drawn one")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--fault", choices=[*FACTORS, HIDDEN], help="instead of the drawn one")
    chosen.add_argument("--every", action="store_true", help="every fault of the job, one after another")
    parser.add_argument(
        "--keep", type=Path, help="table (CSV) that gets the results; its trials are not repeated"
    )
    parser.add_argument("--blocks", type=int, help="instead of two with all factors, or five with three")
    parser.add_argument("--factors", nargs="+", choices=FACTORS, help="those to equalise")
    parser.add_argument("--floors", type=float, help="noise floors that the fault costs, instead of 3 or 6")
    given = parser.parse_args()
    try:
        plans = list(_plans(given))
    except ValueError as error:
        parser.error(str(error))
    done = {(row.seed, row.job, row.fault) for row in kept(given.keep)} if given.keep else set()
    left = [plan for plan in plans if (given.seed, plan.kind, plan.name) not in done]
    rows = made(left, given.seed, lambda row: keep(given.keep, row) if given.keep else None)
    if given.keep and (table := kept(given.keep)):
        say(f"\n{as_table(table)}\n\n{counted(table)}")
    return 1 if any(row.right == "no" for row in rows) else 0


def made(plans: Sequence[Plan], seed: int, on_row: Callable[[Row], None] = lambda _: None) -> list[Row]:
    """Make trials one after another, each with noise floors of its own; `on_row` gets each row at once."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="trainbed-blind-") as folder:
        for plan in plans:
            order = random.Random(f"{seed} {plan.kind} {plan.name}")
            try:
                verdict = trial(plan, Path(folder), order, say)
            except UnavailableError as reason:
                say(f"{plan.name}: {IMPOSSIBLE}. {reason}")
                row = impossible(seed, plan, str(reason))
            else:
                say(described(verdict))
                row = row_of(seed, verdict)
            on_row(row)
            rows.append(row)
    return rows


def _plans(given: argparse.Namespace) -> Iterator[Plan]:
    """What is drawn, but for what is given.

    Raises:
        ValueError: the job can't have the fault.
    """
    kinds = [given.job] if given.job or not given.every else KINDS
    for kind in kinds:
        for name in faults_of(kind) if given.every else [given.fault]:
            plan = draw(given.seed, kind, name)
            factors = [each for each in FACTORS_OF[plan.kind] if each in (given.factors or plan.factors)]
            floors, blocks = given.floors or plan.floors, given.blocks or plan.blocks
            yield replace(plan, factors=tuple(factors), blocks=blocks, floors=floors)


if __name__ == "__main__":
    raise SystemExit(main())
