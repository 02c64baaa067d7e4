"""The command line: python -m trainbed_determined --settings FILE COMMAND.

Exit code 0 = done, 1 = failed. Of `stop`: 3 = the master is unreachable, 5 = it can't be used otherwise.
Of `users`: 4 = admin has another password. The last line on stderr says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trainbed_determined.administration import (
    AgentsMissing,
    AnotherPassword,
    Ordinary,
    set_up_users,
    wait_for_agents,
)
from trainbed_determined.experiment import ExperimentError, Runner
from trainbed_determined.hook import HookError, hook_files
from trainbed_determined.master import Away, Master, MasterError
from trainbed_determined.run import run
from trainbed_determined.search import read_run, search
from trainbed_determined.settings import Settings, SettingsError, read_settings

STOP_PATIENCE_S: Final = 10.0  # a master that restarts answers within it
AWAY_STATUS: Final = 3
"""Exit code of `stop` if the master is unreachable."""
UNUSABLE_STATUS: Final = 5
"""Exit code of `stop` if the master lets nobody in, or tasks don't end, or the settings can't be used."""
ANOTHER_PASSWORD_STATUS: Final = 4
"""Exit code of `users` if the administrator's password is neither ours nor blank."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = _parser().parse_args(argv)
    try:
        settings = read_settings(given.settings)
        return _command(given, settings, Master(settings, say))
    except AnotherPassword as error:
        sys.stderr.write(f"{error}\n")
        return ANOTHER_PASSWORD_STATUS
    except (SettingsError, MasterError, ExperimentError, AgentsMissing, HookError) as error:
        if given.command == "stop":  # people read this
            sys.stderr.write(f"{error}\n")
            return AWAY_STATUS if isinstance(error, Away) else UNUSABLE_STATUS
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1


def say(line: str) -> None:
    """Print a line with the time to stderr."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def _command(given: argparse.Namespace, settings: Settings, master: Master) -> int:
    if given.command == "run":
        config = json.loads(given.config.read_bytes())
        beside = hook_files(given.startup_hook) if given.startup_hook else []
        run(master, config, given.code, given.label, given.out, say, given.queue_limit, beside)
    elif given.command == "search":
        config = json.loads(given.config.read_bytes())
        length = read_run(given.spec, given.batches)
        beside = hook_files(given.startup_hook) if given.startup_hook else []
        search(master, config, length, given.code, given.label, given.out, say, beside)
    elif given.command == "stop":
        runner = Runner(master, say)
        killed, ended = runner.stop_all(STOP_PATIENCE_S, foreign_too=given.foreign_too)
        # Also of those that ended by themselves: their clean-up must not disturb a run, of whatever stack.
        runner.wait_until_clean([*killed, *ended])
        print(json.dumps({"changed": bool(killed), "standin": master.standin()}))
    elif given.command == "users":
        ordinary = read_settings(given.ordinary)
        changed = set_up_users(
            master, settings.password, Ordinary(ordinary.user, ordinary.password, given.uid, given.group)
        )
        print(json.dumps({"changed": changed}))
    elif given.command == "agents":
        wanted = {name: int(slots) for name, slots in (each.rsplit("=", 1) for each in given.agents)}
        wait_for_agents(master, wanted, given.patience, say)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainbed_determined", description=__doc__)
    parser.add_argument("--settings", type=Path, required=True, help="client.json, or admin.json")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    experiment = commands.add_parser("run", help="submit an experiment, wait for it and collect its results")
    searching = commands.add_parser("search", help="submit a search, follow it and collect its results")
    for command in (experiment, searching):
        command.add_argument(
            "--config", type=Path, required=True, help="the experiment's configuration, JSON"
        )
        command.add_argument("--code", type=Path, required=True, help="folder or file to submit with it")
        command.add_argument("--label", required=True, help="label unique to this experiment")
        command.add_argument("--out", type=Path, required=True, help="folder for its results")
        command.add_argument(
            "--startup-hook", type=Path, help="script that every container runs before its ranks start"
        )
    experiment.add_argument(
        "--queue-limit", type=float, help="seconds that it may wait for slots, instead of the settings' limit"
    )
    searching.add_argument("--spec", type=Path, required=True, help="the run's specification, JSON")
    searching.add_argument("--batches", type=int, required=True, help="how many batches the run takes")

    stop = commands.add_parser("stop", help="end every experiment of any matrix, and every search")
    stop.add_argument(
        "--all",
        dest="foreign_too",
        action="store_true",
        help="also those that are not trainbed's, and spare paused ones (as admin)",
    )

    users = commands.add_parser("users", help="set passwords and create the ordinary user (as admin)")
    users.add_argument("--ordinary", type=Path, required=True, help="client.json of the ordinary user")
    users.add_argument("--uid", type=int, required=True, help="UID and GID that its tasks run as")
    users.add_argument("--group", required=True, help="name of that group on the nodes")

    agents = commands.add_parser("agents", help="wait until agents offer their slots")
    agents.add_argument("--patience", type=float, default=90.0, help="seconds to wait")
    agents.add_argument("agents", nargs="+", metavar="AGENT=SLOTS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
