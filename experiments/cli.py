"""The command line: plan, run, watch, status, campaigns, history, report, answer, compare, check, …"""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from experiments.campaign.at_end import AtEnd
from experiments.campaign.campaign import campaigns, choose_campaign, open_campaign
from experiments.campaign.concurrent import whole_groups
from experiments.campaign.detached import OPTION, run_detached
from experiments.campaign.estimates import Estimates
from experiments.campaign.exporting import export_model, find_run
from experiments.campaign.loop import run_matrix
from experiments.campaign.machines import known_machines, newest_campaign
from experiments.campaign.plan import make_plan
from experiments.campaign.preparation import prepared_cluster
from experiments.campaign.resume import Options
from experiments.campaign.running_note import Detached, NoteWriter
from experiments.campaign.searching import find_request, run_search
from experiments.campaign.selection import runs_that_fit, with_warm_ups
from experiments.cluster.playbooks import Playbooks
from experiments.cluster.status import read_status
from experiments.console.searches import SearchTable
from experiments.console.status import show_status
from experiments.console.tables import CampaignTables, plan_as_json, show_plan
from experiments.console.watch import watch
from experiments.matrix.loading import load_matrix
from experiments.util.errors import UserError
from experiments.util.files import json_text
from experiments.util.interrupts import Interrupted, Interrupts
from experiments.util.paths import REPOSITORY
from experiments.util.screen import Screen
from experiments.util.words import counted

USAGE_ERROR: Final = 2  # also argparse's exit code
# By a signal: they start nothing on nodes.
ENDED_AT_ONCE: Final = ("campaigns", "history", "report", "answer", "compare", "check")
RESULTS: Final = REPOSITORY / "results"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser().parse_args(words)
    screen = Screen(json=getattr(arguments, "json", False))
    interrupts = Interrupts(at_once=arguments.command in ENDED_AT_ONCE)
    at_end = AtEnd(getattr(arguments, "at_end", None), screen, interrupts)
    status: int | None = None
    with interrupts:
        try:
            status = _status(
                lambda: _command(arguments, words, screen, interrupts, at_end), screen, interrupts
            )
        finally:
            at_end(status)
    return status


def _status(command: Callable[[], int], screen: Screen, interrupts: Interrupts) -> int:
    """Runs the command, and says what ended it; returns its exit code."""
    try:
        return command()
    except Interrupted:
        screen.clear_status()
        screen.line("Stopped. The same command resumes where this one ended.")
        return interrupts.exit_status
    except KeyboardInterrupt:
        screen.line("Stopped. The same command starts over.")
        return interrupts.exit_status
    except UserError as error:
        screen.clear_status()
        print(error, file=sys.stderr)
        return USAGE_ERROR
    except OSError as error:
        screen.clear_status()
        place = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "make room, and run the same command again; it resumes from what is recorded"
            print(f"The disk is full{place}: {advice}.", file=sys.stderr)
            return USAGE_ERROR
        print(f"A file or program could not be used: {error.strerror or error}{place}.", file=sys.stderr)
        return USAGE_ERROR


def _command(
    arguments: argparse.Namespace,
    words: Sequence[str],
    screen: Screen,
    interrupts: Interrupts,
    at_end: AtEnd,
) -> int:
    if arguments.command == "report":
        return _report(arguments.matrix, arguments.campaign, arguments.mlflow, screen)
    if arguments.command == "answer":
        return _answer(arguments.campaigns, arguments.out, screen)
    if arguments.command == "compare":
        return _compare(arguments, screen)
    if arguments.command == "check":
        return _check(arguments.paths, screen, as_json=arguments.json)
    if arguments.command == "campaigns":
        from experiments.console.campaigns import show_campaigns

        found = show_campaigns(screen, REPOSITORY, arguments.matrices)
        if arguments.json:
            print(json_text({"campaigns": found}), end="")
        return 0
    if arguments.command == "history":
        from experiments.console.history import show_history

        show_history(screen, RESULTS, arguments.matrix, arguments.csv)
        return 0
    if arguments.command == "watch":
        return watch(RESULTS, arguments.matrix, screen, interrupts)
    if arguments.command == "status":
        show_status(screen, read_status(Playbooks(REPOSITORY, interrupts, screen)), RESULTS)
        return 0
    playbooks = Playbooks(REPOSITORY, interrupts, screen)
    if arguments.command == "export":
        own = partial(_newest, screen=screen, choose="CAMPAIGN={}")
        run = find_run(RESULTS, arguments.run, arguments.matrix, arguments.campaign, own)
        export_model(playbooks, RESULTS, run, arguments.out, break_lock=arguments.break_lock)
        return 0
    if arguments.command == "search":
        request = find_request(arguments.record, arguments.search, arguments.stack)
        return run_search(playbooks, RESULTS, request, SearchTable(screen), break_lock=arguments.break_lock)
    matrix = load_matrix(arguments.matrix)
    if arguments.command == "plan":
        with prepared_cluster(playbooks, matrix, RESULTS, "plan", arguments.break_lock) as prepared:
            plan = make_plan(matrix, prepared.cluster, prepared.data_digests)
            if arguments.only is not None:
                plan = with_warm_ups(plan, whole_groups(plan, runs_that_fit(plan, arguments.only)))
            workers = {name: prepared.cluster.nodes[name] for name in prepared.cluster.workers}
            estimates = Estimates(RESULTS, prepared.cluster.machines)
            show_plan(screen, plan, matrix.name, estimates, workers)
            if arguments.json:
                print(json_text(plan_as_json(plan, matrix.name, estimates, workers)), end="")
        return 0
    if arguments.retry is not None and not campaigns(RESULTS / matrix.name):
        screen.line(f"There is nothing to retry: {matrix.name} has no campaign yet.")
        return 0
    if arguments.new and arguments.campaign is not None:
        raise UserError("--new starts a campaign of its own: leave out one of --new and --campaign.")
    options = Options(
        only=arguments.only,
        retry=arguments.retry,
        new=arguments.new,
        campaign=arguments.campaign,
        break_lock=arguments.break_lock,
        side_by_side=arguments.side_by_side,
        max_time_s=arguments.max_time * 60 if arguments.max_time is not None else None,
        decide=arguments.decide,
    )
    if arguments.detach and arguments.as_detached is None:
        return run_detached(RESULTS, matrix.name, arguments.matrix, words, screen, interrupts)
    at_end.note = NoteWriter(RESULTS, matrix.name, screen, arguments.as_detached)
    with at_end.note as note:
        return run_matrix(REPOSITORY, playbooks, matrix, options, note, CampaignTables(screen))


# Imported only here: reports need libraries, statistics above all, that take a second to load.
def _report(matrix: str, campaign: str | None, mlflow: Path | None, screen: Screen) -> int:
    from experiments.analysis.analysis import analyse
    from experiments.console.references import show_references
    from experiments.report.mlflow_store import write_mlflow
    from experiments.report.writer import write_analysis

    chosen = choose_campaign(RESULTS, matrix, campaign)
    if campaign is None:
        chosen = _newest(chosen.parent, screen, "CAMPAIGN={}")
    analysis = analyse(open_campaign(chosen))
    runs = None if mlflow is None else write_mlflow(analysis, mlflow)
    paths = write_analysis(analysis, chosen)
    for path in paths:
        if path.name.startswith("report."):
            screen.line(str(path))
    screen.line(f"Beside them: {', '.join(str(path.relative_to(chosen)) for path in paths[2:])}.")
    if mlflow is not None and runs is not None:
        screen.line(
            f"{counted(runs, 'run')} for MLflow: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri "
            f"{mlflow.resolve().as_uri()}"
        )
    return show_references(screen, analysis.references)


def _answer(paths: Sequence[Path], out: Path, screen: Screen) -> int:
    from experiments.analysis.analysis import analyse
    from experiments.report.answer import write_answer

    analyses = [analyse(open_campaign(_only_campaign(path, screen))) for path in paths]
    for path in write_answer(analyses, out):
        screen.line(str(path))
    return 0


def _compare(arguments: argparse.Namespace, screen: Screen) -> int:
    from experiments.console.comparison import Limits, compare

    both = [open_campaign(_only_campaign(path, screen)) for path in (arguments.first, arguments.second)]
    limits = Limits(arguments.max_slower, arguments.equal_weights)
    status, content = compare(screen, both[0], both[1], limits)
    if arguments.json:
        print(json_text(content), end="")
    return status


def _newest(folder: Path, screen: Screen, choose: str) -> Path:
    """A matrix's newest campaign on this inventory's machines; says so if others are newer."""
    chosen, remark = newest_campaign(folder, known_machines(REPOSITORY, RESULTS), choose)
    if remark is not None:
        screen.line(remark, "yellow")
    return chosen


def _only_campaign(path: Path, screen: Screen) -> Path:
    """The campaign at `path`, or a matrix's newest on this inventory's machines.

    Raises:
        UserError: there is none.
    """
    from experiments.console.check import find_campaigns

    if campaigns(path):
        return _newest(path, screen, f"{path}/{{}}")
    return find_campaigns(path)[-1]


def _check(paths: Sequence[Path], screen: Screen, *, as_json: bool) -> int:
    from experiments.console.check import check_campaign, find_campaigns
    from experiments.console.references import show_references
    from experiments.report.sections.references import checked_text

    status, content = 0, []
    for path in paths:
        for folder in find_campaigns(path):
            checked = check_campaign(folder)
            faults, references = checked.faults, checked.references
            well = "all is well" if references is not None and not references.outside else "no fault"
            screen.line(
                f"{folder}: " + (f"{len(faults)} fault{'s' if len(faults) > 1 else ''}" if faults else well)
            )
            for fault in faults:
                screen.line(f"  {fault}")
            outside = show_references(screen, references) if references is not None else 0
            status = 1 if faults or outside else status
            beyond = [checked_text(each) for each in references.outside] if references is not None else []
            content.append({"folder": str(folder), "faults": faults, "outside_references": beyond})
    if as_json:
        print(json_text({"campaigns": content}), end="")
    return status


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 on")
    return percent


def _margin(text: str) -> float:
    percent = _percent(text.removesuffix("%"))
    if not 0 < percent <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage above 0, and up to 100")
    return percent


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description="Plan, run and report experiments on a testbed."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    plan = commands.add_parser(
        "plan", help="show which runs of a matrix this cluster can make, and which it can't"
    )
    run = commands.add_parser("run", help="run a matrix, or resume it")
    for command in (plan, run):
        command.add_argument("matrix", help="name of a matrix in experiments/matrices/, or its path")
        command.add_argument("--only", metavar="GLOB", help="only runs whose id matches, such as '*-w1-*'")
    old_or_new = run.add_mutually_exclusive_group()
    old_or_new.add_argument(
        "--new", action="store_true", help="start a new campaign, even if the newest could be resumed"
    )
    old_or_new.add_argument(
        "--retry",
        choices=("failed", "interrupted", "disturbed"),
        help="only runs whose newest attempt ended this way, not those that were never started",
    )

    run.add_argument(
        "--campaign", metavar="ID", help="the campaign to go on with (default: the newest that matches)"
    )

    run.add_argument(
        "--max-time",
        type=_minutes,
        metavar="MINUTES",
        help="start no run that, judging by earlier records, would end more than MINUTES after the command's "
        "start",
    )

    run.add_argument(
        "--decide",
        type=_margin,
        metavar="PERCENT",
        help="begin a campaign that ends as soon as every stack differs from the first, or is the same "
        "within PERCENT; its seeds are the most that it makes",
    )

    run.add_argument(
        "--side-by-side",
        action="store_true",
        help="run several one-worker runs of a block and stack at a time, on different workers; the records "
        "say so, because it can disturb their times",
    )

    run.add_argument(
        "--detach",
        action="store_true",
        help="go on without this terminal, as a systemd unit, or in a tmux session where there is no systemd",
    )
    run.add_argument(OPTION, type=Detached.model_validate_json, help=argparse.SUPPRESS)

    run.add_argument(
        "--at-end",
        metavar="COMMAND",
        help="shell command to run at the end, however it ends; its variables TRAINBED_… say how",
    )

    watcher = commands.add_parser("watch", help="show a running matrix, live, until it ends; changes nothing")
    watcher.add_argument(
        "matrix", nargs="?", help="name of a matrix, or its path (default: whichever is running)"
    )

    commands.add_parser("status", help="show the cluster: nodes, lock, versions, disks; changes nothing")

    listing = commands.add_parser(
        "campaigns", help="list campaigns: how far they came, and why one does not match the checkout"
    )
    listing.add_argument(
        "matrices", nargs="*", metavar="MATRIX", help="names or paths of matrices (default: all with results)"
    )

    history = commands.add_parser(
        "history", help="show all campaigns of a matrix, cell by cell, and where times changed"
    )
    history.add_argument("matrix", help="name of the matrix")
    history.add_argument("--csv", type=Path, metavar="FILE", help="write it as CSV, too")

    report = commands.add_parser("report", help="write report.md and report.html for a campaign")
    report.add_argument("matrix", help="name of the matrix")
    report.add_argument(
        "--campaign", metavar="ID", help="which campaign (default: the newest of this inventory's machines)"
    )

    report.add_argument(
        "--mlflow",
        type=Path,
        metavar="FOLDER",
        help="also write the runs as a file store of MLflow, into this new folder",
    )

    answer = commands.add_parser(
        "answer", help="set what several campaigns say of each suspect beside the dissertation's overheads"
    )
    answer.add_argument(
        "campaigns",
        nargs="+",
        type=Path,
        metavar="CAMPAIGN",
        help="folder of a campaign, or of a matrix (its newest of this inventory's machines)",
    )
    answer.add_argument(
        "--out", type=Path, metavar="FOLDER", default=RESULTS / "answer", help="where to (results/answer)"
    )

    compare = commands.add_parser("compare", help="compare two campaigns, seed by seed")
    for name in ("first", "second"):
        compare.add_argument(
            name,
            type=Path,
            metavar=name.upper(),
            help="folder of a campaign, or of a matrix (its newest of this inventory's machines)",
        )

    compare.add_argument(
        "--max-slower",
        type=_percent,
        metavar="PERCENT",
        help="exit code 1 if a cell takes more than PERCENT longer in the second campaign, beyond chance",
    )
    compare.add_argument(
        "--equal-weights", action="store_true", help="exit code 1 if runs of a seed end with other weights"
    )

    check = commands.add_parser("check", help="check results: schema, digests, completeness, equal weights")
    check.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="results/, results/<matrix> or a campaign's folder",
    )
    export = commands.add_parser("export", help="bring a run's trained model home, as people load it")
    export.add_argument(
        "run", metavar="RUN", help="results/<matrix>/<campaign>/<run id>[/<attempt>], or only the run's id"
    )
    export.add_argument("--matrix", help="name of the matrix, if RUN is only an id")
    export.add_argument("--campaign", metavar="ID", help="likewise, which campaign (default: the newest)")
    export.add_argument(
        "--out", type=Path, metavar="FOLDER", help="the new folder (default: model/ in the attempt's folder)"
    )
    search = commands.add_parser("search", help="search for hyperparameters around a recorded run")
    search.add_argument(
        "record", metavar="RECORD", help="results/<matrix>/<campaign>/<run id>/<attempt>/record.json"
    )
    search.add_argument(
        "--search",
        metavar="FILE",
        help="the search: a file, or a name in experiments/search/ (adaptive_asha)",
    )
    search.add_argument(
        "--stack",
        help="the stack that searches (default: the run's own if it can, else the only one that can)",
    )
    for command in (plan, run, export, search):
        command.add_argument(
            "--break-lock",
            action="store_true",
            help="take the cluster's lock from a holder who is certainly gone",
        )
    for command in (plan, listing, compare, check):
        command.add_argument(
            "--json", action="store_true", help="print JSON; what people read goes to standard error"
        )
    return parser
