"""Stands in for systemd where roles start units: runs a unit's command at once, and tells how it ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

SYSTEMD_RUN: Final = """\
#!{python} -SE
import os, subprocess, sys
from pathlib import Path
place, options, argv = Path({place!r}), {{}}, sys.argv[1:]
names = [word for word in argv if word.startswith("--")]
while argv[0].startswith("--"):
    name, _, value = argv.pop(0).partition("=")
    options.setdefault(name, []).append(value)
properties = dict(each.split("=", 1) for each in options["--property"])
files = {{name: properties[name].split(":", 1)[1] for name in ("StandardOutput", "StandardError")}}
(place / "unit").write_text("\\n".join(names))
environment = dict(os.environ) | dict(each.split("=", 1) for each in options["--setenv"])
with open(files["StandardOutput"], "w") as out, open(files["StandardError"], "w") as log:
    where = options["--working-directory"][0]
    done = subprocess.run(argv, stdout=out, stderr=log, env=environment, cwd=where)
(place / "status").write_text(str(done.returncode))
"""
SYSTEMCTL: Final = """\
#!{python} -SE
import sys
from pathlib import Path
if sys.argv[1] == "show":
    status = int(Path({place!r}, "status").read_text())
    state = {{"SubState": "failed" if status else "exited", "MainPID": 0, "Result": "success"}}
    state |= {{"ExecMainCode": 1, "ExecMainStatus": status, "ExecMainStartTimestampMonotonic": 1}}
    state |= {{"InactiveExitTimestampMonotonic": 1, "ActiveExitTimestampMonotonic": 0}}
    state |= {{"ExecMainExitTimestampMonotonic": 2}}
    print("\\n".join(f"{{name}}={{value}}" for name, value in state.items()))
"""


def install(folder: Path) -> Path:
    """Put them into `bin` in a folder, for the PATH; `unit` beside it has the options of the last unit."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        path = programs / name
        path.write_text(text.format(python=sys.executable, place=str(folder)), encoding="utf-8")
        path.chmod(0o755)
    return programs
