"""Becomes the command that a file describes: in its folder, with its environment, writing to its log.

Whoever keeps a detached command running starts this program, by its path and with `python -I`. systemd and
tmux would give the command an environment of their own; and variables in a unit's properties, or on a command
line, can be read by every user. It needs nothing but Python's own library.
"""

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Reads the file that the first argument names, removes it, and becomes what it describes."""
    path = Path(sys.argv[1])
    asked = json.loads(path.read_bytes())
    path.unlink()  # it holds the whole environment, passwords included
    print(asked["greeting"], flush=True)  # for people who attach to the session
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    # Standard input stays: tmux ends the session once nothing has its terminal open.
    os.umask(asked["umask"])
    os.chdir(asked["directory"])
    os.execve(asked["command"][0], asked["command"], asked["environment"])


if __name__ == "__main__":
    main()
